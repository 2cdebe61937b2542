"""Whole runs of `--cluster`: over ssh between network namespaces; as steps of a stand-in for srun; by TF_CONFIG."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tfsched.bench.ports import free_port
from tfsched.bench.testbed import Testbed, netns_available

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 500

pytestmark = pytest.mark.timeout(LIMIT_S + 60)

SSHD = """Port 22
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/user_key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PidFile none
"""
SSH = """IdentityFile {directory}/user_key
UserKnownHostsFile /dev/null
StrictHostKeyChecking no
LogLevel ERROR
"""

# Takes the flags that the bench uses, and no other.
SRUN = """#!/bin/sh
while true; do
  case "$1" in
    --nodes=1|--ntasks=1|--overlap|--cpu-bind=none|--export=ALL) ;;
    --nodelist=*) echo "step on ${1#--nodelist=}" >&2 ;;
    -*) echo "srun: unrecognized option $1" >&2; exit 1 ;;
    *) break ;;
  esac
  shift
done
exec "$@"
"""


def script(path: pathlib.Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def start(tmp_path: pathlib.Path, *flags: str, **environment: str) -> subprocess.Popen:
    """A bench of a tiny model in a process of its own, with a group of its own."""
    command = [sys.executable, "-m", "tfsched.cli", "bench", "--model=toy", "--batch=4", "--warmup=1", *flags]
    kept = {key: value for key, value in os.environ.items() if key != "TF_CONFIG" and not key.startswith("SLURM")}
    paths = os.pathsep.join(filter(None, [str(ROOT), kept.get("PYTHONPATH")]))
    return subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**kept, "PYTHONPATH": paths, "COLUMNS": "200", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(*benches: subprocess.Popen, limit_s: float = LIMIT_S) -> list[tuple[int, str, str]]:
    """Exit codes and outputs; ends all with their groups when the time is over."""
    deadline_s = time.monotonic() + limit_s
    try:
        told = [bench.communicate(timeout=max(1.0, deadline_s - time.monotonic())) for bench in benches]
    finally:
        for bench in benches:
            try:
                os.killpg(bench.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    return [(bench.returncode, *texts) for bench, texts in zip(benches, told, strict=True)]


def tasks_with(marker: str) -> list[int]:
    """Tasks of the bench that run here and have the marker in their environment."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and b"tfsched.bench.task" in (entry / "cmdline").read_bytes():
                found += [int(entry.name)] if marker.encode() in (entry / "environ").read_bytes() else []
        except OSError:
            continue
    return found


def serve_ssh(directory: pathlib.Path, testbed: Testbed, servers: list[str], client: str) -> list[str]:
    """Starts a real sshd on each of the servers; the command with which the client reaches them, once they answer."""
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)], check=True, timeout=60)
    pathlib.Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd wants it, and makes it only when the system starts it
    (directory / "sshd_config").write_text(SSHD.format(directory=directory))
    names = "".join(f"Host {name}\n  HostName {testbed.address(name)}\n" for name in servers)
    (directory / "ssh_config").write_text(
        f"{names}Host *\n  " + SSH.format(directory=directory).replace("\n", "\n  ").rstrip()
    )
    command = [
        "ip",
        "netns",
        "exec",
        testbed.namespace(client),
        "ssh",
        "-F",
        str(directory / "ssh_config"),
        "-o",
        "BatchMode=yes",
    ]
    for name in servers:
        testbed.exec(name, [sshd(), "-D", "-e", "-f", str(directory / "sshd_config")], stderr=subprocess.DEVNULL)
    for name in servers:
        deadline_s = time.monotonic() + 30
        while (done := subprocess.run([*command, name, "true"], capture_output=True, text=True, timeout=60)).returncode:
            assert time.monotonic() < deadline_s, done.stderr
            time.sleep(0.2)
    return command


def sshd() -> str | None:
    """The server's path; it must be called by it."""
    return shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


def hosts_file(tmp_path: pathlib.Path, hosts: list[dict], ssh: list[str], **common) -> str:
    content = {"ssh": ssh, "python": sys.executable, "directory": str(tmp_path)}
    environment = {"PYTHONPATH": str(ROOT), "MARKER": tmp_path.name}
    path = tmp_path / "hosts.yaml"
    path.write_text(json.dumps({**content, "environment": environment, **common, "hosts": hosts}))
    return str(path)


