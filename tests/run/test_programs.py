"""Programs as TensorFlow's tutorials describe them, none of which knows of tfsched, go through its scheduler."""

from __future__ import annotations

import pathlib
import re

import pytest

PROGRAMS = pathlib.Path(__file__).with_name("programs")
LIMIT_S = 110
# As tfsched writes it, or as the handlers of a program's own logging do.
SUMMARY = r"\[(\S+)\] (?:tfsched INFO: |INFO:tfsched:)summary: (.*)"
pytestmark = pytest.mark.timeout(2 * LIMIT_S)


def numbers(pattern, text):
    return [float(number.replace(",", "")) for number in re.findall(pattern, text)]


def losses(text):
    return [[float(one) for one in found.split()] for found in re.findall(r"loss ((?:-?\d+\.\d+ ?)+)", text)]


def test_no_program_mentions_tfsched():
    programs = sorted(PROGRAMS.glob("*.py"))
    assert len(programs) == 4 and not any("tfsched" in path.read_text() for path in programs)


def test_keras_fit_on_several_workers(start):
    done = start("run", "--policy=p3", "--num_processes=2", PROGRAMS / "multi_worker_keras.py").wait(LIMIT_S)
    assert done.code == 0, done.err[-3000:]
    begin, end = losses(done.out)[-1]
    assert end < begin and f"[worker-1] worker 1 of 2: loss {begin:.4f} {end:.4f}" in done.out
    for name in ("worker-0", "worker-1"):
        assert f"[{name}] tfsched INFO: scheduling is on: ordering=tio (default), policy=p3 (--policy)" in done.err
        summary = re.search(rf"\[{name}\] tfsched INFO: summary: .*all-reduces exchanged as .*", done.err)
        assert summary, done.err[-3000:]
        assert numbers(r"([\d,]+) tensors were all-reduced", summary[0])[0] >= 16  # of 16 steps


def test_a_custom_loop_on_several_workers_across_the_barrier_and_with_stock_tensorflow(start, tmp_path):
    program = PROGRAMS / "multi_worker_custom_loop.py"
    stock = start("run", "--num_processes=2", program, env={"TFSCHED_LIBRARY": str(tmp_path / "none.so")})
    done = start("run", "--num_processes=2", program, env={"TFSCHED_BARRIER": "0"}).wait(LIMIT_S)
    stock.wait(LIMIT_S)
    assert done.code == 0 and stock.code == 0, done.err[-3000:] + stock.err[-3000:]
    assert "barrier=False (TFSCHED_BARRIER)" in done.err
    assert len(re.findall(r"[\d,]+ tensors were all-reduced", done.err)) == 2, done.err[-3000:]
    assert stock.err.count("this program runs as with stock TensorFlow: tfsched's native library is not at ") == 2
    assert "summary" not in stock.err
    # Two workers add in one order: the same bits.
    assert sorted(done.out.splitlines()) == sorted(stock.out.splitlines())
    told = losses(done.out)
    assert len(told) == 4 and min(told[-1]) < told[0][0]


def test_a_coordinator_and_its_cluster(start):
    done = start("run", "--ps=1", "--workers=1", "--chief", PROGRAMS / "parameter_server.py").wait(LIMIT_S)
    assert done.code == 0, done.err[-3000:]
    (begin,), (end,) = losses(done.out)
    assert end < begin
    summaries = dict(re.findall(SUMMARY, done.err))
    assert set(summaries) == {"ps-0", "worker-0", "chief-0"}
    # 16 steps pull four variables, though not those that went ahead.
    assert numbers(r"([\d,]+) ordered transfers", summaries["ps-0"])[0] >= 16, done.err[-3000:]
    assert "transfers ordered" in summaries["worker-0"]


def test_a_session_of_a_v1_trainer(start):
    done = start("run", "--ps=1", "--partition_bytes=8192", PROGRAMS / "v1_trainer.py").wait(LIMIT_S)
    assert done.code == 0, done.err[-3000:]
    begin, end = losses(done.out)[0]
    assert end < begin and "20 steps" in done.out
    summaries = dict(re.findall(SUMMARY, done.err))
    assert numbers(r"([\d,]+) ordered transfers", summaries["ps-0"])[0] >= 60
    assert re.search(r"\d transfers ordered, 3 of them in 6 chunks", summaries["worker-0"]), summaries
