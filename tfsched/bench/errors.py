"""The errors of the bench: what a user asked for wrongly, and what went wrong in running it."""

from tfsched.errors import TfschedError


class BenchError(TfschedError):
    """A mistake or a machine's limit, told in one sentence that says the value and what to do."""


class BenchFailed(BenchError):
    """The bench could not be finished: a task died or took too long."""

    exit_code = 1