def test_over_ssh_between_network_namespaces(tmp_path):
    available, reason = netns_available()
    if not available:
        pytest.skip(reason)
    if sshd() is None:
        pytest.skip("there is no sshd; install openssh-server")
    with Testbed(["desk", "node1", "node2", "node3"], 400e6) as testbed:
        ssh = serve_ssh(tmp_path, testbed, ["node1", "node2", "node3"], "desk")
        hosts = [
            {"host": "node1", "role": "ps", "address": testbed.address("node1"), "port": 3000},
            {"host": "node2", "role": "worker", "address": testbed.address("node2")},
            {"host": "node3", "role": "worker", "address": testbed.address("node3")},
        ]
        path = hosts_file(tmp_path, hosts, ssh)
        flags = ["--settings=vanilla,tio,prophet-plan", "--steps=4", "--bandwidth=400mbit", "--phase=train", "--json=a.json"]
        ((code, out, err),) = ended(start(tmp_path, f"--cluster={path}", *flags))
        assert code == 0, err
    result = json.loads((tmp_path / "a.json").read_text())
    assert result["link"] == "real" and (result["ps"], result["workers"]) == (1, 2)
    assert {name: len(row["steps_s"]) for name, row in result["settings"].items()} == dict.fromkeys(
        ["vanilla", "tio", "prophet-plan"], 1
    )
    assert all(row["straggler"] is None for row in result["settings"].values())  # no common clock
    # Each worker gets all variables, so the server's link carries them twice.
    assert result["bounds"]["link_s"] == pytest.approx(2 * 3 * 256 * 256 * 4 * 8 / 400e6)
    assert result["bounds"]["pull_s"] > 0.01  # the limited links are what carried them
    assert "400 Mbit/s, links of the hosts" in out and "at the links' rate 0.031 s" in " ".join(out.split())
    assert "[ps0 on node1] " in err and "[worker1 on node3] " in err
    assert "DeleteWorkerSession" not in err  # no session is closed while its servers end
    assert tasks_with(tmp_path.name) == []


def test_all_reduces_as_steps_of_srun(tmp_path):
    script(tmp_path / "srun", SRUN)
    script(tmp_path / "scontrol", '#!/bin/sh\nprintf "127.0.0.1\\n127.0.0.2\\n"\n')  # this machine's own knows no such job
    environment = {
        "SLURM_JOB_NODELIST": "127.0.0.[1-2]",
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "MARKER": tmp_path.name,
    }
    flags = ["--cluster=slurm", "--api=mirrored", "--settings=vanilla,tio", "--steps=4", "--block=4", "--json=a.json"]
    ((code, out, err),) = ended(start(tmp_path, *flags, **environment))
    assert code == 0, err
    result = json.loads((tmp_path / "a.json").read_text())
    assert (result["ps"], result["workers"], result["bandwidth_bps"]) == (0, 2, None)
    assert result["bounds"]["closed_form_s"] is None  # nobody knows the rate
    assert all(0 < step_s < 60 for row in result["settings"].values() for step_s in row["steps_s"])
    assert "links of unknown rate" in out and "on 127.0.0.2] step on 127.0.0.2" in err
    assert tasks_with(tmp_path.name) == []


def started(tmp_path: pathlib.Path, jobs: dict[str, int], *flags: str) -> dict[str, subprocess.Popen]:
    """A bench in each task of a TF_CONFIG on this machine."""
    cluster = {job: [f"127.0.0.1:{free_port()}" for _ in range(count)] for job, count in jobs.items()}
    benches = {}
    for job, count in jobs.items():
        for index in range(count):
            config = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
            # All tasks get one command line; only one writes what it names.
            environment = {"TF_CONFIG": config, "MARKER": tmp_path.name, "TF_CPP_MIN_LOG_LEVEL": "0"}
            benches[f"{job}{index}"] = start(tmp_path, "--cluster=tf_config", *flags, **environment)
    return benches


def test_tasks_that_the_user_has_started(tmp_path):
    benches = started(tmp_path, {"ps": 1, "worker": 2}, "--settings=vanilla,tio", "--steps=3", "--json=a.json")
    told = dict(zip(benches, ended(*benches.values()), strict=True))
    assert [code for code, _, _ in told.values()] == [0, 0, 0], told
    assert "vanilla" in told["worker0"][1] and "links of unknown rate" in told["worker0"][1]
    assert told["ps0"][1] == told["worker1"][1] == ""
    assert re.search(r"^\[ps0\] .*Started server", told["ps0"][2], re.MULTILINE)  # what a task prints is shown where it runs
    result = json.loads((tmp_path / "a.json").read_text())
    assert list(result["settings"]) == ["vanilla", "tio"] and result["workers"] == 2
    assert tasks_with(tmp_path.name) == []


def test_a_chief_coordinates_tasks_that_the_user_has_started(tmp_path):
    benches = started(tmp_path, {"chief": 1, "ps": 1, "worker": 1}, "--api=strategy", "--settings=tio", "--steps=3")
    told = dict(zip(benches, ended(*benches.values()), strict=True))
    assert [code for code, _, _ in told.values()] == [0, 0, 0], told
    assert "api strategy" in told["chief0"][1] and told["worker0"][1] == ""


def test_a_task_that_dies_ends_the_bench_everywhere(tmp_path):
    benches = started(tmp_path, {"ps": 1, "worker": 1}, "--settings=vanilla", "--steps=100000")
    try:
        deadline_s = time.monotonic() + LIMIT_S / 2
        while len(tasks_with(tmp_path.name)) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.2)
        os.killpg(benches["ps0"].pid, signal.SIGKILL)
    finally:
        told = dict(zip(benches, ended(*benches.values(), limit_s=LIMIT_S / 2), strict=True))
    assert told["worker0"][0] == 1
    assert "ps0 on 127.0.0.1:" in told["worker0"][2] and "is gone: the bench of that task has ended" in told["worker0"][2]
    deadline_s = time.monotonic() + 30
    while tasks_with(tmp_path.name):
        assert time.monotonic() < deadline_s
        time.sleep(0.2)
