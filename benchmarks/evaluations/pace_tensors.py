"""PACE, figures 3, 4 and 10 and Table II: sizes of tensors, what a message costs, and how busy the link is."""

from __future__ import annotations

import pathlib
import tempfile

from .common import FREE, busy, command, shown, table  # first: it makes tfsched importable
from .pace import HOROVOD, MODELS, WithPlugin

# isort: split
from tfsched.ordering.layers import Layer, LayerTable
from tfsched.simulator import profiles

# Table II: millions of parameters, all-reduce operators, computation operators.
TABLE_2 = {"vgg16": (138.4, 32, 80), "resnet50": (25.5, 157, 335), "transformer": (91.8, 164, 1061)}
# Of Seq2Seq it says 67.2 million parameters and 32 all-reduce operators.
SEQ2SEQ_BYTES, SEQ2SEQ_TENSORS = 67_200_000 * 4, 32


def tensors() -> None:
    """Figures 3 and 4 and Table II."""
    print("### PACE, figures 3 and 4, Table II\n")
    rows = []
    for model, (parameters, operators, computing) in TABLE_2.items():
        sizes = [row.parameter_bytes for row in profiles.load(model) if row.parameter_bytes]
        small = [size for size in sizes if size < 1_000_000]
        rows.append(
            [
                model,
                f"{sum(sizes) / 4e6:.1f} ({parameters})",
                f"{len(sizes)} ({operators})",
                f"{2 * len(sizes)} ({computing})",
                f"{len(small) / len(sizes):.0%}",
                f"{sum(small) / sum(sizes):.1%}",
            ]
        )
    columns = ["parameters, million (paper)", "tensors (paper)", "ops (paper)", "tensors below 1 MB", "their bytes"]
    table(["model", *columns], rows)
    print("Figure 3, an all-reduce of one tensor by 12 workers at 25 Gbit/s:\n")
    line = "--workers 12 --architecture ring --bandwidth 25gbit --startup_us 10 --method fifo --iterations 1"
    shown(f"simulate tensor.csv {line}")
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory) / "tensor.csv"
        for size in (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000):
            path.write_text(LayerTable([Layer("tensor", 0.0, 0.0, size)]).to_csv())
            us = command(f"simulate {path} {line}")["methods"]["fifo"]["median_us"]
            least_us = 2 * 11 / 12 * size * 8e6 / 25e9
            rows.append([f"{size / 1e6:g}", f"{us / 1e3:.3f}", f"{least_us / us:.0%}"])
    table(["MB", "ms", "of the link's rate"], rows)


def seq2seq(heavy_first: bool) -> LayerTable:
    """32 tensors of 67.2 million parameters, three quarters of them in the first two (chosen), or in the last two."""
    large, small = SEQ2SEQ_BYTES * 3 // 8, SEQ2SEQ_BYTES // 4 // (SEQ2SEQ_TENSORS - 2)
    sizes = [large, large, *[small] * (SEQ2SEQ_TENSORS - 2)]
    # Computing takes as long as the 12 workers' all-reduces at 10 Gbit/s (chosen).
    each_us = 2 * 11 / 12 * SEQ2SEQ_BYTES * 8e6 / 10e9 / 3 / SEQ2SEQ_TENSORS
    ordered = sizes if heavy_first else sizes[::-1]
    return LayerTable(Layer(f"tensor{i}", each_us, 2 * each_us, size) for i, size in enumerate(ordered))


def bandwidth() -> None:
    """Figure 10: how long the link stands still in a step."""
    print("### PACE, figure 10\n")
    methods = [f"vanilla{FREE}", HOROVOD, f"pace{FREE}"]
    common = "--workers 12 --architecture ring --bandwidth 10gbit --startup_us 10 --iterations 5 --warmup 3"
    common += f" --method {','.join(methods)}"
    run = WithPlugin()
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        sources = {model: f"--model {model} --flops {flops} --batch {batch}" for model, (flops, batch) in MODELS.items()}
        for name, heavy_first in (("seq2seq, heavy at its input", True), ("seq2seq, heavy at its output", False)):
            path = pathlib.Path(directory) / f"{heavy_first}.csv"
            path.write_text(seq2seq(heavy_first).to_csv())
            sources[name] = str(path)
        for name, source in sources.items():
            of = run(f"simulate {source} {common}")["methods"]
            step_ms = {method: of[method]["median_us"] / 1e3 for method in methods}
            shares = {method: busy(of[method], "ring") for method in methods}
            rows.append(
                [
                    name,
                    *[f"{shares[method]:.0%}" for method in methods],
                    *[f"{(1 - shares[method]) * step_ms[method]:.1f}" for method in methods],
                    *[f"{step_ms[method] / step_ms[methods[2]] - 1:+.0%}" for method in methods[:2]],
                ]
            )
    columns = ["busy: WFBP", "Horovod", "PACE", "idle ms a step: WFBP", "Horovod", "PACE", "PACE over WFBP", "Horovod"]
    table(["model", *columns], rows)
