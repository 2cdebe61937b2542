"""Connections of which only one end is left: what waits at them fails, as it does when a task is lost."""

import subprocess
import time

import pytest

from tfsched.bench.testbed import Testbed, netns_available

from .cluster import Cluster, TaskError, cut_network, wait_until
from .test_mirrored import mirrored

pytestmark = pytest.mark.timeout(300)
_ASK_S = 2


def port_of(cluster, name):
    return int(cluster.target(name).rpartition(":")[2])


def forget(testbed, cluster, name, client):
    """``name`` gives up what ``client`` has connected to its server, and the network is down: ``client`` is not told."""
    end = f"dst {testbed.address(client)} and sport = :{port_of(cluster, name)}"
    command = ["ip", "netns", "exec", testbed.namespace(name), "ss", "--kill", "--no-header", "--tcp", *end.split()]
    killed = []

    def kill(_):
        killed.append(subprocess.run(command, check=True, timeout=20, capture_output=True, text=True).stdout)

    cut_network(testbed, [client], meanwhile=kill)
    assert killed[0].strip(), f"{name} has no connection from {client}, or this kernel cannot close it"


@pytest.mark.parametrize("options", [None, {}, {"barrier": False}], ids=["stock options", "ordered", "across"])
def test_a_step_that_waits_at_half_a_connection_fails(nursery, options):
    """ps0 waits for worker0's tensor."""
    available, reason = netns_available()
    if not available:
        pytest.skip(reason)
    names = ["ps0", "worker0", "worker1"]
    environment = {name: {"TFSCHED_KEEPALIVE_S": str(_ASK_S)} for name in names}
    with (
        Testbed(names) as testbed,
        Cluster(workers=2, nursery=nursery, testbed=testbed, environment=environment) as cluster,
    ):
        pending = cluster.submit("worker1", "half_open.wait_for_another_worker", options=options)
        port = port_of(cluster, "worker0")
        wait_until(lambda: cluster.call("ps0", "half_open.questions", port=port), 30, "a connection")
        wait_until(lambda: cluster.call("worker0", "half_open.began"), 30, "a step that waits")
        time.sleep(1)  # until ps0's part has begun, too; if it has not, the test proves nothing and passes
        forget(testbed, cluster, "worker0", "ps0")
        name, message = pending.result(60)
        assert name == "UnavailableError", message


@pytest.mark.parametrize("seconds", [None, 3, 0])
def test_connections_to_other_tasks_ask(nursery, seconds):
    """Also those to a stock task; 0 leaves them as gRPC makes them."""
    environment = {} if seconds is None else {"worker1": {"TFSCHED_KEEPALIVE_S": str(seconds)}}
    with Cluster(workers=2, nursery=nursery, environment=environment, protocols={"ps0": "grpc"}) as cluster:
        pending = cluster.submit("worker1", "half_open.wait_for_another_worker", options={})
        wanted = {10 if seconds is None else seconds}

        def asked():
            found = [
                one
                for name in ("ps0", "worker0")
                for one in cluster.call("worker1", "half_open.questions", port=port_of(cluster, name))
            ]
            assert not pending.done(), pending.result(1)
            return found and set(found) == wanted

        wait_until(asked, 30, f"connections that ask after {wanted} s")


@pytest.mark.parametrize("options", [None, {}], ids=["stock options", "ordered"])
def test_a_member_of_a_group_that_is_cut_off_is_given_up(nursery, options):
    """Nobody else would: the sessions' cluster has no coordination service, and TCP waits for a quarter of an hour."""
    available, reason = netns_available()
    if not available:
        pytest.skip(reason)
    with Testbed(["worker0", "worker1"]) as testbed, mirrored(nursery, testbed=testbed) as cluster:
        waiting = cluster.submit("worker0", "session_collectives.train", options=options, steps=4)
        cluster.call("worker1", "session_collectives.train", options=options, steps=3)
        assert not waiting.done()
        cut_network(testbed, ["worker1"], 0, up=False)
        with pytest.raises(TaskError) as caught:
            waiting.result(60)
        assert caught.value.kind == "UnavailableError"
        assert "/job:worker/replica:0/task:1" in caught.value.message


def test_only_connections_to_members_of_a_group_are_given_up(nursery):
    with mirrored(nursery) as cluster, Cluster(workers=2, nursery=nursery) as servers:
        pending = [
            cluster.submit(name, "session_collectives.train", options={}, steps=steps)
            for name, steps in (("worker0", 4), ("worker1", 3))
        ]
        pending[1].result(60)
        port = port_of(cluster, "worker1")

        def asked():  # a new connection is found within seconds
            found = [cluster.call("worker0", f"half_open.{what}", port=port) for what in ("questions", "given_up_after_s")]
            return [set(one) for one in found] == [{2}, {8}]

        wait_until(asked, 30, "connections that are given up")
        servers.submit("worker1", "half_open.wait_for_another_worker", options={})
        port = port_of(servers, "ps0")
        wait_until(lambda: servers.call("worker1", "half_open.questions", port=port), 30, "a connection")
        assert set(servers.call("worker1", "half_open.given_up_after_s", port=port)) == {0}
