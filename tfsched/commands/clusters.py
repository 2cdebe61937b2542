"""The cluster and the methods that a simulation is asked for: a YAML file, flags over it, methods with options."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import yaml

from tfsched import ordering
from tfsched.commands.flags import CommandFlags, UsageError
from tfsched.commands.inputs import parse_bandwidth
from tfsched.errors import TfschedError
from tfsched.ordering import Dag
from tfsched.ordering.layers import LayerTable
from tfsched.simulator import Cluster, Method, methods
from tfsched.simulator.cluster import read_yaml

METHODS = "vanilla,fifo,layer,tio,tao"
DEFAULT_BANDWIDTH_BPS = 10e9
# The keys of a cluster whose values are words.
TEXTS = ("architecture", "placement", "straggler", "updates")


def define(flags: CommandFlags, several: bool) -> None:
    """The flags of the cluster and of the methods to compare; with `several`, bandwidth and workers are lists."""
    define_cluster(flags, several)
    flags.strings(
        "method", METHODS, "methods to compare: presets or orderings, with options as in tio:credit_bytes=4000000; or all"
    )


def define_cluster(flags: CommandFlags, several: bool) -> None:
    """The flags of the cluster and of what is simulated on it, without the methods."""
    flags.string("cluster", "", "YAML file that describes the cluster (docs/cluster-format.md); flags win over it")
    if several:
        flags.strings("bandwidth", "1gbit,2.5gbit,5gbit,10gbit,25gbit", "of every NIC, each way; a list")
        flags.strings("workers", "1,4,16", "workers; a list")
        flags.string("servers", "", 'parameter servers, or "workers" for as many as workers; empty: the file\'s, or 1')
    else:
        flags.string(
            "bandwidth", "", 'of every NIC, each way, as "10gbit" or "1e9"; empty: the file\'s, the DAG\'s, or 10gbit'
        )
        flags.integer("workers", 0, "workers; 0: the file's, or 1", lower=0)
        flags.string("servers", "", 'parameter servers, or "workers" for as many as workers; empty: the file\'s, or 1')
        flags.choice(
            "placement",
            "file",
            ["file", "round-robin", "balanced"],
            "parameters to servers in turn, or the same bytes on each, large ones in shards (tfsched.placement); file: the "
            "file's, or in turn. A trace names its own servers",
        )
    flags.choice(
        "architecture",
        "file",
        ["file", "ps", "allreduce", "ring"],
        "ps; allreduce, as tfsched does it; ring, all-reduce by its formula; file: the file's, or ps",
    )
    flags.number("startup_us", -1.0, "start-up cost of each message in µs; below zero: the file's, or 0")
    flags.choice("barrier", "file", ["file", "on", "off"], "whether a step ends with its updates; file: the file's, or on")
    flags.strings("set", "", "other keys of the cluster file, as key=value,key=value")
    flags.integer("iterations", 10, "iterations to simulate", lower=1)
    flags.integer("warmup", 2, "iterations before them that are not counted", lower=0)
    flags.integer("seed", 0, "of random orders and stragglers", lower=0)
    flags.string("plugin", "", "Python file that registers more orderings")


def base_cluster(flags: CommandFlags) -> Cluster:
    """The cluster of the file (or the default one), with every flag that may not be a list applied."""
    cluster = read_cluster(flags.cluster) if flags.cluster else Cluster(bandwidth_bps=DEFAULT_BANDWIDTH_BPS)
    changes: dict[str, Any] = {}
    if flags.architecture != "file":
        changes["architecture"] = flags.architecture
    if flags.startup_us >= 0:
        changes["startup_us"] = flags.startup_us
    if flags.barrier != "file":
        changes["barrier"] = flags.barrier == "on"
    known = {field.name for field in dataclasses.fields(Cluster)}
    for item in settings(flags.set):
        key, equals, text = item.partition("=")
        if not equals or key not in known:
            raise UsageError(f"--set got {item!r}; give key=value with a key of {', '.join(sorted(known))}.")
        changes[key] = number_of(key, _value(text))
    if any(isinstance(value, list) for value in changes.values()):
        changes.setdefault("workers", _first_workers(flags) or cluster.workers)  # a list has one value for each of them
    return replace(cluster, changes)


def _first_workers(flags: CommandFlags) -> int:
    """The number of workers that --workers names, or the first of several; 0 if it is not given or none."""
    text = str(flags.workers[0] if isinstance(flags.workers, list) and flags.workers else flags.workers)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def settings(items: Sequence[str]) -> list[str]:
    """The items of --set: a flag's list ends at every comma, and a list in it, as in key=[1,2], does not."""
    result: list[str] = []
    for item in items:
        if result and result[-1].count("[") > result[-1].count("]"):
            result[-1] += f",{item}"
        else:
            result.append(item)
    return result


