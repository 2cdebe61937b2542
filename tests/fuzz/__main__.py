"""Runs many programs: ``python -m tests.fuzz --n 1000 --seed 0``, or one that a file holds: ``--program program.json``."""

import concurrent.futures
import json
import pathlib
import sys
import threading
import time

from absl import app, flags

from tests.cluster.cluster import task_environment
from tests.cluster.nurseries import Nurseries
from tests.fuzz import drawing, programs, running, shrinking

_N = flags.DEFINE_integer("n", 100, "How many programs.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "The first one's seed; the others have the next ones.")
_KINDS = flags.DEFINE_list("kinds", sorted({*drawing.KINDS, "mirrored"}), "Which kinds of programs.")
_JOBS = flags.DEFINE_integer("jobs", 2, "How many clusters run programs at once.", lower_bound=1)
_PROGRAM = flags.DEFINE_string("program", None, "A file with one program as JSON, in place of seeds.")
_STOCK = flags.DEFINE_bool("stock", False, "Run the programs without tfsched: what is asked of it must be what stock gives.")
_SHRINK = flags.DEFINE_bool("shrink", False, "Take actions away from what has a finding while it still has one.")
_SHOW = flags.DEFINE_bool("show", False, "Print the programs and run none.")


def _drawn():
    if _PROGRAM.value:
        with open(_PROGRAM.value, encoding="utf-8") as file:
            return [json.load(file)]
    more = {running.STOCK_ONLY: True} if _STOCK.value else {}
    return [program | more for program in programs.draw_many(_SEED.value, _N.value, _KINDS.value)]


def _kept(program):
    """The file that a program is written to."""
    path = pathlib.Path("build", "fuzz", f"seed-{program['seed']}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(program), encoding="utf-8")
    return path


def _lane(nursery, batches, findings, lock):
    """Takes batches, programs of one shape each, until there are none."""
    done = 0
    with running.Bench(nursery) as bench:
        while True:
            with lock:
                if not batches:
                    return done
                batch = batches.pop(0)
            for program in batch:
                begin_s = time.monotonic()
                found = bench.run(program)
                done += 1
                if found and _SHRINK.value:
                    found = shrinking.shrunk(bench, found)
                    found.repeat = f"PROGRAM={_kept(found.program)}"
                with lock:
                    took_s = time.monotonic() - begin_s
                    print(
                        f"seed {program['seed']} ({program['kind']}): {'FINDING' if found else 'ok'}, {took_s:.1f} s",
                        flush=True,
                    )
                    if found:
                        findings.append(found)
                        print(found.text(), flush=True)
            bench.drop()


def main(argv):
    """Prints each finding and, at the end, one line; the exit code is 1 if there was one."""
    del argv
    begin_s = time.monotonic()
    drawn = _drawn()
    if _SHOW.value:
        for program in drawn:
            print(json.dumps(program))
        return 0
    batches = {}
    for program in drawn:
        batches.setdefault(program["seed"] // drawing.BLOCK, []).append(program)
    batches, findings, lock = list(batches.values()), [], threading.Lock()
    with Nurseries(task_environment()) as nursery, concurrent.futures.ThreadPoolExecutor(_JOBS.value) as pool:
        lanes = [pool.submit(_lane, nursery, batches, findings, lock) for _ in range(_JOBS.value)]
        done = sum(lane.result() for lane in lanes)
    seeds = f"{drawn[0]['seed']} to {drawn[-1]['seed']}"
    found = sorted(one.program["seed"] for one in findings)
    took_s = time.monotonic() - begin_s
    print(
        f"fuzz: {done} programs, {len(found)} findings{f' (seeds {found})' if found else ''}, seeds {seeds}, {took_s:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    app.run(lambda argv: sys.exit(main(argv)))
