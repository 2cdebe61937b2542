"""Where `--cluster` runs the tasks: what its files and variables may say, and how tasks are started and ended."""

import io
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from tfsched.bench import BenchConfig, BenchError, run
from tfsched.bench.machines import hosts_file, slurm, tf_config
from tfsched.bench.machines.base import COORDINATION
from tfsched.bench.machines.local import own_environment
from tfsched.bench.machines.piped import PipedTask
from tfsched.bench.machines.places import Place, assign
from tfsched.bench.ports import free_port
from tfsched.bench.testbed import OWN_GROUP

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What sshd does with what it gets: the shell runs the last argument.
SSH = """#!/bin/sh
[ "$1" = -o ] && shift 2
[ "$1" = lost ] && { echo "ssh: connect to host lost port 22: No route to host" >&2; exit 255; }
exec sh -c "$2"
"""


@pytest.fixture
def ssh(tmp_path) -> str:
    path = tmp_path / "ssh"
    path.write_text(SSH)
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def hosts(tmp_path, ssh):
    """Writes a file of two hosts, both of which are this machine; returns its path."""

    def write(worker: dict | None = None, **common) -> str:
        given = {"ssh": [ssh, "-o", "BatchMode=yes"], "python": sys.executable, "environment": {"PYTHONPATH": str(ROOT)}}
        entries = [{"host": "node1", "role": "ps"}, {"host": "node2", "role": "worker", **(worker or {})}]
        content = {**given, **common, "hosts": [{"address": "127.0.0.1", **entry} for entry in entries]}
        path = tmp_path / "hosts.yaml"
        path.write_text(json.dumps(content))  # JSON is YAML
        return str(path)

    return write


def toy(cluster: str, **changes) -> BenchConfig:
    given = {"settings": ["vanilla"], "batch": 4, "steps": 2, "warmup": 1, "timeout_s": 90.0, "quiet": True}
    return BenchConfig(**{"models": ["toy"], "cluster": cluster, **given, **changes})


# -- the file --


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "lists no hosts: write 'hosts:'"),
        ("hosts: []", "lists no hosts"),
        ("hosts: [node1]", "host 1 is 'node1': write it as"),
        ("hosts: [{role: ps}]", "host 1 has no host: add 'host: node1'"),
        ("hosts: [{host: a, role: ps}, {host: b}]", r"host 2 \(b\) has no role: add 'role: ps"),
        ("hosts: [{host: a, role: server}]", "host 1 has 'server' as role: give one of ps, worker, chief"),
        ("hosts: [{host: a, role: ps, prot: 1}]", "host 1 has the unknown key 'prot': use host, role, address, ssh"),
        ("hosts: [{host: a, role: ps}]\nshell: ssh", "has the unknown key 'shell': use ssh, python"),
        ("hosts: [{host: a, role: ps}]\nssh: ssh", "has 'ssh' as ssh: give a list of words"),
        ("hosts: [{host: '-a', role: ps}]", "host 1 has '-a' as host: give a name"),
        ("hosts: [{host: a, role: ps, port: 80}]", "host 1 has 80 as port: give a number from 1024"),
        ("hosts: [{host: a, role: ps, environment: [A]}]", r"host 1 has \['A'\] as environment: give variables"),
        ("hosts: [{host: a, role: ps, port: 2222}, {host: a, role: ps, port: 2223}]", "'a' the ports 2222 and 2223"),
        ("hosts: [", "is not YAML"),
    ],
)
def test_mistakes_in_the_file(tmp_path, text, sentence):
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with pytest.raises(BenchError, match=sentence):
        hosts_file.read_places(str(path))


def test_a_file_that_is_not_there():
    with pytest.raises(BenchError, match=r"^/nowhere/hosts.yaml cannot be read \(No such file or directory\): give a YAML"):
        hosts_file.read_places("/nowhere/hosts.yaml")


def test_what_stands_above_the_hosts_is_for_all_of_them(tmp_path):
    path = tmp_path / "hosts.yaml"
    path.write_text(
        "python: /opt/python\nport: 3000\nenvironment: {A: 1, B: 2}\n"
        "hosts:\n- {host: me@a, role: ps}\n- {host: b, role: worker, address: 10.0.0.2, port: 4000, environment: {B: 3}}\n"
    )
    first, second = hosts_file.read_places(str(path))
    assert (first.host, first.address, first.port, first.start) == ("me@a", "a", 3000, ("ssh", "-o", "BatchMode=yes"))
    assert (second.address, second.port, second.python) == ("10.0.0.2", 4000, "/opt/python")
    assert (first.environment, second.environment) == ({"A": "1", "B": "2"}, {"A": "1", "B": "3"})


