"""How fast a process writes memory that it has not had before, GiB by GiB: ``python benchmarks/new_memory.py [--gib N]``.

A virtual machine's host may take back memory that is not in use. New memory comes from the host then, and can take ten times
as long. A bench of a large model that needs more than the machine has had lately measures that, and not the schedules.
"""

from __future__ import annotations

import argparse
import mmap
import sys
import time
from collections.abc import Iterator

GIB = 1 << 30
PART = 64 << 20


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, help="memory to take; not given: 80 %% of what is available")
    return parser.parse_args()


def available_bytes() -> int:
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:"))


def written(memory: mmap.mmap, begin: int, end: int) -> float:
    """Writes a part of the memory and returns how fast, in GB/s."""
    zeros = bytes(PART)
    started_s = time.perf_counter()
    for at in range(begin, end, PART):
        size = min(PART, end - at)
        memory[at : at + size] = zeros[:size]
    return (end - begin) / (time.perf_counter() - started_s) / 1e9


def rates(size: int) -> Iterator[tuple[int, float, float]]:
    """For each GiB of `size` bytes: its number, and GB/s when it is written first and again."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for number, begin in enumerate(range(0, size, GIB)):
            end = min(begin + GIB, size)
            yield number, written(memory, begin, end), written(memory, begin, end)


def main() -> None:
    options = arguments()
    size = int(available_bytes() * 0.8) if options.gib is None else int(options.gib * GIB)
    if not 0 < size <= available_bytes():
        sys.exit(
            f"--gib is {options.gib}: give more than 0 and at most the {available_bytes() / GIB:.1f} that are available"
        )
    print("| GiB | first, GB/s | again, GB/s |\n|---|---|---|")
    for number, first, again in rates(size):
        print(f"| {number + 1} | {first:.2f} | {again:.1f} |", flush=True)


if __name__ == "__main__":
    main()
