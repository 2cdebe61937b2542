"""ByteScheduler, figures 10 to 12 and what its section 6.2 says of other models and of P3: 8 to 64 GPUs."""

from __future__ import annotations

from typing import Any

from .bytescheduler import BALANCED, BASE, FLOPS, from_table
from .common import FREE, TABLE_1, Shown, gain, point, rate, sized, table

# As stated, and fitted to the gain of VGG16 with 16 GPUs.
BANDWIDTHS = ("100gbit", "20gbit")
COUNTS = "--iterations 5 --warmup 3"
# Its default: 160 kB (section 2.3).
P3 = f"p3{FREE}:partition_bytes=160000"
# 300 us for a message in the ring of 32, as in figure 13.
RING_STEP_US = 5


def scaling() -> None:
    """Figures 10 to 12, four of the five cases: what TCP and RDMA differ in besides their speed is not known."""
    print("### ByteScheduler, figures 10 to 12\n")
    run, run_ring = Shown(), Shown()
    servers, rings = [], []
    for bandwidth in BANDWIDTHS:
        tail = f"--bandwidth {bandwidth} {COUNTS}"
        for model, flops in FLOPS.items():
            in_ring = sized(*TABLE_1[model][1])
            for machines in (1, 2, 4, 8):
                gpus = 8 * machines
                start = [bandwidth.removesuffix("gbit"), model, str(gpus)]
                servers.append([*start, *_servers(model, flops, machines, tail, run), _said(model, gpus, "PS")])
                line = f"sweep --model {model} --flops {flops} --workers {gpus} --architecture ring {tail}"
                of = point(f"{line} --startup_us {RING_STEP_US} --method {BASE},vanilla,{in_ring}", run_ring)
                gains = [gain(of[in_ring], of[name]) for name in (BASE, "vanilla")]
                rings.append([*start, rate(of[BASE]), rate(of[in_ring]), *gains, _said(model, gpus, "ring")])
    over = ["over MXNet, whole in turn", "MXNet's cut", "P3", "TensorFlow"]
    print("Parameter servers, samples (tokens) a second of all GPUs:\n")
    table(["Gbit/s", "model", "GPUs", "bytescheduler", *over, "paper"], servers)
    print("All-reduce:\n")
    table(["Gbit/s", "model", "GPUs", "MXNet", "bytescheduler", "over MXNet", "PyTorch", "paper"], rings)


def _servers(model: str, flops: str, machines: int, tail: str, run: Shown) -> list[str]:
    """ByteScheduler with Table 1's sizes, and its gains."""
    sizes = TABLE_1.get(model, TABLE_1["vgg16"])[0]
    best = sized(*sizes)
    line = f"sweep --model {model} --flops {flops} --workers {machines} --servers workers --startup_us 300 {tail}"
    found = point(f"{line} --method {best} {BALANCED} --split_bytes {sizes[0]}000000", run)[best]
    whole = point(f"{line} --method {BASE},vanilla", run)
    p3 = point(f"{line} --method {P3} {BALANCED} --split_bytes 160000", run)[P3]
    others: list[dict[str, Any]] = [whole[BASE], mxnet(model, flops, machines, line), p3, whole["vanilla"]]
    return [rate(found, 1 / 8), *[gain(found, other) for other in others]]


def mxnet(model: str, flops: str, machines: int, line: str) -> dict[str, Any]:
    """Stock MXNet with its largest tensors cut over all servers: the row of the sweep."""
    return from_table(model, flops, machines, f"{line} {BALANCED} --method {BASE}")["rows"][0]


def p3() -> None:
    """Section 6.2, "Comparison with P3": 28 to 43% over the three models, at an unknown number of GPUs."""
    print("### ByteScheduler over P3\n")
    run = Shown()
    rows = []
    for startup_us in (300, 100, 50, 25):
        cells = []
        for model, flops in FLOPS.items():
            sizes = TABLE_1[model][0]
            best = sized(*sizes)
            for machines in (2, 4):
                line = f"sweep --model {model} --flops {flops} --workers {machines} --servers workers "
                line += f"--startup_us {startup_us} --bandwidth 20gbit {COUNTS} {BALANCED}"
                other = point(f"{line} --method {P3} --split_bytes 160000", run)[P3]
                cells.append(gain(point(f"{line} --method {best} --split_bytes {sizes[0]}000000")[best], other))
        rows.append([f"{startup_us}", *cells])
    rows.append(["paper", "+28 to +43%", *[""] * 5])
    table(["start-up, us", *[f"{model}, {gpus} GPUs" for model in FLOPS for gpus in (16, 32)]], rows)


def _said(model: str, gpus: int, how: str) -> str:
    """What the text says of a point of the figures."""
    return {
        ("vgg16", 16, "PS"): "+124.9% over MXNet",
        ("vgg16", 16, "ring"): "+19% over MXNet",
        ("transformer", 16, "PS"): "+171% over MXNet",
    }.get((model, gpus, how), "")


def models() -> None:
    """Section 6.2: AlexNet, VGG19, and asynchronous training; MXNet PS with 32 GPUs."""
    print("### ByteScheduler, other models and asynchronous training\n")
    run = Shown()
    rows = []
    said = {"alexnet_v2": "+96%", "vgg19": "+60%"}
    for model in ("alexnet_v2", "vgg19", *FLOPS):
        sizes = TABLE_1.get(model, TABLE_1["vgg16"])[0]
        best = sized(*sizes)
        flops = FLOPS.get(model, FLOPS["vgg16"])
        cells = []
        for bandwidth in BANDWIDTHS:
            for synchronous in ("true", "false"):
                line = f"sweep --model {model} --flops {flops} --workers 4 --servers workers --startup_us 300 "
                line += f"--bandwidth {bandwidth} {COUNTS} --set placement=balanced,synchronous={synchronous}"
                parts = point(f"{line} --method {best} --split_bytes {sizes[0]}000000", run)[best]
                whole = point(f"{line} --method {BASE}", run)[BASE]
                cut = from_table(model, flops, 4, f"{line} --method {BASE}")["rows"][0]
                cells.append(f"{gain(parts, whole)}, {gain(parts, cut)}")
        rows.append([model, *cells, said.get(model, "")])
    columns = ["100 Gbit/s: over whole, MXNet's cut", "asynchronous", "20 Gbit/s", "asynchronous"]
    table(["model", *columns, "paper"], rows)
