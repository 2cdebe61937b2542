"""Layer tables: a model as a chain of layers with times and parameter bytes, and the DAGs of one step of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfsched._rules import shards_of

from . import _checks
from ._checks import show
from .dag import MAX_SIZE_BYTES, Dag, Op, Resource

COLUMNS = ("name", "forward_us", "backward_us", "parameter_bytes")
COMPUTE = "w0/compute"
LINK = "net"
MAX_ROWS = 1_000_000


class LayerError(ValueError):
    """A layer table that cannot be used; the message is one sentence that names the row."""


class Layer(NamedTuple):
    """One layer: its times on one worker, and the bytes of its parameters, which are its gradient's too."""

    name: str
    forward_us: float
    backward_us: float
    parameter_bytes: int = 0


@dataclass(frozen=True)
class LayerTable:
    """Layers in the order of the forward pass.

    A row may be a whole layer or one parameter tensor of it (its kernel, its bias); only rows with bytes communicate.
    Raises LayerError for an empty table, a name given twice and bad numbers.
    """

    rows: tuple[Layer, ...]

    def __init__(self, rows: Iterable[Layer]) -> None:
        checked = tuple(_check(row, position) for position, row in enumerate(rows, 1))
        if not checked:
            raise LayerError("the layer table has no rows; give at least one layer")
        seen: set[str] = set()
        for row in checked:
            if row.name in seen:
                raise LayerError(f"layer {show(row.name)} is given twice; rename one of them")
            seen.add(row.name)
        object.__setattr__(self, "rows", checked)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of all parameters."""
        return sum(row.parameter_bytes for row in self.rows)

    @property
    def forward_us(self) -> float:
        """Time of one forward pass."""
        return sum(row.forward_us for row in self.rows)

    @property
    def backward_us(self) -> float:
        """Time of one backward pass."""
        return sum(row.backward_us for row in self.rows)

    def split(self, most_bytes: int) -> LayerTable:
        """The same model with every parameter tensor cut into rows of at most so many bytes, as equal as can be.

        Parameter servers with partitioned keys place such parts independently. All parts are needed for the layer's forward
        pass and made by its backward pass: both times are with the last part. Raises LayerError for a size below 1.
        """
        if isinstance(most_bytes, bool) or not isinstance(most_bytes, int) or most_bytes < 1:
            raise LayerError(f"the size to split at is {show(most_bytes)}; give a whole number of bytes above zero")
        count = sum(-(-row.parameter_bytes // most_bytes) for row in self.rows)
        if count > MAX_ROWS:
            raise LayerError(f"parts of {most_bytes} bytes would be {count}; give a larger size to split at")
        return self._cut([max(1, -(-row.parameter_bytes // most_bytes)) for row in self.rows])

    def sharded(self, servers: int) -> LayerTable:
        """The same model with every large parameter tensor cut into a shard for each server, as `tfsched.placement` does.

        A table has no shapes: a tensor is taken to have as many rows as there are servers. Times are as of `split`.
        """
        return self._cut([shards_of(row.parameter_bytes, servers, servers) for row in self.rows])

    def _cut(self, into: Sequence[int]) -> LayerTable:
        """Each row's parameters in so many parts, as equal as can be."""
        rows = []
        for row, parts in zip(self.rows, into, strict=True):
            borders = [row.parameter_bytes * part // parts for part in range(parts + 1)]
            for part in range(parts - 1):
                rows.append(Layer(f"{row.name}#{part}", 0.0, 0.0, borders[part + 1] - borders[part]))
            name = row.name if parts == 1 else f"{row.name}#{parts - 1}"
            rows.append(row._replace(name=name, parameter_bytes=borders[parts] - borders[parts - 1]))
        return LayerTable(rows)

    @classmethod
    def from_csv(cls, text: str, what: str = "the layer table") -> LayerTable:
        """Build a table from CSV text with the header name,forward_us,backward_us,parameter_bytes. Raises LayerError."""
        try:
            lines = list(csv.reader(io.StringIO(text), strict=True))
        except csv.Error as error:
            raise LayerError(f"{what} is not CSV ({error}); check the file") from None
        lines = [line for line in lines if line and not line[0].lstrip().startswith("#")]
        if not lines:
            raise LayerError(f"{what} is empty; give the header {','.join(COLUMNS)} and a row for each layer")
        header = [cell.strip() for cell in lines[0]]
        if sorted(header) != sorted(COLUMNS):
            raise LayerError(f"{what} has the header {show(','.join(header))}; give {','.join(COLUMNS)}")
        rows = []
        for number, line in enumerate(lines[1:], 1):
            if len(line) != len(header):
                raise LayerError(f"row {number} of {what} has {len(line)} cells; give {len(header)}")
            cells = dict(zip(header, (cell.strip() for cell in line), strict=True))
            where = f"in row {number} of {what}"
            rows.append(
                Layer(
                    cells["name"],
                    _number(cells["forward_us"], f"the forward_us {where}"),
                    _number(cells["backward_us"], f"the backward_us {where}"),
                    _whole(cells["parameter_bytes"], f"the parameter_bytes {where}"),
                )
            )
        return cls(rows)

    def to_csv(self) -> str:
        """The table as CSV text; `from_csv` of it gives an equal table."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in self.rows:
            writer.writerow([row.name, repr(row.forward_us), repr(row.backward_us), row.parameter_bytes])
        return out.getvalue()


def read_csv(path: str) -> LayerTable:
    """Read a table from a local CSV file. Raises LayerError if it cannot be read or is no layer table."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError:
        raise LayerError(f"{path} is not UTF-8 text; give a CSV file") from None
    except OSError as error:
        raise LayerError(f"{path} cannot be read ({error.strerror}); check the path") from None
    return LayerTable.from_csv(text, path)


def training_dag(table: LayerTable, bandwidth_bps: float, startup_us: float = 0.0) -> Dag:
    """The step that data-parallel training repeats: back-propagation, the exchange of gradients, the next forward pass.

      backward/3 ─► backward/2 ─► backward/1 ─────────────┐
         │             │             └─► push/1 ─► forward/1 ─► forward/2 ─► forward/3
         │             └─► push/2 ──────────────────────────────┘              │
         └─► push/3 ───────────────────────────────────────────────────────────┘

    Computing is on one resource, "w0/compute"; gradients go one after the other over one link, "net" (bits per second,
    and µs of start-up for each message). A layer without parameters pushes nothing.
    """
    rows = table.rows
    ops: list[Op] = []
    after: tuple[str, ...] = ()
    for row in reversed(rows):
        ops.append(Op(f"backward/{row.name}", COMPUTE, after, row.backward_us))
        after = (f"backward/{row.name}",)
        if row.parameter_bytes > 0:
            ops.append(Op(f"push/{row.name}", LINK, after, None, row.parameter_bytes))
    # `after` is the last op of back-propagation, backward/<first>: the forward pass starts behind it.
    for row in rows:
        own = (f"push/{row.name}",) if row.parameter_bytes > 0 else ()
        ops.append(Op(f"forward/{row.name}", COMPUTE, (*own, *after), row.forward_us))
        after = (f"forward/{row.name}",)
    return Dag(_resources(bandwidth_bps, startup_us), ops)


def forward_dag(table: LayerTable, bandwidth_bps: float, startup_us: float = 0.0) -> Dag:
    """The forward pass of a worker that pulls all parameters first: recv/<layer> ─► forward/<layer> ─► forward/<next>."""
    ops: list[Op] = []
    after: tuple[str, ...] = ()
    for row in table.rows:
        own: tuple[str, ...] = ()
        if row.parameter_bytes > 0:
            ops.append(Op(f"recv/{row.name}", LINK, (), None, row.parameter_bytes))
            own = (f"recv/{row.name}",)
        ops.append(Op(f"forward/{row.name}", COMPUTE, (*own, *after), row.forward_us))
        after = (f"forward/{row.name}",)
    return Dag(_resources(bandwidth_bps, startup_us), ops)


def _resources(bandwidth_bps: float, startup_us: float) -> list[Resource]:
    return [Resource(COMPUTE, "compute"), Resource(LINK, "link", bandwidth_bps, startup_us)]


def _check(row: Any, position: int) -> Layer:
    if not isinstance(row, Layer):
        raise LayerError(f"row {position} of the layer table is {show(row)}; give a Layer")
    name = _checks.name(row.name, f"the name in row {position} of the layer table", LayerError)
    forward_us = _checks.number(row.forward_us, f"the forward_us of layer {show(name)}", LayerError)
    backward_us = _checks.number(row.backward_us, f"the backward_us of layer {show(name)}", LayerError)
    size = row.parameter_bytes
    if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= MAX_SIZE_BYTES:
        raise LayerError(
            f"the parameter_bytes of layer {show(name)} are {show(size)}; give a whole number, at most 2^63 - 1"
        )
    return Layer(name, forward_us, backward_us, size)


def _number(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise LayerError(f"{what} is {show(text)}; give a number") from None
    return _checks.number(value, what, LayerError)


def _whole(text: str, what: str) -> int:
    # Not int(): it takes digits of every script and underscores, and thousands of them.
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise LayerError(f"{what} is {show(text)}; give a whole number of bytes")
    return int(text)
