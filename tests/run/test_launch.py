"""Local processes of `tfsched run`: what they are told, how they are shown, and that none outlives the job."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

import pytest

TELL = (
    "import json, os, sys\ntask = json.loads(os.environ['TF_CONFIG'])['task']\nname = f\"{task['type']}-{task['index']}\"\n"
)
SLEEP = "import time\ntime.sleep(60)\n"


def test_a_program_runs_as_python_runs_it(start, write, tmp_path):
    text = """
import json, os, sys
print(json.dumps({"argv": sys.argv, "path": sys.path, "name": __name__, "file": __file__, "spec": repr(__spec__),
                  "config": os.environ.get("TF_CONFIG"), "level": os.environ.get("TF_CPP_MIN_LOG_LEVEL"),
                  "log": os.environ.get("TFSCHED_LOG_LEVEL"), "imported": "tensorflow" in sys.modules,
                  "policy": os.environ.get("TFSCHED_POLICY")}))
sys.exit(7)
"""
    program = write(text)
    done = start("run", "--policy=p3", "--nobarrier", program, "--policy", "fifo", "-x", "--", "--help", cwd=tmp_path).wait()
    assert done.code == 7, done.err
    seen = json.loads(done.out)
    assert seen["argv"] == [str(program), "--policy", "fifo", "-x", "--", "--help"]
    assert seen["path"][0] == str(tmp_path) and not any("launch" in path for path in seen["path"])
    assert seen["name"] == "__main__" and seen["file"] == str(program) and seen["spec"] == "None"
    assert seen["config"] is None and seen["level"] == "2" and seen["log"] == "info" and not seen["imported"]
    assert seen["policy"] == "p3"


def test_a_module_runs_and_a_sitecustomize_of_ones_own_is_imported(start, write, tmp_path):
    write("import builtins\nbuiltins.mine = 'mine'\n", "sitecustomize.py")
    write("import sys\nprint(mine, sys.argv[1:], __name__, __spec__.name)\n", "trainer.py")
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")]), os.getcwd()])
    done = start("run", "--seed", "3", "-m", "trainer", "-m", "x", cwd=tmp_path, env={"PYTHONPATH": paths}).wait()
    assert (done.code, done.out) == (0, "mine ['-m', 'x'] __main__ trainer\n"), done.err


def test_processes_get_tf_config_and_their_lines_stay_whole(start, write, tmp_path):
    # A server is ended when all others are done. So they wait until it has printed everything.
    printed_all = tmp_path / "printed_all"
    text = f"""{TELL}
import pathlib, time
print(os.environ["TF_CONFIG"])
for number in range(200):
    sys.stdout.write(f"{{name}} ")
    sys.stdout.flush()
    sys.stdout.write("x" * 200 + f" {{number}}\\n")
print("to stderr", file=sys.stderr, flush=True)
print("no end of line", end="", flush=True)
printed_all = pathlib.Path({str(printed_all)!r})
deadline_s = time.monotonic() + 60
if name == "ps-0":
    printed_all.touch()
while not printed_all.exists() and time.monotonic() < deadline_s:
    time.sleep(0.02)
"""
    done = start("run", "--ps", 1, "--workers=2", "--chief", write(text)).wait()
    assert done.code == 0, done.err
    names = ["ps-0", "worker-0", "worker-1", "chief-0"]
    lines = {
        name: [line.removeprefix(f"[{name}] ") for line in done.out.splitlines() if line.startswith(f"[{name}] ")]
        for name in names
    }
    assert sum(map(len, lines.values())) == len(done.out.splitlines())
    clusters = []
    for name, printed in lines.items():
        config = json.loads(printed[0])
        clusters.append(config["cluster"])
        assert f"{config['task']['type']}-{config['task']['index']}" == name
        assert printed[1:-1] == [f"{name} {'x' * 200} {number}" for number in range(200)]
        assert printed[-1] == "no end of line"
        assert f"[{name}] to stderr\n" in done.err
    assert all(cluster == clusters[0] for cluster in clusters)
    addresses = [address for tasks in clusters[0].values() for address in tasks]
    assert {job: len(tasks) for job, tasks in clusters[0].items()} == {"ps": 1, "worker": 2, "chief": 1}
    assert len(set(addresses)) == 4


@pytest.mark.parametrize(
    ("end", "code", "sentence"),
    [("sys.exit(3)", 3, "failed with exit code 3"), ("os.kill(os.getpid(), 9)", 137, "was ended by signal SIGKILL")],
)
def test_one_that_fails_ends_all(start, write, end, code, sentence):
    # The other ignores SIGTERM, and has a child that does so, too.
    text = f"""{TELL}
