"""A program's own parser gets the flags of the cluster: real programs, each in a process."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path

import pytest

from tests.support.commands import ROOT, Done, python
from tests.support.conditions import lacking
from tests.support.programs import write

CLUSTER = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1"]}
FLAGS = ["--job_name=worker", "--task_index=1"]
HOSTS = ["--ps_hosts=tf1:1", "--worker_hosts=tf2:1,tf3:1"]


def run(
    folder: Path,
    *args: str,
    task: str = "worker-1",
    cluster: dict[str, list[str]] = CLUSTER,
    runner: str = "lab.task.own",
    files: dict[str, str] | None = None,
    **environ: str,
) -> Done:
    write(folder / "program", **(files or {}))
    switches = [arg for arg in args if arg == "--quiet"]
    rest = [arg for arg in args if arg != "--quiet"]
    program = str(folder / "program/main.py")
    of_lab = {"LAB_TASK": task, "LAB_CLUSTER": json.dumps(cluster), "LAB_RUN_DIR": str(folder)}
    return python(
        "-m",
        runner,
        *switches,
        program,
        *rest,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **of_lab, **environ},
    )


def argv(done: Done) -> list[str]:
    """The last line of a program that ends with `ARGV`."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


ARGV = "import json, sys; print(json.dumps(sys.argv[1:]))\n"


def end(source: str) -> dict[str, str]:
    return {"main": f"{source}\n{ARGV}"}


PARSER = "import argparse\np = argparse.ArgumentParser()\n"
ADD = "p.add_argument"
PARSE = "print(vars(p.parse_args()))"
BOTH = f"{ADD}('--job_name')\n{ADD}('--task_index', type=int)\n"
ABSL = "import sys\nfrom absl import flags\n"
OPTS = "import optparse\np = optparse.OptionParser()\n"
CLICK = "import click, atexit\n@atexit.register\ndef end():\n    " + ARGV
SERVER = "def f(tf, c): tf.train.Server(c)\n"
FOUR = ("job_name", "task_index", "ps_hosts", "worker_hosts")

