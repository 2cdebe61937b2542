"""What a client may make a server's process do: no files of its choice, no limit that stops training, nothing unseen."""

import re

import pytest

from .cluster import Cluster, TaskError

pytestmark = pytest.mark.timeout(240)
PLUGIN = """import pathlib
import tfsched.ordering

pathlib.Path({ran!r}).write_text("ran")


@tfsched.ordering.register("from-a-client")
def order(dag, times_us=None, *, seed=0):
    return {{name: float(number) for number, name in enumerate(recv.name for recv in dag.recvs)}}
"""
PS = "/job:ps/task:0"


@pytest.fixture
def plugin(tmp_path):
    """A plugin's path, and that of a file that exists when it has run."""
    path, ran = tmp_path / "mine.py", tmp_path / "ran"
    path.write_text(PLUGIN.format(ran=str(ran)))
    return path, ran


def test_a_plugin_of_a_client_needs_the_masters_permission(nursery, plugin, tmp_path):
    path, ran = plugin
    options = {"ordering": "from-a-client", "plugin": str(path), "strict": True}
    environment = {"worker1": {"TFSCHED_ALLOW_PLUGINS": str(tmp_path)}}
    with Cluster(nursery=nursery, workers=2, environment=environment) as cluster:
        arguments = {"options": options, "device": "/job:worker/task:0"}
        # Else a step may fail with the variables' lack of values before it fails with what is looked for.
        cluster.call("worker0", "common.open_session", name="initial", device="/job:worker/task:0")
        # The master decides, whoever the client is: worker0's forbids it although the client's process would permit it.
        cluster.call("worker1", "common.open_session", target=cluster.target("worker0"), init=False, **arguments)
        with pytest.raises(TaskError, match="does not permit it") as caught:
            cluster.call("worker1", "common.run", fetch="loss")
        message = caught.value.message.replace("\\'", "'")
        assert f"'{path}'" in message
        assert f"process {cluster.pid('worker0')} on " in message
        assert f"TFSCHED_ALLOW_PLUGINS={path}" in message
        assert not ran.exists()
        # Without strict the step runs unordered, and the master's log says why.
        cluster.call("worker0", "common.open_session", name="lax", options={**options, "strict": False})
        assert cluster.call("worker0", "common.run", name="lax", fetch="loss")
        said = [line for line in cluster.log("worker0").splitlines() if "tfsched steps aside" in line]
        assert len(said) == 1 and "does not permit it" in said[0]
        assert not ran.exists()
        # And one that permits it runs it.
        cluster.call("worker0", "common.open_session", name="allowed", target=cluster.target("worker1"), **arguments)
        assert cluster.call("worker0", "common.run", name="allowed", fetch="loss")
        assert ran.exists()


def test_a_configure_from_elsewhere_is_logged_and_cannot_stop_the_traffic():
    with Cluster(environment={"ps0": {"TF_CPP_MIN_LOG_LEVEL": "0"}}) as cluster:
        target = cluster.target("worker0")
        cluster.call("worker0", "configure.change", target=target, on=PS, policy="p3", rate_bps=10**6)
        assert [cluster.stats("ps0")[key] for key in ("policy", "rate_bps")] == ["p3", 10**6]
        log = cluster.log("ps0")
        (line,) = [one for one in log.splitlines() if "tfsched: configure(" in one]
        assert 'configure(policy="p3" rate_bps=1000000) of /job:ps/replica:0/task:0/device:CPU:0' in line
        assert re.search(rf'asked for by "\S+@\S+ process {cluster.pid("worker0")} \(task\.py\)"', line), line

        with pytest.raises(TaskError, match=r"rate_bps is 1, which would all but stop the cluster; give 1000000 or more"):
            cluster.call("worker0", "configure.change", target=target, on=PS, rate_bps=1)
        # A client that does not ask politely is refused by the task itself.
        with pytest.raises(TaskError, match=r"rate_bps is 999999, which would all but stop training; give 1000000 or more"):
            cluster.call("worker0", "configure.raw", on=PS, rate_bps=999_999, asker="nobody\nF0000 forged line")
        assert cluster.stats("ps0")["rate_bps"] == 10**6
        refused = [one for one in cluster.log("ps0").splitlines() if "refused" in one]
        assert len(refused) == 1 and 'asked for by "nobody?F0000 forged line": refused' in refused[0]
        # The tightest credit lets one transfer after the other go.
        cluster.call("worker0", "configure.raw", on=PS, rate_bps=0, credit_bytes=1, policy="bytescheduler")
        cluster.call("worker0", "common.open_session", options={})
        assert len(cluster.call("worker0", "common.run", count=3)) == 3
        assert "somebody who does not say who" in cluster.log("ps0")
