"""A step that waits for a task which does not answer, and the connections it waits at; runs inside of its task."""

import socket

import tensorflow as tf

from . import common

v1 = tf.compat.v1
_BEGUN = "begun"


def wait_for_another_worker(task, options):
    """ps0 receives a value that worker0 makes when it is given an element of its queue, which nobody fills.

    Returns:
      The error's class and message.
    """
    with tf.Graph().as_default():
        with tf.device("/job:worker/task:0"):
            begun = v1.FIFOQueue(1, [tf.bool], shapes=[[]], shared_name=_BEGUN).enqueue(True)
            with tf.control_dependencies([begun]):
                made = v1.FIFOQueue(1, [tf.float32], shapes=[[4096]], shared_name="filled by nobody").dequeue()
        with tf.device("/job:ps/task:0"):
            received = tf.identity(made) + 1.0
        with v1.Session(task.target, config=common.session_config(task, options)) as session:
            try:
                session.run(received.op)
            except tf.errors.OpError as error:
                return type(error).__name__, str(error)
    return None


def began(task):
    """Whether worker0, whose task this is, has begun its part of the step."""
    with tf.Graph().as_default():
        size = v1.FIFOQueue(1, [tf.bool], shapes=[[]], shared_name=_BEGUN).size()
        with v1.Session(task.target) as session:
            return bool(session.run(size))


def questions(task, port):
    """Of this process's connections to ``port``: seconds until the kernel asks the peer, 0 where it never does."""
    found = []
    for one in _connections(port):
        asks = one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        found.append(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) if asks else 0)
    return found


def given_up_after_s(task, port):
    """Of this process's connections to ``port``: seconds until the kernel gives a silent one up, 0 where TCP decides."""
    return [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) / 1000 for one in _connections(port)]


def _connections(port):
    for one in common.tcp_sockets():
        with one:
            try:
                peer = one.getpeername()[1]
            except OSError:  # it listens, or was closed since
                continue
            if peer == port:
                yield one
