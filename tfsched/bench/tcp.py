"""What a link gives to TCP: workers send each other as many bytes as an all-reduce does, over plain sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Sequence

from tfsched.bench.errors import BenchError
from tfsched.bench.loops import Times
from tfsched.bench.members import Member

_LIMIT_S = 120.0
_CHUNK_BYTES = 1 << 20
_NUMBER_BYTES = 4


class TcpLoop:
    """Exchanges bytes with all other workers: each sends an even part of them to each other one, all at a time.

    Nothing is summed and nothing waits for what arrives, so no all-reduce over TCP sends as many bytes sooner.

    Args:
        listening: this worker's socket, at its place in `addresses`.
        addresses: host and port of each worker's, all of which listen.
        index: this worker's number.
        member: this worker among the others.
        sent_bytes: what leaves each worker in a step, in all.

    Raises:
        BenchError: another worker cannot be reached.
    """

    def __init__(
        self, listening: socket.socket, addresses: Sequence[tuple[str, int]], index: int, member: Member, sent_bytes: int
    ) -> None:
        self._member = member
        self._part_bytes = sent_bytes // (len(addresses) - 1)
        self._peers: dict[int, socket.socket] = {}
        try:
            for number, address in enumerate(addresses[:index]):
                self._peers[number] = socket.create_connection(address, timeout=_LIMIT_S)
                self._peers[number].sendall(index.to_bytes(_NUMBER_BYTES, "big"))
            listening.settimeout(_LIMIT_S)
            while len(self._peers) < len(addresses) - 1:
                peer, _ = listening.accept()
                peer.settimeout(_LIMIT_S)
                self._peers[int.from_bytes(_received(peer, _NUMBER_BYTES), "big")] = peer
        except OSError as error:
            self.close()
            raise BenchError(f"worker {index} has no TCP connection to all others: {error}") from error

    def run(self, count: int, batch: int | None) -> Times:
        """As of Loop; `batch` does not matter."""
        del batch
        self._member.together()
        times = Times()
        for _ in range(count):
            times.starts_s.append(time.monotonic())
            self._exchange()
            times.ends_s.append(time.monotonic())
        return times

    def _exchange(self) -> None:
        errors: list[OSError] = []

        def guarded(work: Callable[[socket.socket], None], peer: socket.socket) -> None:
            try:
                work(peer)
            except OSError as error:
                errors.append(error)

        threads = [
            threading.Thread(target=guarded, args=(work, peer), daemon=True)
            for peer in self._peers.values()
            for work in (self._send, self._receive)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise BenchError(f"the TCP connection to another worker broke: {errors[0]}")

    def _send(self, peer: socket.socket) -> None:
        chunk = memoryview(bytes(_CHUNK_BYTES))
        left = self._part_bytes
        while left > 0:
            peer.sendall(chunk[: min(left, _CHUNK_BYTES)])
            left -= _CHUNK_BYTES

    def _receive(self, peer: socket.socket) -> None:
        place = memoryview(bytearray(_CHUNK_BYTES))
        left = self._part_bytes
        while left > 0:
            count = peer.recv_into(place[: min(left, _CHUNK_BYTES)])
            if count == 0:
                raise ConnectionResetError("it was closed")
            left -= count

    def close(self) -> None:
        """Closes the connections."""
        for peer in self._peers.values():
            peer.close()


def _received(peer: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    got = b""
    while len(got) < count:
        more = peer.recv(count - len(got))
        if not more:
            raise ConnectionResetError("it was closed")
        got += more
    return got