# -- tasks and roles --


def places(*roles: str) -> list[Place]:
    return [Place(host=f"host{number}", role=role, address="a") for number, role in enumerate(roles)]


@pytest.mark.parametrize(
    ("roles", "api", "machines"),
    [
        (["ps", "worker", "worker"], "session", {"ps0": 0, "worker0": 1, "worker1": 2}),
        (["ps", "worker", "chief"], "session", {"ps0": 0, "worker0": 2, "worker1": 1}),
        (["ps", "worker", "chief"], "strategy", {"ps0": 0, "worker0": 1, COORDINATION: 2}),
        (["worker", "ps"], "strategy", {"ps0": 1, "worker0": 0, COORDINATION: 0}),
        (["worker", "chief"], "mirrored", {"worker0": 1, "worker1": 0}),
    ],
)
def test_which_task_goes_where(roles, api, machines):
    assert {name: int(place.host[4:]) for name, place in assign(places(*roles), api, "x").items()} == machines


@pytest.mark.parametrize(
    ("roles", "api", "sentence"),
    [
        (["ps"], "session", "x has no host with role worker: add one"),
        (["worker"], "session", "x has no host with role ps and --api session needs one: add one, or use --api mirrored"),
        (["worker"], "parallel", "x has 1 worker and --api parallel all-reduces between two"),
        (["worker", "worker", "ps"], "mirrored", "x has 1 ps and --api mirrored has no parameter servers"),
        (["chief", "chief", "ps"], "strategy", "x has 2 hosts with role chief: leave one of them"),
        (["ps"] * 65 + ["worker"], "session", "x has 65 hosts with role ps: name at most 64"),
    ],
)
def test_roles_that_do_not_fit(roles, api, sentence):
    with pytest.raises(BenchError, match=sentence):
        assign(places(*roles), api, "x")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"link": "netns"}, "--link netns is about links that this machine makes: leave it out with --cluster"),
        ({"cores": "apart"}, "--cores apart parts the cores of this machine: leave it out with --cluster"),
        ({"trace": "a.json"}, "--trace a.json would be written on the host of worker 0: leave it out"),
        ({"ps": 1}, "--ps is 1 and the tasks come from --cluster .*: leave --ps out"),
        ({"workers": 2}, "--workers is 2 and the tasks come from --cluster"),
        ({"models": ["lenet"]}, "model 'lenet' is unknown"),
    ],
)
def test_flags_that_do_not_go_with_it(hosts, changes, sentence):
    with pytest.raises(BenchError, match=sentence):
        run(toy(hosts(), **changes))


def test_several_numbers_of_workers_do_not_go_with_it(hosts):
    with pytest.raises(BenchError, match=r"--workers is 2,3 and --cluster .* has one set of hosts: give one number"):
        run(toy(hosts()), [2, 3])


# -- tasks over ssh that do not start --


def fake_tensorflow(folder: pathlib.Path, text: str) -> str:
    """A path on which Python finds a TensorFlow that is only what the text says; imports of the real one take long."""
    folder.mkdir(exist_ok=True)
    (folder / "tensorflow.py").write_text(text)
    return f"{folder}:{ROOT}"


def test_a_host_that_cannot_be_reached(hosts):
    with pytest.raises(BenchError) as caught:
        run(toy(hosts({"host": "lost"})))
    first, *log = str(caught.value).splitlines()
    assert first.startswith("worker0 on lost cannot be started: '")
    assert "-o BatchMode=yes lost' ended with exit code 255 before the task answered; this command must work" in first
    assert log == ["  worker0: ssh: connect to host lost port 22: No route to host"]


