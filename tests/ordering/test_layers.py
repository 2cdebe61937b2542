"""Layer tables: the CSV format, its mistakes, and the DAGs against closed forms."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfsched._rules import SHARD_BYTES
from tfsched.ordering import list_schedule
from tfsched.ordering.layers import Layer, LayerError, LayerTable, forward_dag, read_csv, training_dag

layers = st.tuples(st.floats(0, 1e6, allow_subnormal=False), st.floats(0, 1e6, allow_subnormal=False), st.integers(0, 10**8))
tables = st.lists(layers, min_size=1, max_size=8).map(
    lambda rows: LayerTable(Layer(f"layer,{i}", *row) for i, row in enumerate(rows))
)


@given(tables)
@settings(max_examples=50, deadline=None)
def test_csv_round_trip(table):
    assert LayerTable.from_csv(table.to_csv()) == table


@given(tables)
@settings(max_examples=50, deadline=None)
def test_pulled_in_layer_order_the_forward_pass_is_a_pipeline(table):
    arrived = done = 0.0
    order = {}
    for i, row in enumerate(table):
        if row.parameter_bytes:
            arrived += 5.0 + row.parameter_bytes * 8e6 / 1e9
            order[f"recv/{row.name}"] = float(i)
            done = max(done, arrived)
        done += row.forward_us
    schedule = list_schedule(forward_dag(table, 1e9, 5.0), order)
    assert schedule.makespan_us == pytest.approx(done, rel=1e-9, abs=1e-6)


@given(tables)
@settings(max_examples=50, deadline=None)
def test_the_training_step_has_every_op_once_and_waits_for_back_propagation(table):
    dag = training_dag(table, 1e9, 5.0)
    pushed = [row for row in table if row.parameter_bytes]
    assert len(dag.ops) == 2 * len(table) + len(pushed)
    assert sorted(op.name for op in dag.recvs) == sorted(f"push/{row.name}" for row in pushed)
    schedule = list_schedule(dag, {op.name: 0.0 for op in dag.recvs})
    start = schedule.start_us[f"forward/{table.rows[0].name}"]
    assert start >= table.backward_us * (1 - 1e-9)
    assert schedule.makespan_us >= (table.backward_us + table.forward_us) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("a,b\n1,2", "has the header 'a,b'"),
        ("name,forward_us,backward_us,parameter_bytes", "no rows"),
        ("name,forward_us,backward_us,parameter_bytes\na,1,2", "3 cells"),
        ("name,forward_us,backward_us,parameter_bytes\na,x,2,3", "forward_us in row 1"),
        ("name,forward_us,backward_us,parameter_bytes\na,nan,2,3", "finite"),
        ("name,forward_us,backward_us,parameter_bytes\na,1,-2,3", "of zero or more"),
        ("name,forward_us,backward_us,parameter_bytes\na,1,2,3.5", "whole number"),
        ("name,forward_us,backward_us,parameter_bytes\na,1,2,99999999999999999999", "whole number"),
        ("name,forward_us,backward_us,parameter_bytes\na,1,2,9300000000000000000", "2^63"),
        ("name,forward_us,backward_us,parameter_bytes\na,1,2,3\na,1,2,3", "twice"),
        ('name,forward_us,backward_us,parameter_bytes\n"a,1,2,3', "not CSV"),
    ],
)
def test_a_wrong_table_is_one_sentence(text, words):
    with pytest.raises(LayerError) as caught:
        LayerTable.from_csv(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_may_come_in_any_order_and_comments_are_left_out(tmp_path):
    path = tmp_path / "layers.csv"
    path.write_text("# times of one step\nparameter_bytes,name,backward_us,forward_us\n4,a,2.5,1\n")
    assert read_csv(str(path)).rows == (Layer("a", 1.0, 2.5, 4),)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path):
    with pytest.raises(LayerError, match="cannot be read"):
        read_csv(str(tmp_path / "no.csv"))
    path = tmp_path / "bytes.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LayerError, match="UTF-8"):
        read_csv(str(path))


@given(tables, st.integers(1000, 10**9))
@settings(max_examples=50, deadline=None)
def test_a_split_table_is_the_same_model_in_smaller_parts(table, most_bytes):
    if sum(-(-row.parameter_bytes // most_bytes) for row in table) > 2000:
        most_bytes = 10**6
    parts = table.split(most_bytes)
    assert parts.parameter_bytes == table.parameter_bytes
    assert max(row.parameter_bytes for row in parts) <= most_bytes
    assert parts.forward_us == pytest.approx(table.forward_us)
    schedule = list_schedule(training_dag(parts, 1e9), {})
    for row in table:
        mine = [part.name for part in parts if part.name.partition("#")[0] == row.name]
        made = schedule.start_us[f"backward/{mine[-1]}"] + row.backward_us
        for name in mine:
            if f"push/{name}" in schedule.start_us:
                assert schedule.start_us[f"push/{name}"] >= made * (1 - 1e-9)
                assert schedule.end_us[f"push/{name}"] <= schedule.start_us[f"forward/{mine[-1]}"] * (1 + 1e-9)


def test_a_split_into_too_many_parts_is_refused():
    with pytest.raises(LayerError, match="larger"):
        LayerTable([Layer("a", 1.0, 1.0, 10**9)]).split(10)
    with pytest.raises(LayerError, match="above zero"):
        LayerTable([Layer("a", 1.0, 1.0, 10**9)]).split(0)


@pytest.mark.parametrize("servers", [1, 2, 5])
def test_a_sharded_table_has_a_part_of_each_large_tensor_for_each_server(servers):
    table = LayerTable([Layer("small", 1.0, 2.0, SHARD_BYTES), Layer("large", 3.0, 4.0, SHARD_BYTES + 1)])
    parts = table.sharded(servers)
    assert (parts.parameter_bytes, parts.forward_us) == (table.parameter_bytes, table.forward_us)
    large = [row.parameter_bytes for row in parts if row.name.startswith("large")]
    assert (len(large), len(list(parts))) == (servers, servers + 1)
    assert max(large) - min(large) <= 1
