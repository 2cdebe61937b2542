"""A researcher's path: the ordering that the guide prints, in a file of one's own, beside the others everywhere."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from tests.cli.conftest import call

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "offline.md"
METHODS = "vanilla,tio,tao,small-first"
SMALL = ["--iterations", 2, "--warmup", 1]


def ordering_in(path):
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    return next(block for block in blocks if "@ordering.register" in block)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    text = ordering_in(DOCS)
    assert len(text.splitlines()) <= 20
    path = tmp_path_factory.mktemp("mine") / "my_order.py"
    path.write_text(text)
    return path


def test_it_orders_and_is_explained(plugin):
    arguments = ["--model", "resnet50", "--plugin", plugin, "--algorithm", "small-first", "--json"]
    order = call("order", *arguments).json()["order"]
    assert order[:2] == ["push/conv1_conv/kernel", "push/conv1_conv/bias"]
    explained = call("explain", *arguments).json()
    assert [recv["name"] for recv in explained["recvs"]] == order


def test_it_is_in_the_table_and_the_gantt_chart(plugin, tmp_path):
    picture, out = tmp_path / "gantt.png", tmp_path / "out.json"
    answer = call(
        "simulate", "--model", "resnet18", "--plugin", plugin, "--method", METHODS, "--plot", picture, "--out", out, *SMALL
    )
    assert answer.code == 0, answer.err
    assert "small-first" in answer.out
    with_it = picture.read_bytes()
    call("simulate", "--model", "resnet18", "--method", "vanilla,tio,tao", "--plot", picture, "--quiet", *SMALL)
    assert len(picture.read_bytes()) < len(with_it)  # one panel fewer
    medians = {name: method["median_us"] for name, method in json.loads(out.read_text())["methods"].items()}
    assert list(medians) == METHODS.split(",")
    assert medians["tao"] <= medians["small-first"] * (1 + 1e-9)  # needs what the first layers need, not only they


def test_it_is_swept_and_reported(plugin, tmp_path):
    sweep = call(
        "sweep", "--model", "resnet18", "--plugin", plugin, "--method", METHODS, "--bandwidth", "1gbit,10gbit",
        "--workers", "1", "--out", tmp_path / "sweep.json", "--quiet", *SMALL,
    )  # fmt: skip
    assert sweep.code == 0, sweep.err
    report = call("report", tmp_path, "--model", "resnet18", "--plugin", plugin, "--method", METHODS, "--quiet", *SMALL)
    assert report.code == 0, report.err
    assert (tmp_path / "report.html").read_text().count("small-first") >= 1
