"""``tfsched top``: what running tasks do, as a table that is drawn again and again."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console, Group
from rich.filesize import decimal
from rich.live import Live
from rich.table import Column, Table

from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.showing import plain
from tfsched.control import access

if TYPE_CHECKING:
    from tfsched.control.client import Answer

_COLUMNS = (
    "task",
    "step",
    "idle",
    "out/s",
    "in/s",
    "ordered/s",
    "queue",
    "on wire",
    "credit",
    "policy",
    "reordered",
    "asides",
    "all-reduces",
    "updates",
    "crossing",
)
_TEXTS = ("task", "policy")
_WIDTH = 180  # where there is no terminal
_TRANSFERS = 1000  # asked of each task: what was sent to others is counted from them
_NONE = "-"


def define(flags: CommandFlags) -> None:
    flags.boolean("once", False, "print one table, of what happened within one interval, and end")
    flags.number("interval", 2.0, "seconds from one table to the next", lower=0.1)
    flags.string("token", None, f"what the tasks ask for; {access.TOKEN} does not show in the list of processes")
    flags.boolean("received", True, "also tell what tasks receive: takes milliseconds of each task's time, each interval")


def run(flags: CommandFlags, arguments: list[str]) -> int:
    addresses = [address.strip() for argument in arguments for address in argument.split(",") if address.strip()]
    if not addresses:
        raise UsageError("tfsched top takes the addresses host:port of control services, separated by commas, and got none.")
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or int(port) >= 1 << 16:
            raise UsageError(f"{address!r} is no address; give host:port of a task's control service.")
    token = access.checked_token(flags.token or os.environ.get(access.TOKEN) or None)
    try:
        from tfsched.control.client import Tasks
    except ImportError as error:
        raise UsageError(f"tfsched top needs grpcio ({error}); run pip install 'tfsched[control]'.") from None
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=_WIDTH, highlight=False)
    with Tasks(list(dict.fromkeys(addresses)), token) as tasks:
        view = View(tasks, flags.interval, _TRANSFERS if flags.received else 0)
        if flags.once:
            time.sleep(flags.interval)
            answers = view.turn()
            console.print(view.table)
            return 0 if any(not answer.error for answer in answers) else 1
        try:
            _draw(view, console, flags.interval)
        except KeyboardInterrupt:  # how it ends
            return 0


def _draw(view: View, console: Console, interval_s: float) -> NoReturn:
    if not console.is_terminal:
        while True:
            time.sleep(interval_s)
            view.turn()
            console.print(view.table)
    with Live(view.table, console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            view.turn()
            live.update(view.table, refresh=True)


class View:
    """The table, and what it was made from.

    Args:
      tasks: tfsched.control.client.Tasks.
      interval_s: seconds between turns.
      transfers: how many of each task's newest transfers to ask for; 0: what tasks receive is not shown.
    """

    def __init__(self, tasks: Any, interval_s: float, transfers: int):
        self._tasks, self._interval_s, self._transfers = tasks, interval_s, transfers
        self._before: dict[str, Answer] = {}
        self.table = Group()
        self.turn()

    def turn(self) -> list[Answer]:
        """Asks all tasks and makes the table anew."""
        answers: list[Answer] = self._tasks.ask(self._transfers)
        columns = [Column(name, justify="left" if name in _TEXTS else "right", overflow="fold") for name in _COLUMNS]
        table = Table(*columns, box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for answer in answers:
            table.add_row(*self._row(answer, answers))
        tuners = [
            f"{plain(answer.address)}: autotune {plain(said(answer.parts['tuner']))}"
            for answer in answers
            if "tuner" in answer.parts
        ]
        reasons = [f"[red]{plain(answer.address)}: {plain(answer.error)}[/]" for answer in answers if answer.error]
        self.table = Group(table, *tuners, *reasons)
        self._before = {answer.address: answer for answer in answers}
        return answers

    def _row(self, answer: Answer, answers: Sequence[Answer]) -> list[str]:
        from tfsched.control.rates import idle_share, per_second, ratio, received_per_second

        if answer.error:
            return [plain(answer.address), *[_NONE] * (len(_COLUMNS) - 1)]
        before, now = self._before.get(answer.address), answer.numbers
        window_s = answer.time_s - before.time_s if before and before.identity == answer.identity else self._interval_s
        received = received_per_second(answer.tasks, answers, window_s, self._transfers) if self._transfers else None
        ordered = per_second(before, answer, "tasks")
        policy, credit_bytes = in_force(answer)
        step_us, idle = ratio(before, answer, "step_us_total", "steps"), idle_share(before, answer)
        return [
            plain(", ".join(answer.tasks) or answer.address),
            _time(step_us),
            _NONE if idle is None else f"{idle:.0%}",
            _size(per_second(before, answer, "bytes", "bypassed_bytes")),
            _size(received),
            _NONE if ordered is None else f"{ordered:.1f}",
            f"{now.get('queue_depth', 0)}",
            _size(now.get("on_wire_bytes", 0)),
            used(ratio(before, answer, "wire_byte_seconds", "sending_us_total"), credit_bytes),
            plain(policy) + (" (paced)" if now.get("emulated") else ""),
            f"{now.get('reorderings', 0)}",
            f"{now.get('step_asides', 0)}",
            f"{now.get('packs_scheduled', 0)} / {now.get('packs_stock', 0)}",
            f"{now.get('background_outstanding', 0)}",
            f"{now.get('crossing_variables', 0)}",
        ]


def in_force(answer: Answer) -> tuple[str, int | None]:
    """Policy, and credit in bytes: what configure has set; or else the options that the process knows; or "graph", and the
    credit of the link that was used last, or None.
    """
    told = {**answer.parts.get("graphs", {}), **answer.parts.get("functions", {})}
    policy, credit_bytes = answer.texts.get("policy", "graph"), answer.numbers.get("credit_bytes", -1)
    if policy == "graph":
        policy = str(told.get("policy", policy))
    if credit_bytes < 0:
        newest = answer.numbers.get("credit_in_force_bytes", -1)
        return policy, int(told["credit_bytes"]) if "credit_bytes" in told else (newest if newest >= 0 else None)
    return policy, credit_bytes


def used(byte_seconds_a_us: float | None, credit_bytes: int | None) -> str:
    """How much of the credit a link has on the wire while it sends, and the credit: "812.0 kB / 1.0 MB".

    Args:
      byte_seconds_a_us: bytes times seconds for each microsecond in which a link sent; None if none did.
      credit_bytes: 0 is no limit; None is not known.
    """
    credit = {None: "graph's", 0: "none"}.get(credit_bytes) or _size(credit_bytes)
    return f"{_size(None if byte_seconds_a_us is None else byte_seconds_a_us * 1e6)} / {credit}"


def said(tuner: Mapping[str, Any]) -> str:
    """What a task tells of its tuner, on one line."""
    text = f"{tuner.get('state', '?')}, {int(tuner.get('samples', 0))} samples"
    if "in_force" in tuner:
        text += f"; in force: {tuner['in_force']}; best: {tuner.get('best', '?')}"
    return text


def _time(value_us: float | None) -> str:
    if value_us is None:
        return _NONE
    return f"{value_us / 1e3:.1f} ms" if value_us < 1e6 else f"{value_us / 1e6:.2f} s"


def _size(value: float | None) -> str:
    return _NONE if value is None else decimal(int(value))
