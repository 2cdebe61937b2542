"""What several parts have to agree on: policies, and how tensors are cut. May import nothing but the standard library."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

# The policies of cc/core (docs/policies.md).
POLICIES = ("fifo", "tictac", "bytescheduler", "p3", "prophet")

# Policies that never wait for a rank that is missing while nothing is on the wire.
NEVER_WAITING = frozenset({"bytescheduler", "p3", "prophet"})

# gRPC copies tensors of up to 1 KiB, and says nothing of when those have left. Chunks are never smaller than half of this.
MIN_PARTITION_BYTES = 4096

# Every chunk costs a request and an answer. Tensors that would need more chunks leave in larger ones.
MAX_CHUNKS = 4096

# Chunks begin at multiples of it: kBlockBytes of cc/ops/transfers/chunks.h.
BLOCK_BYTES = 64


# Bytes handed to gRPC and not yet written before the next transfer has to wait, unless messages are larger. docs/tuning.md
# says when to change it.
DEFAULT_CREDIT_BYTES = 1_000_000

# Where no option says it, a worker's part of a piece of an all-reduced tensor has at most so many bytes. From three workers
# on a message is one part, and four fill the default credit; two workers send each other whole pieces, and two fill it.
_PART_BYTES = 250_000

# Where no option says it: how long an all-reduce's message should last, for more urgent ones wait so long. Smaller ones cost
# processor time. Slow and unknown links have the smallest, however long they last. The largest was measured
# (docs/tuning-results.md).
_MESSAGE_US = 8_000
LARGEST_MESSAGE_BYTES = 1_000_000

# Where no option says it: on links below so many bits per second, of how many bytes the chunks of variables and their
# gradients are at most, and the credit; the last line is for faster links. Measured with one server and worker and with two
# of each (docs/tuning-results.md): on fast links a message's processor time costs more than what it makes others wait. Each
# worker adds its messages to what a server has to do, so that this begins at slower links where there are several.
_SLOW_LINKS = ((700e6, 250_000, 250_000), (1.5e9, 500_000, 500_000))
_CHUNKS_BELOW = {
    several: (*_SLOW_LINKS, (fast, 1_000_000, 2_000_000), (math.inf, 4_000_000, 8_000_000))
    for several, fast in ((False, 8e9), (True, 3e9))
}
_UNKNOWN = (500_000, DEFAULT_CREDIT_BYTES)

# Until workers have measured how fast their links are, an all-reduced tensor of at most so many bytes goes whole to all.
WHOLE_BYTES = 16_384

# All-reduced tensors below it are exchanged together with others: a message costs more.
SMALL_BYTES = 65_536


def fitting_chunks(link_bps: float, workers: int = 1) -> tuple[int, int]:
    """The bytes of chunks of variables and gradients, and of the credit, that fit a link of so many bits per second (0: not
    known) where so many workers share the servers."""
    if link_bps <= 0:
        return _UNKNOWN
    return next((chunk, credit) for below, chunk, credit in _CHUNKS_BELOW[workers > 1] if link_bps < below)


def _part_bytes(least: int, link_bps: float) -> int:
    """Of how many bytes all-reduces' messages are at most that fit a link of so many bits per second (0: not known):
    ``least``, doubled while that is nearer to what the link carries in 8 ms. cc/collective/choice.cc does the same."""
    size = least
    while 2 * size <= LARGEST_MESSAGE_BYTES and link_bps * _MESSAGE_US >= 1.5 * size * 8e6:
        size *= 2
    return size


def exchange_bytes(workers: int, link_bps: float = 0) -> int:
    """Of how many bytes the pieces are at most in which so many workers exchange a tensor, where no option says it.

    Every message costs a request and an answer, so that pieces grow with the workers that share them, and with the link's
    bits per second (0: not known).
    """
    if workers <= 2:
        return _part_bytes(2 * _PART_BYTES, link_bps)
    return _part_bytes(_PART_BYTES, link_bps) * workers


def fitting_credit(message_bytes: int) -> int:
    """How many bytes gRPC may hold where messages have a size that an option or a plan gives: two of them."""
    return max(DEFAULT_CREDIT_BYTES, 2 * message_bytes)


def exchange_credit(workers: int, piece_bytes: int) -> int:
    """The same for workers that exchange tensors in such pieces, of which each sends the others a part."""
    return fitting_credit(piece_bytes // workers if workers > 2 else piece_bytes)


def bundle_bytes(workers: int, partition_bytes: int = 0) -> int:
    """Of how many bytes the bundles of small tensors are at most; ``partition_bytes`` is the option's, if it is given.

    A message of a bundle is as large as one of the smallest pieces of several workers, however fast the link is: bundles
    are part of the graph, which is made before the link is known. A larger one would wait longer for its last tensor.
    """
    most = _PART_BYTES * (workers if workers > 2 else 1)
    return min(most, partition_bytes) if partition_bytes > 0 else most


def bundles_of(sizes_bytes: Sequence[int], most: int) -> list[list[int]]:
    """Which tensors of a pack are all-reduced as one of at most so many bytes, as numbers of the pack's; others are alone.

    The pass (grappler/collectives) bundles so, which a test compares.
    """
    bundles: list[list[int]] = []
    open_bytes: int | None = None
    for number, size in enumerate(sizes_bytes):
        if size >= SMALL_BYTES:
            continue
        if open_bytes is not None and open_bytes + size <= most:
            bundles[-1].append(number)
            open_bytes += size
        else:
            bundles.append([number])
            open_bytes = size
    return [bundle for bundle in bundles if len(bundle) > 1]


def chunks_of(size_bytes: int, partition_bytes: int) -> int:
    """How many chunks of at most ``partition_bytes`` (0: whole) so many bytes leave in, but not more than MAX_CHUNKS.

    A partition below MIN_PARTITION_BYTES, which no option takes and examples of a few bytes need, cuts between any two
    bytes, and into any number of chunks.
    """
    if partition_bytes == 0 or size_bytes <= partition_bytes:
        return 1
    if partition_bytes < MIN_PARTITION_BYTES:
        return -(-size_bytes // partition_bytes)
    return min(-(-size_bytes // (partition_bytes - partition_bytes % BLOCK_BYTES)), MAX_CHUNKS)


def chunk_bytes(size_bytes: int, partition_bytes: int) -> list[int]:
    """The size of each chunk, in order: as even as borders at multiples of BLOCK_BYTES allow.

    What is planned, what is simulated and what is sent are cut here; cc/ops/transfers/chunks.h puts as many chunks at the
    same borders, which a test compares.
    """
    chunks = chunks_of(size_bytes, partition_bytes)
    if chunks == 1:
        return [size_bytes]
    block = BLOCK_BYTES if partition_bytes >= MIN_PARTITION_BYTES else 1
    blocks = -(-size_bytes // block)
    borders = [min(size_bytes, chunk * blocks // chunks * block) for chunk in range(chunks + 1)]
    return [end - begin for begin, end in itertools.pairwise(borders)]


# With balanced placement a larger variable is cut into a shard for each server. Smaller ones stay whole, for a worker joins
# shards with a copy.
SHARD_BYTES = 4 << 20


def shards_of(size: int, rows: int, servers: int, shard_bytes: int = SHARD_BYTES) -> int:
    """Into how many shards a variable of `size` bytes is cut along its axis of `rows`."""
    if size <= shard_bytes or rows < 2:
        return 1
    return min(servers, rows)