# What each parser declares, and the arguments that it completes.
DECLARED = {
    "a loop": f"{PARSER}for name in {FOUR}:\n    {ADD}(f'--{{name}}')\n{PARSE}",
    "a subclass": "import argparse\nclass P(argparse.ArgumentParser):\n"
    "    def parse_args(self, *a, **k):\n        return super().parse_args(*a, **k)\n"
    f"p = P()\n{BOTH}{PARSE}",
    "the arguments by name": f"import sys\n{PARSER}{BOTH}p.parse_args(args=sys.argv[1:])",
    "a pre-parser": "import argparse\nq = argparse.ArgumentParser(add_help=False)\n"
    "q.add_argument('--config')\nknown, rest = q.parse_known_args()\n"
    f"p = argparse.ArgumentParser(parents=[q])\n{BOTH}f = p.parse_args(rest)\n"
    "assert (f.job_name, f.task_index) == ('worker', 1), f",
    "a parent with the flags": "import argparse\nq = argparse.ArgumentParser(add_help=False)\n"
    "q.add_argument('--job_name')\nknown, rest = q.parse_known_args()\n"
    "p = argparse.ArgumentParser(parents=[q])\n"
    f"{ADD}('--task_index', type=int)\nf = p.parse_args(rest)\n"
    "assert (f.job_name, f.task_index) == ('worker', 1), f",
    "required flags": f"{PARSER}{ADD}('--job_name', required=True, choices=['ps', 'worker'])\n"
    f"{ADD}('--task_index', required=True, type=int)\n{PARSE}",
    "other spellings": f"{PARSER}{ADD}('-t', '--taskIndex', type=int)\n{ADD}('--job-name')\n"
    f"{PARSE}",
    "a short flag": f"{PARSER}{ADD}('-t', dest='task_index', type=int)\n{PARSE}",
    "a dictionary of hosts": f"{PARSER}{ADD}('--ps_hosts', nargs='+')\n"
    f"{ADD}('--worker_hosts', action='append')\n{ADD}('--task_index', type=int)\n"
    "f = p.parse_args()\nassert f.ps_hosts == ['tf1:1']\n"
    "assert f.worker_hosts == ['tf2:1', 'tf3:1']",
    "positional": f"{PARSER}{ADD}('job', choices=['ps', 'worker'])\n{ADD}('index', type=int)\n"
    f"{PARSE}",
    "other positional arguments": f"{PARSER}{BOTH}{ADD}('folder', nargs='?')\n{PARSE}",
    "subcommands": f"{PARSER}s = p.add_subparsers()\nt = s.add_parser('train')\n"
    "t.add_argument('--task_index', type=int)\nt.add_argument('--lr')\n"
    f"{ADD}('--job_name')\nimport sys\nsys.argv[1:] = ['train', '--lr=1']\n"
    "f = p.parse_args()\nassert (f.job_name, f.task_index) == ('worker', 1), f",
    "absl at import": f"{ABSL}flags.DEFINE_string('job_name', '', '')\n"
    "flags.DEFINE_integer('task_index', 0, '')\nflags.FLAGS(sys.argv)\n"
    "assert flags.FLAGS.task_index == 1",
    "absl's other kinds": f"{ABSL}flags.DEFINE_enum('job_name', 'ps', ['ps', 'worker'], '')\n"
    "flags.DEFINE_integer('task_id', 0, '')\nflags.DEFINE_list('ps_hosts', [], '')\n"
    "flags.DEFINE_multi_string('worker_hosts', [], '')\nf = flags.FLAGS\nf(sys.argv)\n"
    "assert (f.job_name, f.task_id, f.ps_hosts) == ('worker', 1, ['tf1:1'])\n"
    "assert f.worker_hosts == ['tf2:1', 'tf3:1']",
    "argparse before absl": f"{ABSL}from absl import app\n{PARSER}{BOTH}_, rest ="
    " p.parse_known_args()\n"
    "flags.DEFINE_string('ps_hosts', '', '')\nflags.FLAGS([sys.argv[0]] + rest)\n"
    "assert flags.FLAGS.ps_hosts == 'tf1:1'",
    "optparse": f"{OPTS}p.add_option('-j', dest='job_name')\n"
    "p.add_option('-t', '--task_index', type='int')\nf, _ = p.parse_args()\n"
    "assert (f.job_name, f.task_index) == ('worker', 1)",
    "click": f"{CLICK}@click.command()\n@click.option('--role', type=click.Choice(['ps',"
    " 'worker']))\n@click.option('--task-index', 'n', type=int)\n"
    "@click.option('--ps-hosts', multiple=True)\n@click.argument('folder', default='.')\n"
    "def main(role, n, ps_hosts, folder):\n    assert (role, n, ps_hosts) == ('worker', 1,"
    " ('tf1:1',))\nmain()",
    "click groups": f"{CLICK}@click.group()\n@click.option('--job-name')\n"
    "def main(job_name):\n    assert job_name == 'worker'\n"
    "@main.command()\n@click.option('--task-index', type=int)\n@click.option('--lr')\n"
    "def train(task_index, lr):\n    assert (task_index, lr) == (1, '2')\n"
    "import sys\nsys.argv[1:] = ['train', '--lr=2']\nmain()",
    # Names that count only in a program with a cluster.
    "names beside a server": f"{SERVER}{PARSER}{ADD}('--role')\n{ADD}('--idx', type=int)\n{PARSE}",
    "names without a cluster": f"{PARSER}{ADD}('--task', type=int)\n{ADD}('--job')\n{PARSE}",
    "a task of another kind": f"{ABSL}flags.DEFINE_integer('task_id', 1, 'of bAbI')\n"
    "flags.FLAGS(sys.argv)",
    "a number of workers": f"{PARSER}{ADD}('--ps_hosts')\n{ADD}('--workers', default=4)\n{PARSE}",
    "a switch": f"{PARSER}{BOTH}{ADD}('--worker', action='store_true')\n{PARSE}",
    "hosts without ports": f"{SERVER}{PARSER}{ADD}('--port', type=int, default=2222)\n"
    f"{ADD}('--ps-host', default='localhost')\n{PARSE}",
    "a job that the config lacks": f"{PARSER}{BOTH}{ADD}('--chief_hosts')\n{PARSE}",
    # No parser of the command line.
    "by hand": "import sys\nprint(sys.argv)",
}  # fmt: skip
COMPLETED = {
    "a loop": [*FLAGS, *HOSTS],
    "a parent with the flags": [*reversed(FLAGS)],
    "other spellings": ["--job-name=worker", "--taskIndex=1"],
    "a short flag": ["-t", "1"],
    "a dictionary of hosts": [
        *("--ps_hosts", "tf1:1", "--task_index=1"),
        *("--worker_hosts=tf2:1", "--worker_hosts=tf3:1"),
    ],
    "positional": ["worker", "1"],
    "subcommands": ["--job_name=worker", "train", "--task_index=1", "--lr=1"],
    "absl's other kinds": [
        *("--job_name=worker", "--task_id=1", "--ps_hosts=tf1:1"),
        *("--worker_hosts=tf2:1", "--worker_hosts=tf3:1"),
    ],
    "argparse before absl": ["--ps_hosts=tf1:1", *FLAGS],
    "optparse": ["-j", "worker", "--task_index=1"],
    "click": ["--role=worker", "--task-index=1", "--ps-hosts=tf1:1"],
    "click groups": ["--job-name=worker", "train", "--task-index=1", "--lr=2"],
    "names beside a server": ["--role=worker", "--idx=1"],
    "names without a cluster": [],
    "a task of another kind": [],
    "a number of workers": ["--ps_hosts=tf1:1"],
    "hosts without ports": ["--ps-host=tf1"],
    "by hand": [],
}
"""The arguments of the programs that do not just get both flags."""