def read_cluster(path: str) -> Cluster:
    """The cluster of a YAML file. Bandwidths may be written as "10gbit", and numbers as 1e9, which YAML takes for text."""
    data = read_yaml(path)
    if isinstance(data, dict):
        data = {key: number_of(key, value) for key, value in data.items()}
    return Cluster.from_mapping(data, f"the cluster {path}")


def number_of(key: Any, value: Any) -> Any:
    """The number that a text stands for, where the key wants one; anything else as it is, for Cluster to judge."""
    if isinstance(value, list):
        return [number_of(key, one) for one in value]
    if not isinstance(value, str) or key in TEXTS:
        return value
    if isinstance(key, str) and key.endswith("_bps"):
        return parse_bandwidth(value)
    try:
        # int() alone would take thousands of digits, and refuse 1e9.
        return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else float(value)
    except ValueError:
        return value


def replace(cluster: Cluster, changes: dict[str, Any]) -> Cluster:
    """The cluster with some fields changed. Raises what Cluster raises for a bad value."""
    return cluster.replace(**changes) if changes else cluster


def _value(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text


def one_cluster(flags: CommandFlags, source: Any = None) -> Cluster:
    """The cluster of ``tfsched simulate``. Without a bandwidth or a file it has the bandwidth of the source's own links."""
    cluster = base_cluster(flags)
    changes: dict[str, Any] = {}
    bandwidth_bps = parse_bandwidth(flags.bandwidth)
    if bandwidth_bps is None and not flags.cluster:
        bandwidth_bps = bandwidth_of(source)
    if bandwidth_bps is not None:
        changes["bandwidth_bps"] = bandwidth_bps
    if flags.workers:
        changes["workers"] = flags.workers
    workers = changes.get("workers", cluster.workers)
    if flags.servers:
        changes["servers"] = servers_of(flags.servers, workers)
    if flags.placement != "file":
        changes["placement"] = flags.placement.replace("-", "_")
    return replace(cluster, changes)


def placed(flags: CommandFlags, cluster: Cluster, source: Any) -> Any:
    """The source with the shards that --placement=balanced makes of a table's large tensors."""
    cut = flags.placement == "balanced" and not flags.split_bytes and isinstance(source, LayerTable)
    return source.sharded(cluster.servers) if cut else source


def bandwidth_of(source: Any) -> float | None:
    """Bits per second of the busiest link of a DAG or trace; None where it does not say."""
    if source is None or isinstance(source, LayerTable):
        return None
    dag: Dag = source if isinstance(source, Dag) else source.dag()
    times_us = dag.times_us()
    moved: dict[str, tuple[int, float]] = {}
    for i in dag.recv_indices:
        op = dag.ops[i]
        if op.size_bytes:
            size_bytes, time_us = moved.get(op.resource, (0, 0.0))
            moved[op.resource] = (size_bytes + op.size_bytes, time_us + times_us[i])
    if not moved:
        return None
    link = max(moved, key=lambda name: moved[name])
    stated = dag.resources[link].bandwidth_bps
    if stated is not None:
        return stated
    size_bytes, time_us = moved[link]
    found = size_bytes * 8e6 / time_us if time_us > 0 else 0.0
    return found if 1e3 <= found <= 1e15 else None


def servers_of(text: str, workers: int) -> int:
    """The number that --servers names."""
    if text == "workers":
        return workers
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise UsageError(f'--servers is {text!r}; give a number above zero, or "workers".')
    return int(text)


def chosen_methods(flags: CommandFlags) -> dict[str, Method]:
    """The methods of --method by the names the user gave them; loads --plugin first."""
    if flags.plugin:
        ordering.load_plugin(flags.plugin)
    known = methods()
    if not flags.method:
        raise UsageError(f"--method is empty; give one of {', '.join(known)}.")
    # `exact` searches for seconds to minutes; whoever wants it names it.
    wanted = [name for name in known if name != "exact"] if flags.method == ["all"] else flags.method
    result: dict[str, Method] = {}
    for text in wanted:
        name, *options = text.split(":")
        if name not in known:
            raise UsageError(f"method {name!r} is unknown; choose from {', '.join(known)}, or register it with --plugin.")
        result[text] = _with_options(known[name], text, options)
    return result


def _with_options(method: Method, text: str, options: list[str]) -> Method:
    fields = {field.name for field in dataclasses.fields(Method)} - {"name"}
    changes: dict[str, Any] = {"name": text} if options else {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or key not in fields:
            raise UsageError(
                f"method {text!r} has the option {option!r}; give key=value with one of {', '.join(sorted(fields))}."
            )
        changes[key] = _value(value)
    if not changes:
        return method
    try:
        return dataclasses.replace(method, **changes)
    except TypeError as error:
        raise TfschedError(f"method {text!r} cannot be used ({error}); check its options.") from None
