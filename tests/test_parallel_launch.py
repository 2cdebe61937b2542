"""Which worker a process is, as its environment says; and one sentence where that says nothing sensible."""

import json

import pytest

from tfsched.errors import TfschedError
from tfsched.parallel.launch import Place, from_environment

ADDRESSES = "one:1,one:2,two:1"


def tf_config(cluster, job, index):
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})}


@pytest.mark.parametrize(
    ("environment", "rank", "neighbours"),
    [
        (tf_config({"worker": ["one:1", "one:2", "two:1"]}, "worker", 1), 1, [0, 1]),
        (tf_config({"worker": ["one:2", "two:1"], "chief": ["one:1"], "evaluator": ["x:1"]}, "worker", "1"), 2, [2]),
        (tf_config({"worker": ["one:2", "two:1"], "chief": ["one:1"]}, "chief", 0), 0, [0, 1]),
        ({"TFSCHED_ADDRESSES": ADDRESSES, "TFSCHED_RANK": "2", "OMPI_COMM_WORLD_RANK": "0"}, 2, [2]),
        ({"TFSCHED_ADDRESSES": ADDRESSES, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, 1, [0, 1]),
        ({"TFSCHED_ADDRESSES": ADDRESSES, "SLURM_PROCID": "0", "SLURM_NTASKS": "9"}, 0, [0, 1]),
    ],
)
def test_place(environment, rank, neighbours):
    place = from_environment(environment)
    assert place.addresses == ADDRESSES.split(",")
    assert (place.rank, place.neighbours) == (rank, neighbours)


@pytest.mark.parametrize("environment", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}, {"OMPI_COMM_WORLD_SIZE": "1"}])
def test_alone(environment):
    assert from_environment(environment) is None


def test_one_of_one():
    assert from_environment(tf_config({"worker": ["one:1"]}, "worker", 0)) == Place({"worker": ["one:1"]}, "worker", 0)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"TF_CONFIG": "cluster"}, "is no JSON"),
        ({"TF_CONFIG": "[]"}, "give an object"),
        (tf_config({"worker": "one:1"}, "worker", 0), "give a list of addresses"),
        (tf_config({"worker": ["one"]}, "worker", 0), "give a list of addresses"),
        (tf_config({"worker": ["one:1"], "ps": ["two:1"]}, "worker", 0), "no parameter servers"),
        (tf_config({"worker": ["one:1"]}, "evaluator", 0), "give one of job chief or worker"),
        (tf_config({"worker": ["one:1"]}, "worker", 1), "job worker has 1 tasks"),
        (tf_config({"worker": ["one:1"]}, "worker", -1), "job worker has 1 tasks"),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"}, "set TFSCHED_ADDRESSES to the address"),
        ({"TFSCHED_ADDRESSES": ADDRESSES}, "set TFSCHED_RANK"),
        ({"TFSCHED_ADDRESSES": "one:1,two", "TFSCHED_RANK": "0"}, "has 'two'; give host:port"),
        ({"TFSCHED_ADDRESSES": ADDRESSES, "TFSCHED_RANK": "3"}, "has 3 workers, counted from 0"),
        ({"TFSCHED_ADDRESSES": ADDRESSES, "TFSCHED_RANK": "0", "TFSCHED_SIZE": "2"}, "has 3 addresses, but TFSCHED_SIZE"),
    ],
)
def test_what_is_said_to_a_mistake(environment, said):
    with pytest.raises(TfschedError) as caught:
        from_environment(environment)
    assert said in str(caught.value)