@pytest.mark.parametrize(
    ("worker", "sentence"),
    [
        (
            {"python": "/nowhere/python"},
            "worker0 on node2 cannot start: the host has no command '/nowhere/python'; name the",
        ),
        (
            {"python": "/usr/bin/python3", "environment": {"PYTHONPATH": "/nowhere"}},
            "has no module .*; install tfsched for it",
        ),
        ({"ssh": ["/nowhere/ssh"]}, "worker0 on node2 cannot be started: '/nowhere/ssh' does not run here"),
        ({"directory": "/nowhere/work"}, "ended with exit code . before the task answered"),
    ],
)
def test_a_task_that_cannot_start(hosts, worker, sentence):
    with pytest.raises(BenchError, match=sentence):
        run(toy(hosts(worker)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "raise ImportError('no such wheel')",
            r"worker0 on node2: .* cannot import TensorFlow \(no such wheel\): install it",
        ),
        ("__version__ = '2.0.0'", "ps0 on node1 has TensorFlow 1.0.0 and worker0 on node2 has 2.0.0: install the same"),
        (
            "import tfsched.bench.task as task, sys\nsys.modules['__main__'].__version__ = '0.0.1'\n__version__ = '1.0.0'",
            "worker0 on node2 has tfsched 0.0.1 and the bench has .*: install the same version in both",
        ),
    ],
)
def test_a_host_with_another_installation(tmp_path, hosts, text, sentence):
    usual = fake_tensorflow(tmp_path / "usual", "__version__ = '1.0.0'")
    other = fake_tensorflow(tmp_path / "other", text)
    with pytest.raises(BenchError, match=sentence):
        run(toy(hosts({"environment": {"PYTHONPATH": other}}, environment={"PYTHONPATH": usual})))


def test_a_port_that_is_taken(tmp_path, hosts):
    path = fake_tensorflow(tmp_path / "usual", "__version__ = '1.0.0'")
    with socket.create_server(("", free_port())) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            BenchError, match=rf"worker0 on node2: port {port} cannot be used \(Address already in use\): end"
        ):
            run(toy(hosts({"port": port}, environment={"PYTHONPATH": path})))


