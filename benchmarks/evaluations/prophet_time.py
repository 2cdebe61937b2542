"""Prophet, figures 2, 3 and 9 to 11: where the time of a step goes, and what sizes of pieces and credit change."""

from __future__ import annotations

from collections.abc import Iterable

from .common import CROSSING, FREE, Shown, busy, point, rate, sized, table
from .prophet import METHODS

# isort: split
from tfsched.simulator import Cluster, Method, Workload, methods, profiles, simulate
from tfsched.simulator.pieces import schedule
from tfsched.simulator.result import Span

FITTED = "--model resnet50 --flops 1.66e12 --batch 64 --bandwidth 3gbit --workers 2 --startup_us 3000"
COUNTS = "--iterations 5 --warmup 3"
PROPHET, SCHEDULER = METHODS[1:3]


def time() -> None:
    """All tables."""
    print("### Prophet, figures 2, 3, 9, 10 and 11\n")
    stock()
    sizes()
    utilisation()
    transfers()


def stock() -> None:
    """Figure 2: how long a GPU is idle with stock MXNet."""
    print("Figure 2, ResNet-152 with stock MXNet, 3 workers:\n")
    run = Shown()
    rows = []
    for bandwidth in ("1gbit", "3gbit", "10gbit"):
        line = f"simulate --model resnet152 --flops 1.66e12 --batch 32 --bandwidth {bandwidth} --workers 3"
        of = run(f"{line} --startup_us 3000 --method {METHODS[0]} {COUNTS}")["methods"][METHODS[0]]
        rows.append([bandwidth.removesuffix("gbit"), f"{of['median_us'] / 1e3:,.0f}", f"{1 - busy(of, '/compute'):.0%}"])
    table(["Gbit/s", "ms a step", "GPU idle"], rows)


def sizes() -> None:
    """Figure 3: P3 by its partition, ByteScheduler by its credit."""
    print("Figure 3, samples a second of one worker:\n")
    run = Shown()
    parts = (0.16, 0.5, 1, 2, 4, 8)
    p3 = ",".join(f"p3{FREE}:partition_bytes={round(1e6 * part)}" for part in parts)
    of = point(f"sweep {FITTED} --method {p3} {COUNTS}", run)
    table(["partition, MB", *[f"{part:g}" for part in parts]], [["P3", *[rate(row, 2) for row in of.values()]]])
    credits = (3, 4, 6, 8, 10, 13)
    of = point(f"sweep {FITTED} --method {','.join(sized(3, credit) for credit in credits)} {COUNTS}", Shown())
    cells = ["ByteScheduler, parts of 3 MB", *[rate(row, 2) for row in of.values()]]
    table(["credit, MB", *[f"{credit:g}" for credit in credits]], [cells])


def utilisation() -> None:
    """Figures 9 and 10 and the iterations of section 5.2."""
    print("Figures 9 and 10:\n")
    run = Shown()
    of = run(f"simulate {FITTED} --method {PROPHET},{SCHEDULER} {COUNTS}")["methods"]
    size = profiles.describe("resnet50").parameter_bytes
    rows = []
    for name, title, paper in (
        (PROPHET, "prophet", ("91.15%", "857", "10.3")),
        (SCHEDULER, "bytescheduler, 16 MB credit", ("67.85%", "1,416", "7.5")),
    ):
        step_s = of[name]["median_us"] / 1e6
        values = (f"{busy(of[name], '/compute'):.1%}", f"{step_s * 1e3:,.0f}", f"{size / step_s / 1e6:.1f}")
        rows.append([title, *[f"{value} ({said})" for value, said in zip(values, paper, strict=True)]])
    table(["", "GPU busy (paper)", "ms a step (paper)", "MB/s up (paper)"], rows)


def transfers() -> None:
    """Figure 11: how long gradients wait, and how long they travel. Times of single transfers are in no command's output."""
    print("Figure 11, milliseconds in the mean of all gradients, at 3 Gbit/s as fitted:\n")
    workload = Workload.from_layers(profiles.load("resnet50", 64, 1.66e12))
    cluster = Cluster(workers=2, bandwidth_bps=3e9, startup_us=3000.0, barrier=False)
    crossing = methods()[CROSSING]
    chosen = {
        "stock MXNet": (methods()["vanilla"], "-, 446"),
        "bytescheduler, 16 MB credit": (_with(crossing, 4_000_000, 16_000_000), "67, 135"),
        "bytescheduler, 4 MB credit": (_with(crossing, 4_000_000, 4_000_000), ""),
        "prophet": (methods()["prophet"], "26, 125"),
    }
    rows = []
    for name, (method, paper) in chosen.items():
        wait_ms, push_ms, both_ms = means(workload, cluster, method)
        rows.append([name, *[f"{ms:.0f}" for ms in (wait_ms, push_ms, wait_ms + push_ms, wait_ms + both_ms)], paper])
    table(["", "wait", "push", "until pushed", "until the value is back", "paper: wait, transfer"], rows)


def _with(method: Method, partition_bytes: int, credit_bytes: int) -> Method:
    return Method(
        method.name, method.ordering, method.policy, partition_bytes, credit_bytes, method.barrier, view=method.view
    )


def means(workload: Workload, cluster: Cluster, method: Method) -> tuple[float, float, float]:
    """Of the first worker's gradients in a step in the middle, in ms: wait, push, and until the value is back.

    The wait is from when the gradient is made until the first message that carries it starts.
    """
    step = 4
    result = simulate(workload, cluster, method, iterations=6, warmup=0, timeline=True)
    pieces = schedule(workload, cluster, method, 0).pieces
    members: dict[str, set[int]] = {}
    for piece in pieces:
        members.setdefault(piece.label, set()).update(piece.parameters)
    made = {event.op: event.end_us for event in result.events if event.resource == "w0/compute" and event.step == step}
    pushes = _spans((e for e in result.events if e.step == step and e.resource == "w0>ps0"), "push", members)
    # A value that was updated in one step is pulled for the next one.
    pulls = _spans((e for e in result.events if e.step == step + 1 and e.resource == "ps0>w0"), "pull", members)
    waits, times, both = [], [], []
    for i, parameter in enumerate(workload.parameters):
        begin_us, end_us = pushes[i]
        waits.append(begin_us - max(made[op] for op in parameter.made_by))
        times.append(end_us - begin_us)
        both.append(pulls[i][1] - begin_us)
    return tuple(sum(values) / len(values) / 1e3 for values in (waits, times, both))


def _spans(events: Iterable[Span], word: str, members: dict[str, set[int]]) -> dict[int, tuple[float, float]]:
    """Parameter -> from the beginning of the first message that carries it to the end of the last one."""
    spans: dict[int, tuple[float, float]] = {}
    for event in events:
        for i in members[event.op.removeprefix(f"{word} ")]:
            begin_us, end_us = spans.get(i, (event.start_us, event.end_us))
            spans[i] = (min(begin_us, event.start_us), max(end_us, event.end_us))
    return spans
