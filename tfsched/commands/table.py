"""All commands, and what the help says of each."""

from __future__ import annotations

from typing import NamedTuple


class Command(NamedTuple):
    """What the help says of a command.

    Attributes:
      summary: what it does, to follow its name.
      example: a command line.
      usage: its arguments beside flags; "" for none.
    """

    summary: str
    example: str
    usage: str = ""


# Each is a module of tfsched.commands with define(flags) and run(flags, arguments) -> exit code.
COMMANDS = {
    "doctor": Command("checks that tfsched works on this machine, line by line, with the remedy", "tfsched doctor"),
    "run": Command(
        "runs an unmodified program with tfsched, alone or as the processes of a local cluster",
        "tfsched run --policy bytescheduler --num_processes 2 train.py --epochs 3",
        "(FILE | -m MODULE) [program's arguments]",
    ),
    "bench": Command(
        "trains a model on a cluster of this machine under several settings and compares them",
        "tfsched bench --model mlp24 --settings vanilla,tio --bandwidth 1gbit --steps 10",
    ),
    "trace": Command(
        "records step traces of a script or of a bench model",
        "tfsched trace --script train.py --steps 5 --out trace.json.gz -- --epochs 1",
        "[-- script's arguments]",
    ),
    "order": Command(
        "turns a trace, a DAG or a model into a plan",
        "tfsched order trace.json.gz --algorithm tao --plan plan.json",
        "[FILE]",
    ),
    "explain": Command(
        "says why an order is what it is, and what a step waits for",
        "tfsched explain trace.json.gz --algorithm tao",
        "[FILE]",
    ),
    "simulate": Command(
        "predicts a model's steps on a described cluster, under several methods",
        "tfsched simulate trace.json.gz --bandwidth 10gbit --workers 4",
        "[FILE]",
    ),
    "sweep": Command(
        "simulates over bandwidth, workers and methods: table, CSV, plot",
        "tfsched sweep trace.json.gz --bandwidth 1gbit,10gbit --workers 1,4",
        "[FILE]",
    ),
    "tune": Command(
        "searches partition, credit and policy for a model on a described cluster",
        "tfsched tune trace.json.gz --bandwidth 10gbit --workers 4",
        "[FILE]",
    ),
    "report": Command(
        "makes one page of a directory's benches, traces, DAGs and sweeps", "tfsched report results", "DIRECTORY"
    ),
    "timeline": Command("draws a trace for Perfetto", "tfsched timeline trace.json.gz --out timeline.json", "TRACE"),
    "top": Command("shows what running tasks do, again and again", "tfsched top 127.0.0.1:7000", "HOST:PORT..."),
    "completion": Command(
        "prints what makes a shell complete commands and flags", "source <(tfsched completion bash)", "bash|zsh"
    ),
}
