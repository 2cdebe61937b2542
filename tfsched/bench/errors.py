"""The one error of the bench that a user can cause."""


class BenchError(Exception):
    """A mistake or a machine's limit, told in one sentence that says the value and what to do."""
