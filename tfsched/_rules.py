"""What several parts have to agree on: policies, and how tensors are cut. May import nothing but the standard library."""

from __future__ import annotations

import itertools

# The policies of cc/core (docs/policies.md).
POLICIES = ("fifo", "tictac", "bytescheduler", "p3")

# gRPC copies tensors of up to 1 KiB, and says nothing of when those have left. Chunks are never smaller than half of this.
MIN_PARTITION_BYTES = 4096

# Every chunk costs a request and an answer. Tensors that would need more chunks leave in larger ones.
MAX_CHUNKS = 4096

# Chunks begin at multiples of it: kBlockBytes of cc/ops/transfers/chunks.h.
BLOCK_BYTES = 64


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
