"""Which server holds what, so that all carry the same bytes; knows no TensorFlow."""

from __future__ import annotations

from tfsched._rules import SHARD_BYTES, shards_of
from tfsched.errors import TfschedError

__all__ = ["SHARD_BYTES", "Loads", "checked_shard_bytes", "shards_of"]


class Loads:
    """The bytes that each server holds so far.

    A variable's bytes travel in both directions of a step (its value, and its gradient), so servers that hold the same send
    and receive the same. Each variable goes to the server with the fewest bytes when it comes: list scheduling (Graham,
    "Bounds on Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 1969), by which no two servers differ by more than the
    largest part. All processes of a job that create their variables in the same order choose alike.
    """

    def __init__(self, servers: int):
        """`servers`: how many there are, at least 1."""
        if servers < 1:
            raise TfschedError(f"Placement needs at least one parameter server, and has {servers}; give their number.")
        self._bytes = [0] * servers

    @property
    def bytes(self) -> list[int]:
        """Of each server."""
        return list(self._bytes)

    def emptiest(self) -> int:
        """The server with the fewest bytes; of equals the first."""
        return min(range(len(self._bytes)), key=self._bytes.__getitem__)

    def add(self, server: int, size: int) -> None:
        """Has `server` hold `size` bytes more."""
        self._bytes[server] += size


def checked_shard_bytes(shard_bytes: int) -> int:
    """`shard_bytes`, if it can be used."""
    if isinstance(shard_bytes, bool) or not isinstance(shard_bytes, int) or shard_bytes < 1:
        raise TfschedError(f"shard_bytes is {shard_bytes!r}; give a number of bytes of at least 1.")
    return shard_bytes
