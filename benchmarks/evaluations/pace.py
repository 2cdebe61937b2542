"""PACE, figures 8 and 9: ring all-reduce, 1080 Ti."""

from __future__ import annotations

import pathlib

from .common import FREE, Shown, by_point, gain, rate, table

# Operations a second and batch.
MODELS = {"vgg16": ("6e12", 64), "resnet50": ("5.5e12", 32), "transformer": ("6e12", 2048)}
HOROVOD = f"horovod{FREE}"
# As somebody would write it who stands in the repository.
PLUGIN = "benchmarks/evaluations/horovod.py"
_PLUGIN = pathlib.Path(__file__).with_name("horovod.py")


class WithPlugin(Shown):
    """Shows the plugin's path in the repository, and loads it from wherever that is."""

    def __call__(self, line: str, show: str = "") -> dict[str, object]:
        return super().__call__(f"{line} --plugin {_PLUGIN}", f"{show or line} --plugin {PLUGIN}")


def speeds() -> None:
    """Figures 8 and 9: by workers and by bandwidth."""
    print("### PACE, figures 8 and 9\n")
    methods = f"vanilla{FREE},{HOROVOD},tao{FREE},mg-wfbp{FREE},pace{FREE},pace{FREE}:partition_bytes=4000000,buckets{FREE}"
    names = methods.split(",")
    pace = names[4]
    common = f"--architecture ring --startup_us 10 --method {methods} --iterations 5 --warmup 3"
    header = ["WFBP", "Horovod", "TicTac", "MG-WFBP", "PACE", "PACE, 4 MB", "buckets"]
    header += ["PACE over WFBP", "Horovod", "TicTac", "MG-WFBP", "buckets over PACE", "over PACE, 4 MB"]
    for figure, grid, key in (
        (
            "figure 8: 10 Gbit/s, samples (tokens) a second of all workers",
            "--bandwidth 10gbit --workers 2,4,8,12,16",
            "workers",
        ),
        (
            "figure 9: 12 workers",
            "--bandwidth 1gbit,2gbit,4gbit,6gbit,8gbit,10gbit,12gbit,14gbit,20gbit,25gbit --workers 12",
            "bandwidth_bps",
        ),
    ):
        print(f"{figure}\n")
        run = WithPlugin()
        rows = []
        for model, (flops, batch) in MODELS.items():
            answer = run(f"sweep --model {model} --flops {flops} --batch {batch} {grid} {common}")
            for x, of in by_point(answer["rows"], key).items():
                label = f"{x:g}" if key == "workers" else f"{x / 1e9:g}"
                gains = [gain(of[pace], of[name]) for name in names[:4]]
                gains += [gain(of[names[6]], of[name], 1) for name in names[4:6]]
                rows.append([model, label, *[rate(of[name]) for name in names], *gains])
        table(["model", "workers" if key == "workers" else "Gbit/s", *header], rows)