@pytest.mark.parametrize("name", DECLARED)
def test_a_parser_gets_what_it_declares_and_children_do(name: str, tmp_path: Path) -> None:
    for module in {"absl", "click"} & set(name.split()):
        if importlib.util.find_spec(module) is None:
            lacking(f"{module} is not installed")
    args = ["--config=x"] if name == "a pre-parser" else []
    done = run(tmp_path, *args, files=end(DECLARED[name]))
    assert argv(done) == [*COMPLETED.get(name, FLAGS), *args]


@pytest.mark.parametrize(
    ("source", "args", "expected"),
    [
        # The user's flags stay as they are.
        (f"{PARSER}{BOTH}{PARSE}", ["--task_index=7"], ["--job_name=worker", "--task_index=7"]),
        (f"{PARSER}{BOTH}{PARSE}", ["--task_index", "7"], [FLAGS[0], "--task_index", "7"]),
        (f"{PARSER}{BOTH}assert p.parse_args().task_index == 7", ["--task_i=7"],
         [*FLAGS, "--task_i=7"]),
        (f"{PARSER}{ADD}('job')\n{ADD}('index')\n{PARSE}", ["ps", "0"], ["ps", "0"]),
        (f"{OPTS}p.add_option('--ps_hosts')\np.parse_args()", ["--ps_hosts=a"], ["--ps_hosts=a"]),
        # A program that parses twice gets them once.
        (f"{PARSER}{BOTH}p.parse_args()\np.parse_args()", [], FLAGS),
        (f"{PARSER}{BOTH}p.parse_known_args()\np.parse_args()", [], FLAGS),
        # Another argument list is not the process's.
        (f"{PARSER}{BOTH}p.parse_args([])\np.parse_args(['--task_index=7'])", ["x"], ["x"]),
        # A program reads `sys.argv` itself.
        ("import sys\nfolder = sys.argv[1]", ["models"], ["models"]),
    ],
)  # fmt: skip
def test_what_the_user_gives_stays(
    source: str, args: list[str], expected: list[str], tmp_path: Path
) -> None:
    assert argv(run(tmp_path, *args, files=end(source))) == expected


def test_values_are_checked_by_the_programs_own_types(tmp_path: Path) -> None:
    source = f"{PARSER}{ADD}('--job_name', choices=['ps', 'trainer'])\n{PARSE}"
    done = run(tmp_path, files=end(source))
    assert done.returncode == 2
    assert "argument --job_name: invalid choice: 'worker'" in done.stderr.splitlines()[-1]


MODULE = f"{PARSER}{BOTH}flags = p.parse_args()\n"


