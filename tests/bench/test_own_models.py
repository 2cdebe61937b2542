"""A model of the user's own: what is refused, in one sentence each, and that one is trained on a real cluster."""

from __future__ import annotations

import json
import pathlib

import pytest

from tfsched import cli
from tfsched.bench import BenchError, graphs
from tfsched.bench.models import find_model

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = "examples/bench_model.py:build"


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(
    ("text", "name", "sentence"),
    [
        (None, "build", "does not exist: give the path of a Python file"),
        ("", "", "does not name a function: give FILE.py:FUNCTION"),
        ("def other(keras): pass", "build", "has no function 'build': name one of its functions (other)"),
        ("build = 3", "build", "has no function 'build': name one of its functions (none)"),
        ("import no_such_module", "build", "cannot be imported (ModuleNotFoundError: No module named 'no_such_module')"),
        ("def build(keras): return keras.layers.Denser(3)", "build", "build(keras) failed (AttributeError: "),
        ("def build(): pass", "build", "build(keras) failed (TypeError: "),
        ("def build(keras): return 5", "build", "build(keras) returned int: return a Keras model"),
        ("def build(keras): return keras.Sequential([keras.layers.Dense(3)])", "build", "its inputs are not known"),
        ("SHAPE = (None, 4)", "build", "one sample has the shape (None, 4): give keras.layers.Input a shape without None"),
        ("def build(keras): return keras.Sequential([keras.layers.Input((3,))])", "build", "it has no variable to train"),
        ("TWO = True", "build", "it has 2 inputs and 1 outputs: return a model with one of each"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_sentence(text, name, sentence, tmp_path, capsys):
    file = tmp_path / "my_model.py"
    if text == "SHAPE = (None, 4)":
        text = "def build(keras): return keras.Sequential([keras.layers.Input((None, 4)), keras.layers.Dense(3)])"
    if text == "TWO = True":
        text = (
            "def build(keras):\n"
            "    a, b = keras.layers.Input((3,)), keras.layers.Input((3,))\n"
            "    return keras.Model([a, b], keras.layers.Dense(2)(keras.layers.Add()([a, b])))\n"
        )
    if text is not None:
        file.write_text(text)
    model = f"{file}:{name}" if name else str(file)
    with pytest.raises(BenchError) as caught:
        find_model(model)
    assert sentence in str(caught.value) and repr(model) in str(caught.value)
    assert cli.run(["bench", "--model", model, "--link", "none"]) == 2
    said = capsys.readouterr().err
    assert len(said.strip().splitlines()) == 1 and sentence in said


def test_the_example_is_a_model_of_the_bench():
    model = find_model(EXAMPLE)
    assert (model.input_shape, model.target_shape) == ((64, 64, 3), ())
    built = graphs.build_step(model, "train", 2, ps=2, workers=1)
    assert len(built.variables) == 8
    # Two convolutions, of 31 x 31 and 15 x 15 places, and two dense layers.
    assert built.variable_bytes == 4 * ((27 + 1) * 32 + (288 + 1) * 64 + (15 * 15 * 64 + 1) * 512 + (512 + 1) * 100)


def test_outputs_may_have_classes_for_each_of_several_places(tmp_path):
    file = tmp_path / "words.py"
    file.write_text(
        "def build(keras):\n"
        "    layers = keras.layers\n"
        "    memory = layers.LSTM(8, return_sequences=True)\n"
        "    return keras.Sequential([layers.Input((7,)), layers.Embedding(50, 8), memory, layers.Dense(50)])\n"
    )
    model = find_model(f"{file}:build")
    assert (model.input_shape, model.target_shape) == ((7,), (7,))
    assert graphs.build_step(model, "train", 2, ps=1, workers=1).variable_bytes > 0


def test_the_example_is_measured(tmp_path):
    result = tmp_path / "result.json"
    arguments = (
        f"--model {EXAMPLE} --settings vanilla,tio --link none --steps 2 --warmup 1 --batch 2 --quiet --json {result}"
    )
    assert cli.run(["bench", "--quiet", *arguments.split()]) == 0
    content = json.loads(result.read_text())
    assert content["model"] == EXAMPLE and "notes" in content
    assert not any("no transfer was ordered" in note for note in content["notes"])
