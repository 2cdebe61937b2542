"""What is left of a tuning: the line in the console, samples as CSV and as a picture, the result for the next training."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping

from tfsched._log import log
from tfsched.errors import TfschedError
from tfsched.online.reach import Reach
from tfsched.tuning import Key, Memory, Setting, Tuner, csv_text


def say(sentence: str) -> None:
    """In the program's own log."""
    log.warning("%s", sentence)


def listed(failed: Mapping[str, str]) -> str:
    """Tasks, and why each could not be reached, as a part of a sentence."""
    return "; ".join(f"{name}: {reason.rstrip('.')}" for name, reason in sorted(failed.items()))


class Results:
    """Where results go.

    Args:
      model: a name for what is trained.
      memory, csv, plot: files; "" for none.

    Raises:
      TfschedError: a memory without a model.
    """

    def __init__(self, model: str, memory: str, csv: str, plot: str):
        if memory and not model:
            raise TfschedError(f"memory is {memory!r} and model is empty; name the model under which the result is kept.")
        self._model, self._csv, self._plot = model, csv, plot
        self._memory = Memory(memory) if memory else None

    def recall(self, reach: Reach) -> Setting | None:
        """What was best for this model on such a cluster."""
        return self._memory.recall(self._key(reach)) if self._memory else None

    def keep(self, tuner: Tuner, reach: Reach) -> list[str]:
        """Writes all; sentences on what cannot be written."""
        problems = []

        def write(what: str, path: str, content: bytes) -> None:
            try:
                pathlib.Path(path).write_bytes(content)
            except OSError as error:
                problems.append(f"the {what} {path} cannot be written ({error.strerror}); check the directory.")

        if self._csv:
            write("log", self._csv, csv_text(tuner.records).encode())
        if self._plot and tuner.records:
            try:
                from tfsched.tuning import picture

                write("picture", self._plot, picture.png(tuner.records, f"{self._model or 'training'}: steps while tuning"))
            except TfschedError as error:
                problems.append(str(error))
        if self._memory:
            try:
                if tuner.decision is not None:
                    self._memory.remember(self._key(reach), tuner.decision.setting, tuner.decision.seconds)
            except TfschedError as error:
                problems.append(str(error))
            if self._memory.problem:
                problems.append(self._memory.problem)
        return problems

    def _key(self, reach: Reach) -> Key:
        # The bandwidth is not known; what is remembered of a faster network is only tried first.
        return Key.of(self._model, reach.workers, reach.servers, 0.0, "allreduce" if reach.all_reduces else "ps")
