"""The arguments that describe the cluster to a program: found from the flags it declares."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.errors import InputError
from lab.program import parse_map
from lab.program.cluster_arguments import find_arguments, has_placeholders
from lab.program.own import read_program
from lab.volume.run_spec import fill_in

JOBS = ("ps", "worker")


def arguments(
    source: str, jobs: tuple[str, ...] = JOBS, given: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    tree = ast.parse(source)
    return find_arguments({Path("main.py"): tree}, jobs, given or {}).templates


ADD = "p.add_argument"
SERVER = "s = tf.train.Server(c)\n"
PORT = f"{SERVER}{ADD}('--port', type=int, default=2222)\n"


PROGRAMS = [
    # No parser, or one without a flag for the cluster.
    "import os; print(os.environ['TF_CONFIG'])",
    "import sys; print(sys.argv[1])",
    f"{ADD}('--epochs')",
    # lab's own parser.
    "from lab.task.sdk.flags import parse, experiment_flags",
    "from lab.task.sdk import flags\nflags.parse(flags.task_flags('mine'))",
    "import lab.task.sdk.flags\nlab.task.sdk.flags.task_flags('mine')",
    # lab's data with a parser of the program's own.
    f"from lab.task.sdk.data import load_mnist\n{ADD}('--task_index')",
    f"from lab.task.sdk.flags import hosts\n{ADD}('--epochs')",
    # The ways to declare a flag.
    f"{SERVER}{ADD}('--job_name')\n{ADD}('--task_id')",
    f"{ADD}('-t', '--task_index', '--task_id')",
    f"{ADD}('-task_index')",
    f"{ADD}('-t', dest='task_index', type=int)",
    "tf.app.flags.DEFINE_string('ps_hosts', '', '')",
    "flags.DEFINE_integer(name='task_index', default=0)",
    "f.DEFINE_integer(flag_name='task_index', default_value=0)",
    "@click.option('--worker-index')\ndef main(): pass",
    "@click.option('--at', 'task_index')\ndef main(): pass",
    # The description of a flag is not its name.
    "flags.DEFINE_string('mode', default='task_index', help='job_name')",
    # Positional arguments, if all are known.
    f"{ADD}('job', choices=['ps', 'worker'])\n{ADD}('index', type=int)",
    f"{ADD}('task_index')\n{ADD}('folder')",
    # Arguments that a program takes apart itself, and names that it computes: it has a notice.
    "import sys\ni = sys.argv.index('--task_index')",
    "for name in NAMES:\n    p.add_argument(f'--{name}')",
    # Names in a loop over texts.
    "for name in ('job_name', 'task_index', 'epochs'):\n    p.add_argument(f'--{name}')",
    "for name in ['--job-name', '--task-index']:\n    p.add_argument(name)",
    "for name in ('job_name', 'ps_hosts'):\n    flags.DEFINE_string(name, '', '')",
    "for job in ('ps', 'worker'):\n    p.add_argument('--%s_hosts' % job)",
    "for job in ('ps', 'worker'):\n    p.add_argument('--' + job + '_hosts')",
    "flags.DEFINE_string(name, 'worker', '')",
    # Spellings.
    f"{ADD}('--jobName')\n{ADD}('--taskIndex')",
    f"{ADD}('--pshosts')",
    # Other names.
    f"{ADD}('--task_type', default='worker')\n{ADD}('--index', type=int, default=0)\n"
    f"{ADD}('--workers', default='localhost:1')",
    f"{ADD}('--worker-type')\n{ADD}('--worker-index', type=int)\n{ADD}('--ps-hosts')",
    f"{ADD}('--parameter_servers')\n{ADD}('--workers')",
    f"{ADD}('--role', choices=['ps', 'worker'])\n{ADD}('--rank', type=int)",
    f"{ADD}('--kind', choices=['ps', 'worker'])",
    "tf.train.ClusterSpec(c)\n" + f"{ADD}('--job')\n{ADD}('--task', type=int)",
    "tf.train.Server(c)\n" + f"{ADD}('--role')\n{ADD}('--idx', type=int)",
    f"{SERVER}{ADD}('--task_id', type=int)\n{ADD}('--ps')\n{ADD}('--worker')",
    f"{ADD}('--job_name')\n{ADD}('--task_id', type=int)\n{ADD}('--ps')",
    # Names with other meanings.
    f"{ADD}('--workers', type=int, default=4)",
    f"{ADD}('--ps_hosts')\n{ADD}('--workers', default=4)",
    f"{ADD}('--ps_hosts')\n{ADD}('--worker', action='store_true')",
    f"{ADD}('--ps_hosts')\n{ADD}('--workers', default=-1)",
    f"{ADD}('--job_name')\n{ADD}('--partition')",
    "flags.DEFINE_integer('task_id', 1, 'the task of bAbI')",
    "flags.DEFINE_integer('task_id', 1, '')\nflags.DEFINE_integer('task_index', 0, '')",
    f"{ADD}('--task_type', default='classification')\n{ADD}('--task_id', type=str)",
    f"{ADD}('--task_type', choices=['sum'])\n{ADD}('--rank', type=int)",
    f"{ADD}('--task', type=str)\n{ADD}('--job')\n{ADD}('--model')",
    f"{ADD}('--worker')\n{ADD}('--index')\n{ADD}('--id')",
    f"{ADD}('--workers')\n{ADD}('--ps', type=int)",
    "numbers.add('--task_index', 1); print('--job_name')",
    # How a flag takes the addresses.
    f"{ADD}('--task_index')\n{ADD}('--ps_hosts', nargs='+')",
    "flags.DEFINE_list('ps_hosts', [], '')",
    # A program with a flag for the port adds it to the hosts.
    f"{PORT}{ADD}('--ps-host', type=str, default='localhost')\n"
    f"{ADD}('--worker-host', type=str, nargs='*', default=['localhost'])",
    f"{PORT}{ADD}('--ps_hosts', default='a,b')",
    f"{PORT}{ADD}('--ps_hosts', default='a:1,b:1')",
    f"{PORT}{ADD}('--ps_hosts', default='')",
    f"{ADD}('--ps_hosts', default='p0')",
    "flags.DEFINE_multi_string('ps_hosts', [], '')",
    f"{ADD}('--ps_hosts', action='append')",
]


def test_a_program_gets_the_arguments_that_it_declares(snapshot: SnapshotAssertion) -> None:
    assert {source: " ".join(arguments(source)) for source in PROGRAMS} == snapshot


def test_every_job_of_the_config_has_its_addresses() -> None:
    source = "\n".join(f"{ADD}('--{job}_hosts')" for job in ("ps", "worker", "chief", "shelf"))
    assert arguments(source, ("chief", "worker")) == (
        "--chief_hosts={chief_hosts}",
        "--worker_hosts={worker_hosts}",
    )
    assert arguments(source, ("shelf",)) == ("--shelf_hosts={shelf_hosts}",)


@pytest.mark.parametrize(
    ("given", "templates"),
    [
        ("kind=job_name", ("--kind={job}",)),
        ("kind=job_name,number=task_index", ("--kind={job}", "--number={index}")),
        ("--number=task_index", ("--number={index}",)),
        # The program's spelling and form, also where the user writes another.
        ("all-machines=worker_hosts", ("--all_machines", "{worker_hosts...}")),
        # A flag whose declaration lab does not see.
        ("hidden=task_index", ("--hidden={index}",)),
        ("n=task_index", ("-n", "{index}")),
        # With a known flag, vague names are clear.
        ("kind=job_name", ("--kind={job}",)),
    ],
)
def test_the_user_names_what_a_flag_means(given: str, templates: tuple[str, ...]) -> None:
    source = f"{ADD}('--kind')\n{ADD}('--number')\n{ADD}('--all_machines', nargs='*')"
    assert arguments(source, given=parse_map(given)) == templates


def test_a_flag_that_the_user_names_replaces_the_known_one() -> None:
    source = f"{ADD}('--task_index')\n{ADD}('--number')\n{ADD}('--job')"
    assert arguments(source, given={"number": "task_index"}) == ("--job={job}", "--number={index}")


@pytest.mark.parametrize("text", ["", "kind", "=job_name", "kind=", "--=job_name", "a=b,"])
def test_a_meaning_has_a_form(text: str) -> None:
    with pytest.raises(ValueError, match="FLAG=MEANING, such as task_type=job_name"):
        parse_map(text)


@pytest.mark.parametrize(
    ("arguments", "given", "error"),
    [
        ((), {"kind": "job_nam"}, "--map kind=job_nam: no meaning 'job_nam'; did you mean "),
        ((), {"kind": "chief_hosts"}, "use job_name, task_index, ps_hosts or worker_hosts"),
        (
            ("--c={chief_hosts}",),
            {},
            "{chief_hosts}: the config has no job 'chief'; use {ps_hosts}",
        ),
        (("{job}",), {"kind": "job_name"}, "--map has no effect beside a placeholder after --"),
    ],
)
def test_unknown_meanings_and_placeholders_are_refused(
    arguments: tuple[str, ...], given: dict[str, str], error: str
) -> None:
    with pytest.raises(InputError) as caught:
        has_placeholders(arguments, JOBS, given)
    assert error in str(caught.value)


def test_braces_of_the_program_are_no_placeholders() -> None:
    assert not has_placeholders(('{"job": {}}', "{indexes}", "{}"), JOBS, {})
    assert has_placeholders(("--workers={worker_hosts}",), JOBS, {})


# ---- The templates.

CLUSTER = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1"], "chief": []}


@pytest.mark.parametrize(
    ("template", "arguments"),
    [
        ("--job={job}", ["--job=worker"]),
        ("{job}-{index}", ["worker-1"]),
        ("--workers={worker_hosts}", ["--workers=tf2:1,tf3:1"]),
        ("--all=ps|{ps_hosts},worker|{worker_hosts}", ["--all=ps|tf1:1,worker|tf2:1,tf3:1"]),
        ("{worker_hosts...}", ["tf2:1", "tf3:1"]),
        ("--host={worker_hosts...}@{index}", ["--host=tf2:1@1", "--host=tf3:1@1"]),
        ("--hosts={worker_names}", ["--hosts=tf2,tf3"]),
        ("{worker_names...}", ["tf2", "tf3"]),
        ("--plain", ["--plain"]),
        ('{"a": {}, "index": 0}', ['{"a": {}, "index": 0}']),
        ("--chiefs={chief_hosts}", []),
        ("{evaluator_hosts...}", []),
    ],
)
def test_a_template_is_filled_in_for_a_task(template: str, arguments: list[str]) -> None:
    assert list(fill_in(template, "worker", 1, CLUSTER)) == arguments


# ---- The parsers themselves.

ARGPARSE = "import argparse\np = argparse.ArgumentParser()\n{}\nfound = vars(p.parse_args())\n"
ABSL = "import sys\nfrom absl import flags\n{}\nf = flags.FLAGS\nf(sys.argv)\n"
REAL = {
    "words": ARGPARSE.format(
        f"{ADD}('--task-type')\n{ADD}('--task-number', type=int)\n{ADD}('--ps_hosts', nargs='*')\n"
        f"{ADD}('--workers', action='append')"
    )
    + "got = [found[k] for k in ('task_type', 'task_number', 'ps_hosts', 'workers')]",
    "positional": ARGPARSE.format(
        f"{ADD}('job', choices=['ps', 'worker'])\n{ADD}('index', type=int)\n"
        f"{ADD}('--ps_hosts', nargs='+')\n{ADD}('-W', '--worker_hosts', nargs='+')"
    )
    + "got = [found[k] for k in ('job', 'index', 'ps_hosts', 'worker_hosts')]",
    "absl": ABSL.format(
        "flags.DEFINE_enum('job_name', 'ps', ['ps', 'worker'], '')\n"
        "flags.DEFINE_integer('task_id', 0, '')\nflags.DEFINE_list('ps_hosts', [], '')\n"
        "flags.DEFINE_multi_string('worker_hosts', [], '')"
    )
    + "got = [f.job_name, f.task_id, f.ps_hosts, f.worker_hosts]",
    "optparse": "import optparse\np = optparse.OptionParser()\n"
    "p.add_option('-j', dest='job_name')\np.add_option('-t', dest='task_index', type='int')\n"
    "p.add_option('--ps')\np.add_option('--workers')\nfound, _ = p.parse_args()\n"
    "got = [found.job_name, found.task_index, found.ps.split(','), found.workers.split(',')]",
    "getopt": "import getopt, sys\n"
    "d = dict(getopt.getopt(sys.argv[1:], '', ['jobName=', 'taskIndex=', "
    "'psHosts=', 'workerHosts='])[0])\n"
    "got = [d['--jobName'], int(d['--taskIndex']), d['--psHosts'].split(','),"
    " d['--workerHosts'].split(',')]",
    "click": "import click\n@click.command()\n"
    "@click.option('--role', type=click.Choice(['ps', 'worker']))\n"
    "@click.option('--task-index', 'n', type=int)\n@click.option('--ps-hosts', multiple=True)\n"
    "@click.option('--worker-hosts')\n"
    "def main(role, n, ps_hosts, worker_hosts):\n"
    "    return [role, n, list(ps_hosts), worker_hosts.split(',')]\n"
    "got = main(standalone_mode=False)",
}
"""Programs with a parser of each kind; `got` has what the program received."""


@pytest.mark.parametrize("kind", REAL)
def test_each_task_receives_its_own_values(kind: str, tmp_path: Path) -> None:
    cluster = {"ps": ["tf1:1"], "worker": ["tf2:1", "tf3:1"]}
    program = tmp_path / "main.py"
    program.write_text(f"{REAL[kind]}\nimport json\nprint(json.dumps(got))\n", encoding="utf-8")
    own = read_program(str(program), jobs={"ps": 1, "worker": 2})
    assert own.notice == ""
    for job, index in (("ps", 0), ("worker", 1)):
        filled = [each for one in own.cluster_args for each in fill_in(one, job, index, cluster)]
        done = subprocess.run(
            [sys.executable, program, *filled], check=True, capture_output=True, text=True
        )
        assert json.loads(done.stdout) == [job, index, cluster["ps"], cluster["worker"]]


# ---- The modules of a program.


def read(folder: Path, **sources: str) -> tuple[str, ...]:
    for name, source in sources.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    return read_program(str(folder / "main.py"), jobs={"ps": 1, "worker": 1}).cluster_args


INDEX = "p.add_argument('--task_index')\n"
GOT = ("--task_index={index}",)


@pytest.mark.parametrize(
    ("main", "module", "templates"),
    [
        ("import part", INDEX, GOT),
        (f"import part\n{ADD}('--epochs')", "import deep", GOT),
        ("from pkg import part", INDEX, ()),
        ("from pkg.part import flags", "", GOT),
        ("import part", f"def read():\n    {INDEX}flags = read()", GOT),
        ("import part; part.read()", f"def read():\n    {INDEX}", GOT),
        ("from part import read as get; get()", f"def read():\n    {INDEX}", GOT),
        # What runs only if the module is the program.
        ("import part", f"if __name__ == '__main__':\n    {INDEX}", ()),
        ("import part", f"def main():\n    {INDEX}\nif __name__ == '__main__':\n    main()", ()),
        (
            "import part",
            f"def read():\n    {INDEX}\ndef main():\n    read()\nif '__main__' == __name__: main()",
            (),
        ),
        # Modules that the source does not name.
        ("import importlib\nimportlib.import_module(name)", INDEX, GOT),
        ("part = __import__(name)", INDEX, GOT),
        ("part = __import__('part')", INDEX, GOT),
        ("import importlib\npart = importlib.import_module('part')", "", ()),
        ("x = 1", INDEX, ()),
    ],
)  # fmt: skip
def test_flags_of_the_modules_that_run_count(
    main: str, module: str, templates: tuple[str, ...], tmp_path: Path
) -> None:
    pkg = {"pkg__in____init__": "", "pkg__in__part": INDEX} if "pkg.part" in main else {}
    assert read(tmp_path, main=main, part=module, deep=INDEX, broken="print 1", **pkg) == templates
