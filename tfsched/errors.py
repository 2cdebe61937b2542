"""The errors that users can cause: one sentence each, with the value that was wrong and what to do."""

from __future__ import annotations


class TfschedError(ValueError):
    """A user's mistake. The message is one clear sentence; the command line prints it without a traceback.

    Attributes:
      exit_code: what the command line exits with.
    """

    exit_code = 2
