"""What the offline commands work on: a file (DAG, trace, RunMetadata or layer table) or a built-in model."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tfsched.commands.files import FileError, parse_json, read_bytes
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.quiet import import_tensorflow
from tfsched.ordering import Dag, with_link
from tfsched.ordering.layers import LayerTable, forward_dag, training_dag
from tfsched.simulator import profiles

if TYPE_CHECKING:
    from tfsched.simulator import Workload

KINDS = "a DAG JSON, a trace, a RunMetadata proto or a layer table"
DEFAULT_BANDWIDTH_BPS = 10e9


def define(flags: CommandFlags) -> None:
    """The flags that say what is ordered or simulated."""
    flags.string("model", "", f"instead of a file, a built-in model: {', '.join(profiles.names())}")
    flags.integer("batch", 0, "of a built-in model: samples a worker and step; 0: the model's own", lower=0)
    flags.number(
        "flops", profiles.FLOPS_PER_S, "of a built-in model: operations per second that a worker reaches", lower=1.0
    )
    flags.choice("phase", "train", ["train", "forward"], "of a model or layer table: a training step or a forward pass")
    flags.integer(
        "split_bytes", 0, "of a model or layer table: cut tensors into parts that are placed by themselves; 0: no", lower=0
    )
    flags.string("receiver", "", "of a trace: the task whose step it is; empty: the one that computes most")


def read_source(flags: CommandFlags, arguments: list[str]) -> Any:
    """The Dag, StepTrace or LayerTable that the command line names. Raises UsageError if it names none or two."""
    source = _read_source(flags, arguments)
    return source.split(flags.split_bytes) if flags.split_bytes and isinstance(source, LayerTable) else source


def _read_source(flags: CommandFlags, arguments: list[str]) -> Any:
    command = f"tfsched {flags.command}"
    if flags.model:
        if arguments:
            raise UsageError(f"{command} got --model={flags.model!r} and {' '.join(arguments)!r}; give one of the two.")
        return profiles.load(flags.model, flags.batch or None, flags.flops)
    if len(arguments) != 1:
        got = f"{len(arguments)}: {' '.join(arguments)}" if arguments else "none"
        raise UsageError(f"{command} takes one file ({KINDS}) or --model, and got {got}")
    return read_file(arguments[0])


def read_file(path: str) -> Any:
    """A Dag, a StepTrace or a LayerTable, by what the file holds. Raises FileError, DagError, LayerError or TraceError."""
    content = read_bytes(path)
    start = content[:64].lstrip()
    if start[:1] in (b"{", b"["):
        return from_json(parse_json(content, path))
    if path.removesuffix(".gz").endswith((".csv", ".CSV")) or b"forward_us" in content[:4096]:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise FileError(f"{path} is not UTF-8 text; give a CSV file.") from None
        return LayerTable.from_csv(text, path)
    if path.removesuffix(".gz").endswith(".json") or not content:
        return from_json(parse_json(content, path))  # says what is wrong with it
    return read_run_metadata(content, path)


def from_json(data: Any) -> Any:
    """A Dag or a StepTrace, by the object's "format"."""
    kind = data.get("format") if isinstance(data, dict) else None
    if isinstance(kind, str) and kind.startswith("tfsched-trace/"):
        import_tensorflow()
        from tfsched.tracing import StepTrace

        return StepTrace.from_json(data)
    return Dag.from_json(data)


def read_run_metadata(content: bytes, path: str) -> Any:
    """The StepTrace of one step's ``tf.compat.v1.RunMetadata`` (binary). Raises FileError."""
    import_tensorflow()
    import tensorflow as tf
    from google.protobuf.message import DecodeError

    from tfsched.tracing.tracer import Recorder

    metadata = tf.compat.v1.RunMetadata()
    try:
        metadata.ParseFromString(content)
        readable = bool(metadata.step_stats.dev_stats)
    except (DecodeError, ValueError, RecursionError):
        readable = False
    if not readable:
        raise FileError(f"{path} is neither JSON, CSV nor a RunMetadata proto with step stats; give {KINDS}.")
    if not metadata.partition_graphs:
        raise FileError(f"{path} has no partition graphs; record it with RunOptions(output_partition_graphs=True) as well.")
    stats = [node for device in metadata.step_stats.dev_stats for node in device.node_stats]
    if not stats:
        raise FileError(f"{path} holds no op times; record it with RunOptions(trace_level=FULL_TRACE).")
    recorder = Recorder()
    try:
        recorder.add(
            metadata,
            min(node.all_start_micros for node in stats),
            max(node.all_start_micros + node.all_end_rel_micros for node in stats),
        )
        return recorder.finish()
    except (KeyError, TypeError, IndexError, UnicodeDecodeError, ValueError) as error:
        raise FileError(f"{path} is a damaged RunMetadata ({type(error).__name__}: {error}); record it again.") from None


def batch_of(flags: CommandFlags) -> int:
    """Samples a worker and step; 0 for a file, which does not say."""
    if not flags.model:
        return 0
    return flags.batch or profiles.default_batch(flags.model)


def dag_of(source: Any, flags: CommandFlags, bandwidth_bps: float | None = None, startup_us: float | None = None) -> Dag:
    """One worker's DAG. A bandwidth or start-up given here replaces that of the DAG's links."""
    if isinstance(source, LayerTable):
        make = forward_dag if flags.phase == "forward" else training_dag
        return make(source, bandwidth_bps or DEFAULT_BANDWIDTH_BPS, startup_us or 0.0)
    dag: Dag = source if isinstance(source, Dag) else source.dag(flags.receiver or None)
    return with_link(dag, bandwidth_bps, startup_us)


def workload_of(source: Any, flags: CommandFlags) -> Workload:
    """What one worker does in a step."""
    from tfsched.simulator import Workload, workload_of_dag, workload_of_trace

    if isinstance(source, LayerTable):
        return Workload.from_layers(source, flags.phase)
    if isinstance(source, Dag):
        return workload_of_dag(source)
    return workload_of_trace(source, worker=flags.receiver or None)


def parse_bandwidth(text: str) -> float | None:
    """Bits per second of "10gbit" or "1e9"; None for "". Raises UsageError for one that is not a finite number."""
    if not text:
        return None
    from tfsched.bench.links import parse_bandwidth as parse

    bandwidth_bps = parse(text)
    if bandwidth_bps is None or not math.isfinite(bandwidth_bps):
        raise UsageError(f"bandwidth {text!r} has no limit; give one, as in 10gbit or 1e10 (bits per second).")
    return bandwidth_bps
