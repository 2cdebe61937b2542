"""One task of a test's cluster: hosts a server and runs scenarios on request.

Started as ``python task.py SPEC``. Reads JSON lines ``{"id", "scenario", "arguments"}`` from stdin and writes one answer
for each to stdout, whichever is ready first. Ends with its parent.
"""

import importlib
import json
import os
import sys
import threading
import time
import traceback

STOCK = "grpc"
COORDINATOR = "chief"
LEAVE = "leave"  # no scenario: the task's own end
THREAD_S = 10  # for a thread that has answered to end


class Task:
    """What a scenario is given: where it runs, and what earlier scenarios left behind.

    Attributes:
      spec: the cluster ("cluster"), this task ("job", "index") and its "protocol".
      target: the master in this process, "grpc://127.0.0.1:port"; None in a coordinator.
      state: anything that later scenarios in this process need.
    """

    def __init__(self, spec):
        import tensorflow as tf

        self.spec = spec
        self.state = {}
        # A stock task has to be stock: without the library in its process.
        if spec["protocol"] != STOCK or spec["load"]:
            import tfsched

            tfsched.load()
        # Two cores are to be expected, and the order of a sum must not depend on the number of threads.
        config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=4)
        if spec["job"] == COORDINATOR or spec["mirrored"]:  # its eager context starts a server of its own
            self.server = self.target = None
            tf.config.threading.set_intra_op_parallelism_threads(1)
            return
        arguments = {"job_name": spec["job"], "task_index": spec["index"], "config": config}
        if spec["protocol"] == STOCK:
            self.server = tf.distribute.Server(spec["cluster"], protocol=STOCK, **arguments)
        else:
            self.server = tfsched.Server(spec["cluster"], **arguments)
        self.target = self.server.target

    def run(self, scenario, arguments):
        """Runs ``scenario``, "module.function" in the package scenarios or, with dots in the module's name, anywhere."""
        module, _, function = scenario.rpartition(".")
        found = importlib.import_module(module if "." in module else "scenarios." + module)
        return getattr(found, function)(self, **arguments)


def _answer(request, task, put):
    try:
        put({"id": request["id"], "result": task.run(request["scenario"], request["arguments"])})
    except BaseException as error:  # the test has to hear of any failure
        traceback.print_exc()
        put({"id": request["id"], "error": type(error).__name__, "message": str(error)})


def _end_with_parent():
    """Ends the task when its parent is gone, even while a scenario hangs."""
    parent = os.getppid()

    def watch():
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main():
    """Serves one task until the parent closes stdin, or asks it to leave."""
    # TensorFlow and its libraries print as they like: keep stdout for answers only.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _end_with_parent()
    lock = threading.Lock()

    def put(answer):
        with lock:
            answers.write(json.dumps(answer) + "\n")
            answers.flush()

    task = Task(json.loads(sys.argv[1]))
    threads = []
    put({"id": 0, "result": None})
    for line in sys.stdin:
        request = json.loads(line)
        if request["scenario"] == LEAVE:
            # One that has answered may still hold the session: to close it while Python ends would abort the process, in
            # stock TensorFlow as well.
            for thread in threads:
                thread.join(THREAD_S)
            return  # as any program ends: with all that Python and TensorFlow do then
        # A thread each: a scenario may hang, and another is to end it.
        threads = [thread for thread in threads if thread.is_alive()]
        threads.append(threading.Thread(target=_answer, args=(request, task, put), daemon=True))
        threads[-1].start()
    # A server cannot be stopped from Python, and an orderly exit may wait for its peers for ever.
    os._exit(0)


if __name__ == "__main__":
    main()
