"""Takes the time of a program's steps."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator

from tfsched.errors import TfschedError


class Steps(abc.ABC):
    """What a program gives its steps to. Whatever goes wrong with measuring, training goes on.

    Attributes:
      state: "waiting" for the first step, "searching", "decided", "stopped", or "elsewhere": another process decides.
    """

    def __init__(self, clock: Callable[[], float]):
        self.state = "waiting"
        self._clock = clock
        self._began_s: float | None = None

    @contextlib.contextmanager
    def step(self, count: int = 1) -> Iterator[None]:
        """Around a step, or around ``count`` of them: what is begun inside has to be finished inside, too."""
        self.begin_step()
        try:
            yield
        except BaseException:
            self._began_s = None
            raise
        self.end_step(count)

    def begin_step(self) -> None:
        """For who cannot use :meth:`step`: a step begins. One that has begun before and has not ended is forgotten."""
        if self.state == "waiting":
            self._start()
        if self.state == "searching":
            self._began_s = self._clock()

    def end_step(self, count: int = 1) -> None:
        """The step, or so many, has ended."""
        began_s, self._began_s = self._began_s, None
        if self.state != "searching" or began_s is None:
            return
        try:
            self._ended((self._clock() - began_s) / count, count)
        except Exception as error:
            self._stop(str(error) if isinstance(error, TfschedError) else f"{type(error).__name__}: {error}")

    @abc.abstractmethod
    def _start(self) -> None:
        """Before the first step; sets the state."""

    @abc.abstractmethod
    def _ended(self, seconds: float, count: int) -> None:
        """Behind ``count`` steps of so many seconds each."""

    @abc.abstractmethod
    def _stop(self, why: str) -> None:
        """Gives up."""
