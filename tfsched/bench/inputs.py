"""What predictions are made from, in a file: they can be made again when the simulator has changed."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfsched.bench.errors import BenchError

if TYPE_CHECKING:
    from tfsched.tracing import StepTrace

FORMAT = "tfsched-predicted-from/1"


def path_of(directory: str, model: str, workers: int) -> str:
    """The file of one result in `directory`."""
    return os.path.join(directory, f"{model}-{workers}.json.gz")


def save(path: str, trace: StepTrace, plans: Mapping[str, str]) -> None:
    """Writes the traced steps and the plans, text by setting. The directory is made if it is not there."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    content = {"format": FORMAT, "trace": trace.to_json(), "plans": dict(sorted(plans.items()))}
    text = json.dumps(content, separators=(",", ":"), sort_keys=True)
    with open(path, "wb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))  # the same bytes whenever it is written


def load(path: str) -> tuple[StepTrace, dict[str, str]]:
    """The trace and the plans that `save` wrote.

    Raises:
      BenchError: there is no such file, or it is another one.
      TraceError: the trace in it is damaged.
    """
    from tfsched.tracing import StepTrace

    try:
        with gzip.open(path, "rb") as file:
            content = json.loads(file.read())
    except (OSError, EOFError, ValueError) as error:
        raise BenchError(f"{path} cannot be read ({error}); give a file that bench --inputs has written") from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise BenchError(f"the format of {path} is {found!r}; give a file that bench --inputs has written ({FORMAT})")
    plans = content.get("plans")
    if not isinstance(plans, dict) or not all(isinstance(text, str) for text in plans.values()):
        raise BenchError(f"{path} has no plans as text; give a file that bench --inputs has written")
    return StepTrace.from_json(content.get("trace")), plans
