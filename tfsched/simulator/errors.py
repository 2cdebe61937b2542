"""What goes wrong in a simulation through a user's input."""

from __future__ import annotations

from tfsched.errors import TfschedError


class SimulatorError(TfschedError):
    """A cluster, workload or method that cannot be simulated; the message is one sentence."""
