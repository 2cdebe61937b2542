"""Tables, lines and progress bars of the offline commands. Names come from users' files: nothing in them is markup."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


def plain(text: str) -> str:
    """The text as it is, without control characters."""
    return escape("".join(c if c.isprintable() else "?" for c in text))


def table(title: str, first: str, *others: str) -> Table:
    """A table whose first column is text; the others are aligned to the right if their name says a number."""
    made = Table(title=plain(title), title_justify="left")
    for name in (first, *others):
        words = name in ("recv", "op", "why here", "why then", "resource", "method", "model", "what", "setting", "remark")
        made.add_column(plain(name), justify="left" if words else "right", overflow="fold" if words else "ellipsis")
    return made


def say(what: Any) -> None:
    """Prints a table or a line to standard output."""
    console = Console(soft_wrap=not isinstance(what, Table), highlight=False)
    if not console.is_terminal:
        console = Console(width=140, soft_wrap=not isinstance(what, Table), highlight=False)
    console.print(what, markup=isinstance(what, Table))


def progress(quiet: bool) -> Progress:
    """A bar on standard error, if that is a terminal; it goes away when it is done."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=quiet or not sys.stderr.isatty(),
        transient=True,
    )
