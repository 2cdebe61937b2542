"""Starting and ending what is served: addresses, tokens, ports, the end of a process, forks."""

import socket
import subprocess
import sys
import urllib.request

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfsched
from tfsched.control import about, access, environment
from tfsched.control.client import Tasks

pytestmark = pytest.mark.timeout(120)


def connects(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"host": "0.0.0.0"}, ["'0.0.0.0'", "has no token", "TFSCHED_CONTROL_TOKEN"]),
        ({"host": "::"}, ["'::'", "has no token"]),
        ({"host": "0.0.0.0", "port": None, "metrics_port": 0}, ["has no token"]),
        ({"host": "host.invalid", "token": "t"}, ["'host.invalid'", "give an address of this machine"]),
        ({"host": ""}, ["''", "give an address of this machine"]),
        ({"token": ""}, ["the token is empty"]),
        ({"token": "a b"}, ["the token is empty or has characters"]),
        ({"token": "é"}, ["the token is empty or has characters"]),
        ({"port": -1}, ["port is -1"]),
        ({"port": True}, ["port is True"]),
        ({"port": "80"}, ["port is '80'"]),
        ({"metrics_port": 65536}, ["metrics_port is 65536"]),
        ({"port": None}, ["are both None"]),
    ],
    ids=repr,
)
def test_each_mistake_has_its_sentence(arguments, words):
    with pytest.raises(tfsched.TfschedError) as error:
        tfsched.serve_control(**arguments)
    assert all(word in str(error.value) for word in words), error.value
    assert len(str(error.value).splitlines()) == 1


def test_a_port_that_is_taken_is_named_and_nothing_stays_open():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for arguments in ({"port": port}, {"port": None, "metrics_port": port}, {"metrics_port": port}):
            with pytest.raises(tfsched.TfschedError, match=f"127.0.0.1:{port}.*choose another port"):
                tfsched.serve_control(**arguments)
    with tfsched.serve_control(port=port), pytest.raises(tfsched.TfschedError, match="choose another port"):
        tfsched.serve_control(port=port)  # gRPC would share it


def test_with_a_token_it_listens_for_others_too():
    with tfsched.serve_control(host="0.0.0.0", token="secret", metrics_port=0) as served:
        port = served.address.rpartition(":")[2]
        with Tasks([f"127.0.0.1:{port}"], "secret") as tasks, Tasks([f"127.0.0.1:{port}"]) as others:
            assert not tasks.ask()[0].error
            assert others.ask()[0].error == "the token is missing or wrong"


def test_closing_frees_the_ports():
    served = tfsched.serve_control(metrics_port=0)
    port, metrics_port = int(served.address.rpartition(":")[2]), int(served.metrics_url.split(":")[2].split("/")[0])
    with urllib.request.urlopen(served.metrics_url, timeout=20) as answer:
        assert answer.status == 200
    with Tasks([served.address]) as tasks:
        assert not tasks.ask()[0].error
        served.close()
        served.close()
        assert not connects(port) and not connects(metrics_port)
        assert "no answer" in tasks.ask()[0].error
    with tfsched.serve_control(port=port, metrics_port=metrics_port) as again:  # the ports are free at once
        assert again.address == f"127.0.0.1:{port}"


ENDING = """
import os, socket, sys, time
import tfsched
from tfsched.bench.ports import free_port
os.environ.update(TFSCHED_CONTROL_PORT="0", TFSCHED_METRICS_PORT="0", TFSCHED_STALL_SECONDS="0.1")
server = tfsched.Server({"worker": [f"127.0.0.1:{free_port()}"]})
from tfsched.control import environment
served = environment._BEGUN[os.getpid()]
port = int(served.address.rpartition(":")[2])
metrics_port = int(served.metrics_url.split(":")[2].split("/")[0])

def listens(port):
    rows = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):  # gRPC's are of the second kind
        with open(table) as lines:
            rows += [line.split() for line in lines]
    inodes = {row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            pass
    return any(f"socket:[{inode}]" in links for inode in inodes)

assert listens(port) and listens(metrics_port)
child = os.fork()
if child == 0:
    served.close()  # waits for nothing
    try:
        tfsched.serve_control()
        os._exit(2)
    except tfsched.TfschedError as error:
        assert "was forked from one that serves" in str(error)
    os._exit(listens(port) or listens(metrics_port))  # as multiprocessing does
assert os.waitpid(child, 0)[1] == 0
assert listens(port) and listens(metrics_port)
print("port", port, flush=True)
"""


def test_a_process_that_serves_ends_as_any_other_and_its_forked_child_does_not_serve():
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "terminate called" not in done.stderr, done.stderr
    port = int(done.stdout.split()[1])
    said = [line for line in done.stderr.splitlines() if "control service at" in line]
    assert len(said) == 1 and f"control service at 127.0.0.1:{port}." in said[0]
    assert not connects(port)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"TFSCHED_CONTROL_PORT": "http"}, "TFSCHED_CONTROL_PORT is 'http'"),
        ({"TFSCHED_METRICS_PORT": "65536"}, "TFSCHED_METRICS_PORT is '65536'"),
        ({"TFSCHED_CONTROL_PORT": "0", "TFSCHED_CONTROL_HOST": "0.0.0.0"}, "has no token"),
        ({"TFSCHED_STALL_SECONDS": "-1"}, "TFSCHED_STALL_SECONDS is '-1'"),
        ({"TFSCHED_STALL_SECONDS": "soon"}, "TFSCHED_STALL_SECONDS is 'soon'"),
    ],
)
def test_a_mistake_in_the_environment_is_a_warning(monkeypatch, variables, words):
    said = []
    monkeypatch.setattr(environment, "_BEGUN", {})
    monkeypatch.setattr(environment.log, "warning", lambda text, *values: said.append(text % values))
    monkeypatch.setenv("TFSCHED_STALL_SECONDS", "0")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    environment.begin()
    environment.begin()
    assert len(said) == 1 and words in said[0]


def test_parts_are_told_and_cut(monkeypatch):
    monkeypatch.setattr(about, "_PARTS", {})
    about.tell("options", lambda: {"plan": "x" * 1000, "seed": 3, "strict": True})
    about.tell("nothing", dict)
    about.tell("broken", lambda: {}["key"])
    with tfsched.serve_control() as served, Tasks([served.address]) as tasks:
        parts = tasks.ask()[0].parts
    assert parts == {
        "options": {"plan": "x" * 255 + "…", "seed": 3.0, "strict": True},
        "broken": {"error": "KeyError: 'key'"},
    }


@pytest.mark.parametrize(
    ("module", "arguments", "words"),
    [
        ("grpc", {}, "the control service cannot be served without grpcio"),
        ("prometheus_client", {"port": None, "metrics_port": 0}, "metrics cannot be served without prometheus_client"),
    ],
)
def test_what_is_not_installed_is_named(monkeypatch, module, arguments, words):
    for name in ("service", "metrics"):
        monkeypatch.delitem(sys.modules, f"tfsched.control.{name}", raising=False)
        monkeypatch.delattr(f"tfsched.control.{name}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(tfsched.TfschedError, match=rf"{words} .*run pip install 'tfsched\[control\]'"):
        tfsched.serve_control(**arguments)


@given(st.text(), st.text("abc", min_size=1))
def test_only_the_token_itself_fits(sent, token):
    assert access.fits(access.header(token), token)
    assert access.fits(sent, token) == (sent == f"Bearer {token}")
    assert not access.fits(None, token)
