"""The promise, for training whose variables count their updates: what a read may and must have seen.

A read that begins after a step has returned sees that step, whole; nobody sees a step that has not begun. Of a step that
trains, beside others that train, only its own worker's steps are asked for (docs/barrier.md).
"""

import math


def count_of(value, momentum):
    """How many updates an element has had: -n after n of gradient descent, -n(n+1)/2 with momentum, n in a slot.

    None if no number of whole updates makes it.
    """
    value = abs(value)
    if not momentum:
        return int(value) if value == int(value) else None
    count = (math.isqrt(1 + 8 * int(value)) - 1) // 2
    return count if value == count * (count + 1) / 2 else None


def violations(logs, replicas=1):
    """What the logs of all workers say against the promise, one line each.

    Args:
      logs: of each worker its entries: "kind" ("step", "read" or "counter", of steps), "begin_s" and "end_s" on one clock,
        "seen": name -> smallest and largest count in the array.
      replicas: so many steps make an update. With more than one nobody knows which have; the counter of steps does.
    """
    entries = [(worker, entry) for worker, log in enumerate(logs) for entry in log]
    steps = [(worker, entry) for worker, entry in entries if entry["kind"] == "step"]
    counters = [entry for _, entry in entries if entry["kind"] == "counter"]
    found = []
    for worker, entry in entries:
        if replicas == 1:
            must = [step for of, step in steps if entry["kind"] != "step" or of == worker]
            told = sum(step["end_s"] < entry["begin_s"] for step in must)
            begun = sum(step["begin_s"] < entry["end_s"] for _, step in steps if step is not entry)
        else:
            told = max((one["seen"]["global_step"][0] for one in counters if one["end_s"] < entry["begin_s"]), default=0)
            begun = sum(step["begin_s"] < entry["end_s"] for _, step in steps) // replicas
        for name, (least, most) in entry["seen"].items():
            what = f"worker{worker}'s {entry['kind']} of {entry['begin_s']:.3f} to {entry['end_s']:.3f} s: {name}"
            if least is None or least != most:
                found.append(f"{what} has part of an update, from {least} to {most}")
            elif not told <= least <= begun:
                found.append(f"{what} shows {least} updates, of {told} that were reported and {begun} that had begun")
    return found


def total(logs):
    """How many updates each variable has when all is over."""
    return sum(entry["kind"] == "step" for log in logs for entry in log)


def miscounts(seen, wanted):
    """What the final counts say against the promise."""
    return [
        f"at the end {name} has from {least} to {most} updates, of {wanted} that were reported"
        for name, (least, most) in seen.items()
        if least is None or least != most or least != wanted
    ]