import signal, subprocess, time
if name == "worker-1":
    time.sleep(0.5)
    {end}
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
{SLEEP}"""
    begin_s = time.monotonic()
    done = start("run", "--num-processes", 2, "--grace_s=1", write(text)).wait()
    assert done.code == code
    assert f"tfsched: worker-1 {sentence}; all other tasks are ended.\n" in done.err
    assert "tfsched: worker-0 did not end within 1.0 s and is killed.\n" in done.err
    assert time.monotonic() - begin_s < 20
    done.wait_until_none_is_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_go_on_to_all(start, write, number):
    text = f"""{TELL}
import signal, time
def say(number, frame):
    print("heard", number, flush=True)
    time.sleep(0.3)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, say)
signal.signal(signal.SIGTERM, say)
print("ready", flush=True)
{SLEEP}"""
    command = start("run", "--num_processes", 2, write(text))
    command.wait_for_line("ready")
    command.wait_for_line("ready")
    os.kill(command.process.pid, number)
    command.wait()
    assert command.code == 128 + number
    for name in ("worker-0", "worker-1"):
        assert f"[{name}] heard {int(number)}\n[" in command.out or f"[{name}] heard {int(number)}\n" in command.out
        assert f"[{name}] saved\n" in command.out
    command.wait_until_none_is_left()


def test_a_launcher_that_is_killed_takes_its_processes_along(start, write):
    command = start("run", "--num_processes", 2, write("print('ready', flush=True)\n" + SLEEP))
    command.wait_for_line("ready")
    command.wait_for_line("ready")
    os.kill(command.process.pid, signal.SIGKILL)
    command.wait_until_none_is_left()


def test_parameter_servers_are_not_waited_for(start, write):
    text = TELL + "print('began', flush=True)\nif name.startswith('ps'):\n    import time\n    time.sleep(60)\n"
    done = start("run", "--ps", 2, "--workers", 1, write(text)).wait(30)
    assert done.code == 0 and "[worker-0] began" in done.out, done.err
    done.wait_until_none_is_left()


def test_a_reader_that_goes_ends_the_job(start, write):
    command = start("run", "--num_processes", 2, write("while True:\n    print('line', flush=True)\n"))
    command.wait_for_line("line")
    command.process.stdout.close()
    assert command.process.wait(30) == 0
    command.wait_until_none_is_left()


MISTAKES = [
    ([], "got no program"),
    (["/no/such/train.py"], "/no/such/train.py"),
    (["python", "train.py"], "leave it out"),
    (["-m"], "no module"),
    (["--policy", "fast", "{program}"], "--policy=fast"),
    (["--partition_bytes", "10", "{program}"], "TFSCHED_PARTITION_BYTES is 10"),
    (["--plan", "/no/such/plan.json", "{program}"], "/no/such/plan.json"),
    (["--num-processes", "0", "{program}"], "--num_processes"),
    (["--num-processes", "2", "--ps", "1", "{program}"], "--ps"),
    (["--workers", "2", "{program}"], "without --ps"),
    (["--chief", "{program}"], "without --ps"),
    (["--ps", "99", "{program}"], "99 parameter servers"),
]


@pytest.mark.parametrize(("arguments", "words"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_a_mistake_is_one_line(arguments, words, write, monkeypatch, capsys):
    from tfsched import cli

    monkeypatch.setattr(os, "execve", lambda *more: pytest.fail("the program was started"))
    program = write("")
    code = cli.run(["run", *(argument.format(program=program) for argument in arguments)])
    said = capsys.readouterr()
    assert code == 2 and not said.out
    assert words in said.err and len(said.err.strip().splitlines()) == 1, said.err


def test_a_wrong_variable_is_named_before_the_program_starts(start, write):
    done = start("run", write("print('started')"), env={"TFSCHED_POLICY": "fast"}).wait()
    assert (done.code, done.out) == (2, "")
    assert done.err == "tfsched: TFSCHED_POLICY is 'fast'; choose one of auto, fifo, tictac, bytescheduler, p3, prophet.\n"


def test_python_is_the_one_that_runs_tfsched(start, write):
    done = start("run", write("import sys; print(sys.executable)")).wait()
    assert done.out == f"{sys.executable}\n", done.err
