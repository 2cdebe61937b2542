"""What tfsched costs a tf.function that needs nothing: ``python benchmarks/function_overhead.py [--calls 1000]``.

A small local function, called with scheduling enabled and disabled in turns, block by block in one process. No task but this
one, so the pass has nothing to do and the calls should take what they take without it; the traced graph has to be the same.

Printed: median µs of a call over the blocks for both, the median of the blocks' own ratios (each block against its neighbour,
so that a slow phase of the machine meets both), and whether the graphs are equal. Exit code 1 if they are not.
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

import tfsched


def make_function() -> tf.types.experimental.PolymorphicFunction:
    """A training step of a small layer, with a variable and an update of it."""
    weights = tf.Variable(tf.ones([64, 64]), name="weights")

    @tf.function
    def step(inputs: tf.Tensor) -> tf.Tensor:
        outputs = tf.nn.relu(tf.linalg.matmul(inputs, weights))
        weights.assign_sub(1e-6 * tf.linalg.matmul(inputs, outputs, transpose_a=True))
        return tf.reduce_mean(outputs)

    return step


def traced_graph(scheduled: bool) -> bytes:
    """The graph of a function traced now, without the numbers that TensorFlow gives to every function."""
    switch(scheduled)
    with tf.init_scope():
        step = make_function()
    graph = step.get_concrete_function(tf.TensorSpec([64, 64])).graph.as_graph_def()
    return graph.SerializeToString(deterministic=True)


def switch(scheduled: bool) -> None:
    """Enables or disables scheduling."""
    if scheduled:
        tfsched.enable()
    else:
        tfsched.disable()


def time_block(step: tf.types.experimental.PolymorphicFunction, inputs: tf.Tensor, calls: int) -> float:
    """Seconds of a call, of `calls` one after another."""
    begin_s = time.perf_counter()
    for _ in range(calls):
        step(inputs)
    return (time.perf_counter() - begin_s) / calls


def main() -> int:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description="What tfsched costs a tf.function that needs nothing.")
    parser.add_argument("--calls", type=int, default=1000, help="calls in a block")
    parser.add_argument("--blocks", type=int, default=40, help="blocks of each")
    args = parser.parse_args()
    if args.calls < 1 or args.blocks < 1:
        parser.error("give at least one call and one block")
    step, inputs = make_function(), tf.ones([64, 64])
    never_s = [time_block(step, inputs, args.calls) for _ in range(2)][-1]  # tfsched has touched nothing yet
    stock_graph = traced_graph(False)
    blocks_s: dict[bool, list[float]] = {False: [], True: []}
    for scheduled in (False, True):  # warm: each config is an instantiation of its own
        switch(scheduled)
        time_block(step, inputs, args.calls)
    for number in range(args.blocks):
        # Which of the two comes first alternates.
        for scheduled in (False, True) if number % 2 else (True, False):
            switch(scheduled)
            blocks_s[scheduled].append(time_block(step, inputs, args.calls))
    disabled_us, enabled_us = (float(np.median(blocks_s[scheduled])) * 1e6 for scheduled in (False, True))
    ratios = np.array(blocks_s[True]) / np.array(blocks_s[False])
    equal = traced_graph(True) == stock_graph
    print(f"median of {args.blocks} blocks of {args.calls} calls of a local tf.function, interleaved\n")
    print("| | µs a call |\n|---|---|")
    print(f"| before the first enable() (one block) | {never_s * 1e6:.1f} |")
    print(f"| disabled | {disabled_us:.1f} |\n| enabled | {enabled_us:.1f} |\n")
    print(f"enabled by disabled: {enabled_us / disabled_us:.4f} (medians), {np.median(ratios):.4f} (median of neighbours)")
    print(f"traced graph: {'unchanged' if equal else 'CHANGED'}")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