def group_members(marker: str, command: str = "") -> list[int]:
    """Processes whose environment has the marker, or those of them that run the command."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                environment = (entry / "environ").read_bytes()
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            if marker.encode() in environment and rest.split()[0] != "Z" and command in ("", name):
                found.append(int(entry.name))
    return found


def wait_for(condition, timeout_s: float = 60.0) -> bool:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.1)
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_task_is_left_when_the_bench_ends_early(tmp_path, hosts, number):
    # A task that starts children of its own, and that takes for ever to import TensorFlow.
    marker = f"MARKER={tmp_path.name}-{int(number)}-{os.getpid()}"
    path = fake_tensorflow(
        tmp_path / "slow", "import subprocess, time\nsubprocess.Popen(['sleep', '300'])\ntime.sleep(300)\n"
    )
    environment = {"PYTHONPATH": path, "MARKER": marker.partition("=")[2]}
    command = [sys.executable, "-m", "tfsched.cli", "bench", "--model=toy", f"--cluster={hosts(environment=environment)}"]
    bench = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        assert wait_for(lambda: len(group_members(marker, "sleep")) == 2)
        bench.send_signal(number)
        assert bench.wait(60) != 0
        assert wait_for(lambda: not group_members(marker))
    finally:
        for pid in group_members(marker):
            os.kill(pid, signal.SIGKILL)
        bench.kill()
        bench.wait(10)


# -- Slurm --


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node1", ["node1"]),
        ("node[1-3,07],gpu2", ["node1", "node2", "node3", "node07", "gpu2"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("r[1-2]n[1,3]-ib", ["r1n1-ib", "r1n3-ib", "r2n1-ib", "r2n3-ib"]),
    ],
)
def test_lists_of_nodes(text, names):
    assert slurm.expand(text) == names


@pytest.mark.parametrize("text", ["node[1-", "node]1", "node[a-b]", "node[1-2]],x", "a,,b", "node[1-99999999]", "[]"])
def test_lists_that_name_no_nodes(text):
    with pytest.raises(BenchError, match="which is no list of nodes"):
        slurm.expand(text)


def test_slurm_s_own_tool_expands_where_it_is_installed(tmp_path, monkeypatch):
    tool = tmp_path / "scontrol"
    tool.write_text('#!/bin/sh\n[ "$1 $2" = "show hostnames" ] && printf "one\\ntwo\\n"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert slurm.node_names("whatever") == ["one", "two"]
    tool.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(BenchError, match="scontrol cannot expand SLURM_JOB_NODELIST='whatever'"):
        slurm.node_names("whatever")


def test_a_job_gives_its_nodes(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-4]")
    assert [place.role for place in slurm.read_places("session", None, None)] == ["ps", "worker", "worker", "worker"]
    assert [place.role for place in slurm.read_places("mirrored", None, None)] == ["worker"] * 4
    assert [place.host for place in slurm.read_places("session", 2, 1)] == ["n1", "n2", "n3"]
    with pytest.raises(BenchError, match=r"has 4 node\(s\), and 2 ps and 3 worker\(s\) need 5: ask for more nodes"):
        slurm.read_places("session", 2, 3)
    with pytest.raises(BenchError, match=r"has 4 node\(s\), and 4 ps and 1 worker\(s\) need 5"):
        slurm.read_places("session", 4, None)


def test_without_a_job(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(BenchError, match="SLURM_JOB_NODELIST is not set, so this is no Slurm job: start the bench within"):
        run(toy("slurm"))


# -- TF_CONFIG --


def config_of(jobs: dict[str, list[str]], job: str, index: int) -> str:
    return json.dumps({"cluster": jobs, "task": {"type": job, "index": index}})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "TF_CONFIG is not set: start the bench in each task with it"),
        ("{", "which is no JSON"),
        ("[]", "which is not of the form"),
        ('{"cluster": {}}', "which is not of the form"),
        (config_of({"evaluator": ["a:1"]}, "evaluator", 0), "has the job 'evaluator': the bench has a use for ps, worker"),
        (config_of({"worker": ["a"]}, "worker", 0), "has the address 'a': write it as host:port"),
        (config_of({"worker": ["a:1", "a:1"]}, "worker", 0), "has the address 'a:1' twice"),
        (config_of({"worker": ["a:1"]}, "worker", 1), "says that this task is worker 1, which its cluster does not have"),
        (config_of({"ps": ["a:1"]}, "ps", 0), "has no chief and no worker: add a worker"),
    ],
)
def test_mistakes_in_tf_config(text, sentence):
    with pytest.raises(BenchError, match=sentence):
        tf_config.read_started(text)


def test_who_measures():
    jobs = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
    assert tf_config.read_started(config_of(jobs, "ps", 0)).first.host == "b:1"
    with_chief = tf_config.read_started(config_of({**jobs, "chief": ["d:1"]}, "worker", 1))
    assert (with_chief.first.host, with_chief.own.host, with_chief.own.address) == ("d:1", "c:1", "c")


def test_tasks_that_do_not_find_each_other(monkeypatch):
    jobs = {"ps": [f"127.0.0.1:{free_port()}"], "worker": [f"127.0.0.1:{free_port()}"]}
    monkeypatch.setenv("TF_CONFIG", config_of(jobs, "ps", 0))
    with pytest.raises(
        BenchError, match=rf"the bench of {jobs['worker'][0]} cannot be reached within 1 s .*: start the same"
    ):
        run(toy("tf_config", timeout_s=1.0))
    monkeypatch.setenv("TF_CONFIG", config_of(jobs, "worker", 0))
    with pytest.raises(
        BenchError, match=rf"no bench of {jobs['ps'][0]} has come within 1 s: start the same command in each"
    ):
        run(toy("tf_config", timeout_s=1.0))
    with (
        socket.create_server(("", int(jobs["worker"][0].rpartition(":")[2]))),
        pytest.raises(BenchError, match=r"port \d+ of this task in TF_CONFIG cannot be used \(Address already in use\)"),
    ):
        run(toy("tf_config", timeout_s=1.0))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python looks in the working directory first there")
def test_a_task_imports_this_tfsched_in_the_directory_of_another_one(tmp_path):
    (tmp_path / "tfsched").mkdir()
    (tmp_path / "tfsched" / "__init__.py").write_text("raise SystemExit('another tfsched')\n")
    command = [sys.executable, "-c", "import tfsched.version; print(tfsched.version.__file__)"]
    done = subprocess.run(
        command, cwd=tmp_path, env=own_environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip().endswith(str(pathlib.Path("tfsched", "version.py"))) and str(tmp_path) not in done.stdout


def test_the_last_lines_of_a_task_that_has_ended_are_shown(monkeypatch):
    class Slow(io.StringIO):
        def write(self, text: str) -> int:
            time.sleep(0.05)
            return super().write(text)

    shown = Slow()
    monkeypatch.setattr(sys, "stderr", shown)
    command = [sys.executable, "-c", "import sys; [print(number, file=sys.stderr) for number in range(10)]"]
    pipes = {stream: subprocess.PIPE for stream in ("stdin", "stdout", "stderr")}
    task = PipedTask(subprocess.Popen(command, **pipes, **OWN_GROUP), "[ps0] ")
    task.stop()
    assert shown.getvalue().split("\n") == [*(f"[ps0] {number}" for number in range(10)), ""]
    task.close()