@pytest.mark.parametrize(
    ("main", "modules"),
    [
        ("import part", {"part": MODULE}),
        ("import importlib\nimportlib.import_module('pa' + 'rt')", {"part": MODULE}),
        ("from pkg.part import flags", {"pkg__in____init__": "", "pkg__in__part": MODULE}),
        ("exec(open(__file__.replace('main', 'part')).read())", {"part": MODULE}),
        # Only what runs is declared.
        ("import part", {"part": f"{PARSER}if __name__ != '__main__':\n    {ADD}('--job_name')\n"
                                 f"    {ADD}('--task_index')\n{PARSE}"}),
    ],
)  # fmt: skip
def test_flags_of_modules(main: str, modules: dict[str, str], tmp_path: Path) -> None:
    assert argv(run(tmp_path, files={**end(main), **modules})) == FLAGS


SPAWNED = f"""\
{PARSER}{BOTH}flags = p.parse_args()
import multiprocessing
def show(number):
    print(flags.job_name, flags.task_index, number, flush=True)
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(show, [3])
"""


def test_a_spawned_process_parses_the_same_at_module_level(tmp_path: Path) -> None:
    done = run(tmp_path, files={"main": SPAWNED})
    assert (done.returncode, done.stdout) == (0, "worker 1 3\n"), done.stderr


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"{ADD}('--task_index', type=int)\n", ["--task_index=3"]),
        (f"{SERVER}{ADD}('--rank', type=int)\n", ["--rank=3"]),
        # Beside a job, the index is that of the task.
        (BOTH, FLAGS),
    ],
)
def test_each_rank_of_a_task_with_two_gpus_gets_its_own(
    source: str, expected: list[str], tmp_path: Path
) -> None:
    files = end(f"{PARSER}{source}{PARSE}")
    assert argv(run(tmp_path, "--quiet", files=files, RANK="3", LOCAL_RANK="1")) == expected


TORCH_RANK = {
    **{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "GROUP_RANK": "1"},
    **{"GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "tf2", "MASTER_PORT": "1"},
}
JAX_RANK = {
    **{"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2", "JAX_COORDINATOR_ADDRESS": "tf2:1"},
}


def flags(*declared: str) -> str:
    return PARSER + "".join(f"{ADD}({each})\n" for each in declared) + PARSE


@pytest.mark.parametrize(
    ("source", "variables", "expected"),
    [
        (flags("'--local_rank', type=int, default=-1"), TORCH_RANK, ["--local_rank=1"]),
        (flags("'--local-rank', type=int"), TORCH_RANK, ["--local-rank=1"]),
        (flags("'--world-size', type=int, default=-1", "'--rank', type=int, default=-1",
               "'--dist-url', default='tcp://10.0.0.1:23456'"), TORCH_RANK,
         ["--rank=3", "--world-size=4", "--dist-url=env://"]),
        (flags("'--node_rank', default=0, type=int", "'--nnodes', type=int", "'--master_addr'",
               "'--master_port', type=str, default='12355'", "'--init-method'"), TORCH_RANK,
         ["--node_rank=1", "--nnodes=2", "--master_addr=tf2", "--master_port=1",
          "--init-method=env://"]),
        (f"{ABSL}flags.DEFINE_integer('local_rank', -1, '')\nflags.FLAGS(sys.argv)", TORCH_RANK,
         ["--local_rank=1"]),
        (flags("'--coordinator'", "'--num-processes', type=int, default=1",
               "'--process-id', type=int, default=0"), JAX_RANK,
         ["--process-id=1", "--num-processes=2", "--coordinator=tf2:1"]),
        (flags("'--process_index', type=int", "'--world_size', type=int"), JAX_RANK,
         ["--process_index=1", "--world_size=2"]),
        # Not the flags of a rank: processes that the program starts, a matrix, images.
        (flags("'--num-processes', type=int, default=2"), TORCH_RANK, []),
        (flags("'--rank', type=int, default=8"), TORCH_RANK, []),
        (flags("'--local_rank', action='store_true'"), TORCH_RANK, []),
        # A flag of a rank does not show a cluster of jobs.
        (flags("'--local_rank', type=int", "'--task', type=int, default=0"), TORCH_RANK,
         ["--local_rank=1"]),
        # A run without ranks.
        (flags("'--local_rank', type=int", "'--rank', type=int", "'--world_size'"), {}, []),
    ],
)  # fmt: skip
def test_a_rank_gets_its_own_values(
    source: str, variables: dict[str, str], expected: list[str], tmp_path: Path
) -> None:
    assert argv(run(tmp_path, "--quiet", files=end(source), **variables)) == expected


def test_the_users_flags_of_a_rank_stay(tmp_path: Path) -> None:
    source = flags("'--rank', type=int", "'--world_size', type=int")
    done = run(tmp_path, "--quiet", "--rank", "0", files=end(source), **TORCH_RANK)
    assert argv(done) == ["--world_size=4", "--rank", "0"]


def test_each_process_of_torchrun_fills_in_the_placeholders_of_a_rank(tmp_path: Path) -> None:
    files = {"main": f"import os\nprint(os.environ['MINE'])\n{ARGV}"}
    started = {**TORCH_RANK, "TORCHELASTIC_USE_AGENT_STORE": "True", "MINE": "{rank}:{x}"}
    done = run(tmp_path, "--quiet", "--r={rank}/{size}", "{local_rank}", files=files, **started)
    assert argv(done) == ["--r=3/4", "1"]
    assert done.stdout.startswith("3:{x}\n")


def test_a_program_with_placeholders_gets_nothing_else(tmp_path: Path) -> None:
    """The agent passes no cluster then."""
    folder = tmp_path / "program"
    write(folder, **end(f"{PARSER}{BOTH}{PARSE}"))
    environ = {name: value for name, value in os.environ.items() if name != "LAB_CLUSTER"}
    done = python("-m", "lab.task.own", folder / "main.py", "--task_index=0", cwd=ROOT, env=environ)
    assert argv(done) == ["--task_index=0"]


def test_parsers_work_beside_a_module_of_the_program_named_lab(tmp_path: Path) -> None:
    files = {"main": f"import lab\n{PARSER}{BOTH}{PARSE}\n{ARGV}", "lab": ""}
    assert argv(run(tmp_path, files=files)) == FLAGS


def warning(folder: Path, source: str, *args: str, task: str = "worker-0", **more: str) -> str:
    done = run(folder, *args, task=task, files={"main": source, **more})
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("warning: ")]
    assert len(lines) < 2
    return "".join(lines)


