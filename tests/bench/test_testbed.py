"""Real namespaces: they limit, and they are gone afterwards whatever happened."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tfsched.bench import testbed

# Listens, then reports the bits per second at which 4 MB arrived after the first 0.5 MB.
RECEIVER = """
import socket, sys, time
server = socket.create_server((sys.argv[1], 9000))
server.settimeout(20)
print("listening", flush=True)
peer, _ = server.accept()
peer.settimeout(20)
def take(count):
    while count > 0:
        data = peer.recv(min(count, 1 << 16))
        assert data
        count -= len(data)
take(500_000)
begin = time.perf_counter()
take(4_000_000)
print(4_000_000 * 8 / (time.perf_counter() - begin), flush=True)
"""
SENDER = """
import socket, sys
socket.create_connection((sys.argv[1], 9000), timeout=20).sendall(bytes(4_500_000))
"""


def transfer_bps(bed: testbed.Testbed, source: str, target: str) -> float:
    receiver = bed.exec(target, [sys.executable, "-c", RECEIVER, bed.address(target)], stdout=subprocess.PIPE)
    assert receiver.stdout.readline() == b"listening\n"
    bed.exec(source, [sys.executable, "-c", SENDER, bed.address(target)])
    output, _ = receiver.communicate(timeout=30)
    return float(output)


def test_limits_both_directions_and_cleans_up(own_namespaces):
    with testbed.Testbed(["ps0", "worker0"], 50e6) as bed:
        assert len(own_namespaces()) == 3
        assert 20e6 < transfer_bps(bed, "ps0", "worker0") < 75e6
        assert 20e6 < transfer_bps(bed, "worker0", "ps0") < 75e6
    assert own_namespaces() == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="subprocess has no process groups there")
def test_processes_share_processor_time_by_themselves_and_not_by_session():
    with testbed.Hosts(["ps0", "worker0"]) as hosts:
        for host in hosts.names:
            process = hosts.exec(host, ["sleep", "60"])
            assert os.getsid(process.pid) == os.getsid(0)
            assert os.getpgid(process.pid) == process.pid  # so it is ended with its children


ACCEPT = """
import socket, sys
server = socket.create_server((sys.argv[1], 9000))
server.settimeout(20)
print("listening", flush=True)
peer, _ = server.accept()
print(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(bytes(1)).decode(), flush=True)
"""
CONNECT = """
import socket, sys
peer = socket.create_connection((sys.argv[1], 9000), timeout=20)
print(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(bytes(1)).decode(), flush=True)
"""


def test_connections_share_a_link_as_linux_does_by_default(own_namespaces):
    expected = testbed.congestion_control()
    if expected is None:
        with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as file:
            expected = file.read().strip()
    with testbed.Testbed(["ps0", "worker0"], 50e6) as bed:
        accepts = bed.exec("ps0", [sys.executable, "-c", ACCEPT, bed.address("ps0")], stdout=subprocess.PIPE)
        assert accepts.stdout.readline() == b"listening\n"
        connects = bed.exec("worker0", [sys.executable, "-c", CONNECT, bed.address("ps0")], stdout=subprocess.PIPE)
        used = {process.communicate(timeout=30)[0].decode().strip() for process in (accepts, connects)}
    assert used == {expected}
    assert own_namespaces() == []


def test_a_machine_without_that_congestion_control_keeps_its_own(tmp_path):
    available = tmp_path / "available"
    available.write_text("reno bbr\n")
    assert testbed.congestion_control(str(available)) is None
    available.write_text("reno cubic bbr\n")
    assert testbed.congestion_control(str(available)) == "cubic"
    assert testbed.congestion_control(str(tmp_path / "missing")) is None


@pytest.mark.parametrize(
    ("cores", "mask"),
    [({0}, "1"), ({1, 3}, "a"), ({31}, "80000000"), ({32}, "1,00000000"), ({0, 71}, "80,00000000,00000001")],
)
def test_a_mask_of_cores_is_written_as_the_kernel_reads_it(cores, mask):
    assert testbed.core_mask(cores) == mask


def test_what_arrives_is_processed_on_the_given_cores(own_namespaces):
    with testbed.Testbed(["a", "b"], 1e9) as bed:
        bed.receive_on({0})
        for host in ("a", "b"):
            process = bed.exec(host, ["cat", "/sys/class/net/eth0/queues/rx-0/rps_cpus"], stdout=subprocess.PIPE)
            assert process.communicate(timeout=20)[0].strip().lstrip(b"0,") == b"1"


def test_unlimited_is_faster(own_namespaces):
    with testbed.Testbed(["ps0", "worker0"]) as bed:
        assert transfer_bps(bed, "ps0", "worker0") > 150e6
    assert own_namespaces() == []


def test_addresses_do_not_appear_in_the_machines_network(own_namespaces):
    with testbed.Testbed(["ps0"], 1e9) as bed:
        here = subprocess.run(["ip", "addr"], capture_output=True, text=True, timeout=20).stdout
        assert bed.address("ps0") not in here


def test_gone_after_an_exception_with_their_processes(own_namespaces):
    with pytest.raises(RuntimeError), testbed.Testbed(["a", "b"], 1e9) as bed:
        process = bed.exec("a", ["sleep", "100"])
        raise RuntimeError
    assert process.poll() is not None
    assert own_namespaces() == []


def test_gone_after_a_failed_start(own_namespaces, monkeypatch):
    monkeypatch.setattr(testbed, "_burst_bytes", lambda bandwidth_bps: -1)
    with pytest.raises(testbed.BenchError, match="tc"), testbed.Testbed(["a"], 1e9):
        pass
    assert own_namespaces() == []


def start_owner(body: str) -> subprocess.Popen:
    # A shell lets what it runs in the background ignore SIGINT, and so would the owner.
    script = textwrap.dedent("""
        import signal, time
        from tfsched.bench import testbed
        signal.signal(signal.SIGINT, signal.default_int_handler)
        bed = testbed.Testbed(["a", "b"], 1e9)
    """) + textwrap.dedent(body)
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": root},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_gone_after_a_signal_to_the_owner(own_namespaces, number):
    owner = start_owner("""
        with bed:
            bed.exec("a", ["sleep", "100"])
            print("ready", flush=True)
            time.sleep(60)
    """)
    assert owner.stdout.readline() == b"ready\n"
    assert len(own_namespaces(owner.pid)) == 3
    owner.send_signal(number)
    assert owner.wait(20) != 0
    assert own_namespaces(owner.pid) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_gone_after_several_signals_to_the_owner(own_namespaces, number):
    # What ignores the request to end takes a while to be ended, and further signals come meanwhile.
    owner = start_owner("""
        with bed:
            stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(100)"
            import sys
            bed.exec("a", [sys.executable, "-c", stubborn])
            time.sleep(60)
    """)
    assert owner.stdout.readline() == b"ready\n"
    deadline_s = time.monotonic() + 30
    while owner.poll() is None and time.monotonic() < deadline_s:
        owner.send_signal(number)
        time.sleep(0.2)
    assert owner.poll() not in (None, 0)
    assert own_namespaces(owner.pid) == []


def test_gone_at_the_end_of_a_program_that_never_closed_them(own_namespaces):
    owner = start_owner("bed.__enter__()")
    assert owner.wait(20) == 0
    assert own_namespaces(owner.pid) == []


def test_a_killed_owners_namespaces_are_removed_by_the_next(own_namespaces):
    owner = start_owner("""
        with bed:
            print("ready", flush=True)
            time.sleep(60)
    """)
    assert owner.stdout.readline() == b"ready\n"
    owner.kill()
    owner.wait(20)
    testbed.remove_stale()
    assert own_namespaces(owner.pid) == []


def test_reason_without_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    available, reason = testbed.netns_available()
    assert not available
    assert "root" in reason


def test_reason_without_the_tools(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    available, reason = testbed.netns_available()
    assert not available
    assert "iproute2" in reason


def test_stop_process_kills_what_ignores_the_request():
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import signal,time\nsignal.signal(15,signal.SIG_IGN)\nprint(1,flush=True)\ntime.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout.readline()
    begin_s = time.monotonic()
    testbed.stop_process(process, grace_s=0.3)
    assert process.returncode == -signal.SIGKILL
    assert time.monotonic() - begin_s < 10
