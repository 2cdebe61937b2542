"""Every program in examples/ runs as a user would run it, trains, and has its transfers ordered."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = sorted(
    path.name for path in (ROOT / "examples").glob("*.py") if path.name not in ("local_cluster.py", "bench_model.py")
)
LIMIT_S = 150


def environment():
    """A user's, with this tree's package and neither a cluster nor a proxy of the machine's own."""
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy") and key != "TF_CONFIG"}
    paths = [str(ROOT), *filter(None, [kept.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "1"}


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / name)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # the tasks are of its group
    assert process.returncode == 0, printed[-3000:]
    ordered = re.search(r"(\d+) transfers of (?:the parameter server|this worker) were ordered", printed)
    assert ordered and int(ordered[1]) > 100, printed[-3000:]
    losses = [float(number) for number in re.findall(r"loss:? (\d+\.\d+)", printed)]
    assert losses[-1] < losses[0] / 2, printed[-3000:]


def test_there_is_one_for_each_api():
    apis = ["custom_loop.py", "horovod_style.py", "keras3.py", "keras_fit.py", "mirrored.py", "session.py"]
    assert ["autotune.py", *apis] == EXAMPLES
