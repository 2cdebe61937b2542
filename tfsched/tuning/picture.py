"""The picture of a tuning: the seconds of each sample, and of the best setting so far."""

from __future__ import annotations

import io
from collections.abc import Sequence

from tfsched.errors import TfschedError

from .log import Record

_COLOURS = ("#1f4e8c", "#b35900", "#3a7d44", "#7a4fa3", "#888888")


def png(records: Sequence[Record], title: str) -> bytes:
    """A PNG with a dot for each sample, coloured by policy, and a line for the best so far.

    Raises TfschedError if matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TfschedError(
            f"The picture needs matplotlib, which cannot be imported ({error}); run pip install 'tfsched[plot]'."
        ) from None
    # A canvas of its own: pyplot would choose a backend for the whole program.
    made = Figure(figsize=(9, 4.5), layout="constrained")
    FigureCanvasAgg(made)
    axis = made.subplots()
    for number, policy in enumerate(dict.fromkeys(one.setting.policy for one in records)):
        mine = [one for one in records if one.setting.policy == policy]
        colour = _COLOURS[number % len(_COLOURS)]
        axis.scatter([one.number for one in mine], [one.seconds for one in mine], s=14, color=colour, label=policy)
    numbers, best = [one.number for one in records], [one.best_seconds for one in records]
    axis.step(numbers, best, where="post", color="black", lw=1.2, label="best so far")
    axis.set_xlabel("sample")
    axis.set_ylabel("seconds of a step")
    axis.set_title("".join(c if c.isprintable() else "?" for c in title).replace("$", r"\$"), fontsize=9)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=8)
    out = io.BytesIO()
    made.savefig(out, dpi=110, format="png")
    return out.getvalue()
