"""What tfsched costs a tf.function that needs nothing: ``taskset -c 1 python benchmarks/function_overhead.py``.

On one core, for on several it varies by more than is looked for on which of them a function's threads wake up.

A small local function, called in three ways that take turns, block by block in one process: as stock TensorFlow calls it
(what tfsched wraps of TensorFlow is put back), with tfsched disabled, and enabled. There is no task but this one, so the
pass has nothing to do, and calls should take what they take without it; the traced graph has to be the same.

Printed: of each the median µs of a call over the blocks, that by stock's, and the median of the blocks' own ratios to
stock's block of the same turn, so that a slow phase of the machine meets both, with its 95 % interval (bootstrap over the
turns). Blocks are short, so that a turn ends before the machine changes. Exit code 1 if the graphs differ.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

import tfsched

WAYS = ("stock", "disabled", "enabled")
# What a call passes through that tfsched wraps.
_CALLS = ((context.Context, "call_function"),)


def make_function() -> tf.types.experimental.PolymorphicFunction:
    """A training step of a small layer, with a variable and an update of it."""
    weights = tf.Variable(tf.ones([64, 64]), name="weights")

    @tf.function
    def step(inputs: tf.Tensor) -> tf.Tensor:
        outputs = tf.nn.relu(tf.linalg.matmul(inputs, weights))
        weights.assign_sub(1e-6 * tf.linalg.matmul(inputs, outputs, transpose_a=True))
        return tf.reduce_mean(outputs)

    return step


class Ways:
    """Switches between the ways of calling a function."""

    def __init__(self) -> None:
        stock = [getattr(*place) for place in _CALLS]
        tfsched.enable()
        tfsched.disable()
        self._wraps = {False: stock, True: [getattr(*place) for place in _CALLS]}

    def choose(self, way: str) -> None:
        """Has functions called in this way from now on."""
        if way == "enabled":
            tfsched.enable()
        else:
            tfsched.disable()
        for (owner, name), method in zip(_CALLS, self._wraps[way != "stock"], strict=True):
            setattr(owner, name, method)


def traced_graph() -> bytes:
    """The graph of a function that is traced and called now."""
    step = make_function()
    step(tf.ones([64, 64]))
    graph = step.get_concrete_function(tf.TensorSpec([64, 64])).graph.as_graph_def()
    return graph.SerializeToString(deterministic=True)


def time_block(step: tf.types.experimental.PolymorphicFunction, inputs: tf.Tensor, calls: int) -> float:
    """Seconds of a call, of `calls` one after another; a few more before them, for the switch is no part of it."""
    for _ in range(5):
        step(inputs)
    begin_s = time.perf_counter()
    for _ in range(calls):
        step(inputs)
    return (time.perf_counter() - begin_s) / calls


def interval(ratios: np.ndarray) -> tuple[float, float]:
    """Where the median of such ratios lies with a probability of 95 %: the percentile bootstrap."""
    drawn = np.random.default_rng(0).choice(ratios, size=(2000, len(ratios)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return float(low), float(high)


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="What tfsched costs a tf.function that needs nothing.")
    parser.add_argument("--calls", type=int, default=100, help="calls in a block")
    parser.add_argument("--blocks", type=int, default=300, help="blocks of each")
    args = parser.parse_args()
    if args.calls < 1 or args.blocks < 1:
        parser.error("give at least one call and one block")
    step, inputs, ways = make_function(), tf.ones([64, 64]), Ways()
    blocks_s: dict[str, list[float]] = {way: [] for way in WAYS}
    graphs = {}
    for way in WAYS:  # warm: each config is an instantiation of its own
        ways.choose(way)
        graphs[way] = traced_graph()
        time_block(step, inputs, args.calls)
    for number in range(args.blocks):
        for place in range(len(WAYS)):
            way = WAYS[(number + place) % len(WAYS)]
            ways.choose(way)
            blocks_s[way].append(time_block(step, inputs, args.calls))
    stock_us = float(np.median(blocks_s["stock"])) * 1e6
    print(f"{args.blocks} blocks of {args.calls} calls of a local tf.function in each way, in turns\n")
    print("| | median µs a call | by stock's | median of turns | 95 % of it |\n|---|---|---|---|---|")
    for way in WAYS:
        median_us = float(np.median(blocks_s[way])) * 1e6
        turns = np.array(blocks_s[way]) / np.array(blocks_s["stock"])
        low, high = interval(turns)
        of_turns = f"{float(np.median(turns)):.4f} | {low:.4f} to {high:.4f}"
        print(f"| {way} | {median_us:.1f} | {median_us / stock_us:.4f} | {of_turns} |")
    equal = len(set(graphs.values())) == 1
    print(f"\ntraced graph: {'unchanged' if equal else 'CHANGED'}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