UNKNOWN = f"{PARSER}{ADD}('--kind')\n{ADD}('-v', action='count')\n{PARSE}"
NO_INDEX = f"{PARSER}{ADD}('--job_name', default='worker')\n{PARSE}"


def test_a_program_that_cannot_know_its_place_has_a_warning(tmp_path: Path) -> None:
    both = (
        "warning: main.py declares no flag that lab knows for its job or index, and does not read"
        " TF_CONFIG: its tasks would all start identically; write {job} and {index} after --, as"
        " in --name={job}"
    )
    assert warning(tmp_path, UNKNOWN) == both
    absl = f"{ABSL}flags.DEFINE_string('kind', '', '')\nflags.FLAGS(sys.argv)"
    assert warning(tmp_path, absl) == both
    assert warning(tmp_path, NO_INDEX) == (
        "warning: main.py declares no flag that lab knows for its index, and does not read"
        " TF_CONFIG: its tasks would all start identically; write {index} after --, as in"
        " --name={index}"
    )


@pytest.mark.parametrize(
    ("source", "args", "task", "more"),
    [
        (f"{PARSER}{BOTH}{PARSE}", [], "worker-0", {}),
        # One task says it for all, unless it has a program of its own.
        (UNKNOWN, [], "worker-1", {}),
        (UNKNOWN, [], "ps-0", {}),
        (UNKNOWN, ["--quiet"], "worker-0", {}),
        # A pre-parser is not the last.
        (f"{PARSER}p.parse_known_args()\n", [], "worker-0", {}),
        # What it reads in place of flags, here or in a module.
        (f"{UNKNOWN}\nimport os\nos.environ.get('TF_CONFIG')", [], "worker-0", {}),
        (UNKNOWN, [], "worker-0", {"net": "s = tf.distribute.MultiWorkerMirroredStrategy()"}),
        (f"{UNKNOWN}\nimport socket\nname = socket.gethostname()", [], "worker-0", {}),
    ],
)
def test_a_program_that_may_know_its_place_has_none(
    source: str, args: list[str], task: str, more: dict[str, str], tmp_path: Path
) -> None:
    assert warning(tmp_path, source, *args, task=task, **more) == ""


def test_tasks_that_are_alone_need_no_flags(tmp_path: Path) -> None:
    done = run(tmp_path, task="worker-0", cluster={"worker": ["tf1:1"]}, files=end(UNKNOWN))
    assert (done.returncode, done.stderr) == (0, "")
