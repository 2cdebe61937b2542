"""Ports that are given away are free, nobody's by themselves, and given to one caller only."""

import pathlib
import socket
import subprocess
import sys

import pytest

from tfsched.bench import ports
from tfsched.bench.errors import BenchFailed


def test_no_outgoing_connection_is_given_them():
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = ports.free_ports(50)
    assert len(set(found)) == 50
    assert all(1024 <= port < first for port in found)
    for port in found:
        with socket.create_server(("127.0.0.1", port)):
            pass


def test_nobody_else_is_given_them(monkeypatch):
    begin, end = 20000, 20040
    monkeypatch.setattr(ports, "first_ephemeral", lambda: end)
    monkeypatch.setattr(ports, "_CANDIDATES", end - begin)
    mine = ports.free_ports(10)
    code = f"""
from tfsched.bench import ports
ports.first_ephemeral = lambda: {end}
ports._CANDIDATES = {end - begin}
print(*ports.free_ports(10))
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True).stdout
    theirs = {int(port) for port in printed.split()}
    assert len(theirs) == 10 and not theirs & set(mine)


def test_one_that_is_held_is_not_given(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        monkeypatch.setattr(ports, "first_ephemeral", lambda: port + 1)
        monkeypatch.setattr(ports, "_CANDIDATES", 1)
        monkeypatch.setattr(ports, "_END", port + 1)
        with pytest.raises(BenchFailed, match="only 0 of 1 ports of"):
            ports.free_ports(1)


def test_a_system_that_keeps_all_ports_to_itself(monkeypatch):
    monkeypatch.setattr(ports, "first_ephemeral", lambda: 1024)
    found = ports.free_ports(10)
    assert len(set(found)) == 10 and min(found) >= 1024


def test_descriptors_do_not_pile_up():
    for _ in range(3 * ports._HELD):
        ports.free_port()
    assert len(ports._held) <= ports._HELD
