"""Forks tasks of a test's cluster from one process that has imported TensorFlow but not begun to use it.

Started as ``python nursery.py DESCRIPTOR [stock]`` by nurseries.py, whose socket DESCRIPTOR is; ends when that is closed.
With "stock" there is no tfsched in it, nor in what it forks.

An import takes seconds, a fork milliseconds. It is sound as long as nothing has begun in here: a fork takes one thread
along, and of the others only the locks that they hold. So there must be no other thread, which is checked before every
fork; test_nursery.py checks that two forks have drawn no random number in common.
"""

import ctypes
import importlib
import json
import os
import select
import signal
import socket
import sys

MESSAGE_BYTES = 1 << 16  # more than any request has
CLONE_NEWNET = 0x40000000  # linux/sched.h; Python has os.setns from 3.12 on


def _reap(statuses):
    """Tells whoever waits for a child how it has ended, while its number is still its own."""
    for pid in list(statuses):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            os.write(statuses[pid], str(code).encode())
            os.close(statuses.pop(pid))
            os.waitpid(pid, 0)


def _become(request, descriptors, inherited):
    """What a child does before it is a task: nothing of the nursery's stays open."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
    for descriptor in (*descriptors, *inherited):
        os.close(descriptor)
    if request["namespace"] is not None:
        with open(f"/run/netns/{request['namespace']}") as namespace:
            assert ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) == 0, ctypes.get_errno()
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[1:] = [json.dumps(request["spec"])]


def main():
    """Forks on request; returns in a child only, when the task has ended."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    import task
    import tensorflow  # noqa: F401

    if "stock" not in sys.argv[2:]:
        import tfsched

        tfsched.load()
    for name in ("breaking", "common"):
        importlib.import_module("scenarios." + name)
    awake, wakes = os.pipe()
    for descriptor in (awake, wakes):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes)
    statuses = {}  # of each child: where to write how it has ended
    requests.send(b"{}")
    while True:
        readable, _, _ = select.select([requests, awake], [], [])
        if awake in readable:
            os.read(awake, MESSAGE_BYTES)
        _reap(statuses)
        if requests not in readable:
            continue
        data, descriptors, _, _ = socket.recv_fds(requests, MESSAGE_BYTES, 4)
        if not data:
            os._exit(0)  # there is nothing to save, and Python takes seconds to put TensorFlow away
        threads = len(os.listdir("/proc/self/task"))
        pid = os.fork() if threads == 1 else 0
        if threads == 1 and pid == 0:
            inherited = [requests.detach(), awake, wakes, *statuses.values()]
            _become(json.loads(data), descriptors, inherited)
            task.main()
            return
        if pid:
            os.setpgid(pid, pid)  # the child may not have come to it yet, and has a group from the answer on
            statuses[pid] = descriptors.pop()
        for descriptor in descriptors:
            os.close(descriptor)
        requests.send(json.dumps({"pid": pid, "threads": threads}).encode())


if __name__ == "__main__":
    main()
