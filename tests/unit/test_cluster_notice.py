"""The notice that a program does not form the cluster of the config."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from lab.program.own import read_program

PS = {"ps": 1, "worker": 2}
TWO = {"worker": 2}
ONE_EACH = {"ps": 1, "worker": 1}
ONE = {"worker": 1}

FLAGS = "p.add_argument('--job_name')\np.add_argument('--task_index')\n"


def notice(folder: Path, source: str, jobs: dict[str, int], *args: str, **given: str) -> str:
    (folder / "main.py").write_text(source, encoding="utf-8")
    return read_program(str(folder / "main.py"), jobs=jobs, argv=args, given=given).notice


@pytest.mark.parametrize(
    "source",
    [
        FLAGS,
        "c = {'ps': ['localhost:1'], 'worker': ['localhost:2', 'localhost:3']}\n" + FLAGS,
        "import os, json\ncluster = json.loads(os.environ['TF_CONFIG'])",
        "import os\nif 'TF_CONFIG' not in os.environ: os.environ['TF_CONFIG'] = '{}'",
        "r = tf.distribute.cluster_resolver.TFConfigClusterResolver()",
        "s = tf.distribute.experimental.MultiWorkerMirroredStrategy()",
        "s = tf.distribute.MultiWorkerMirroredStrategy()",
        "from tensorflow.distribute.experimental import ParameterServerStrategy as P\n"
        "s = tf.distribute.experimental.ParameterServerStrategy(r)",
        "s = tf.contrib.distribute.CollectiveAllReduceStrategy()",
        "e = tf.estimator.DNNClassifier([], [])",
        "e = tf.compat.v1.estimator.Estimator(f)",
        "from tensorflow import estimator",
        "from tensorflow.python.estimator import run_config",
        "c = tf.contrib.learn.RunConfig()",
        "import horovod.tensorflow as hvd",
        "from horovod import keras",
        "import horovod.tensorflow.keras as hvd\np.add_argument('--epochs')",
        "import os\nrank = os.environ['SLURM_PROCID']",
        "import os\ntask = os.environ.get('LAB_TASK')",
        "r = tf.distribute.cluster_resolver.SlurmClusterResolver()",
        "import socket\nname = socket.gethostname()",
        "from lab.task.sdk.flags import experiment_flags",
    ],
)
def test_a_program_that_forms_its_cluster_has_no_notice(source: str, tmp_path: Path) -> None:
    assert notice(tmp_path, source, PS) == ""


def test_addresses_of_other_hosts_have_a_notice(tmp_path: Path) -> None:
    cluster = "c = tf.train.ClusterSpec({'ps': ['192.168.1.4:80'], 'worker': ['192.168.1.5:80']})\n"
    assert notice(tmp_path, FLAGS + cluster, PS) == (
        "main.py has addresses of other hosts in its source, such as 192.168.1.4:80: its tasks do"
        " not find each other; replace them by NODE:PORT of the config"
    )
    hosts = "p.add_argument('--ps_hosts', default='192.168.1.4:80')\n"
    assert notice(tmp_path, FLAGS + hosts + cluster, PS) == ""
    assert notice(tmp_path, FLAGS + cluster.replace("192.168.1", "127.0.0"), PS) == ""
    assert notice(tmp_path, FLAGS + "other = '192.168.1.4:80'", PS) == ""


@pytest.mark.parametrize(
    ("source", "jobs"),
    [
        ("x = 1", ONE),
        ("p.add_argument('--epochs')", ONE),
        ("p.add_argument('--task_index')", TWO),
        ("p.add_argument('--job_name', default='worker')", ONE_EACH),
    ],
)
def test_a_program_gets_what_its_config_needs(
    source: str, jobs: dict[str, int], tmp_path: Path
) -> None:
    assert notice(tmp_path, source, jobs) == ""


def test_placeholders_a_map_and_programs_of_their_own_form_the_cluster(tmp_path: Path) -> None:
    own = "p.add_argument('--kind')\np.add_argument('--number')"
    assert notice(tmp_path, own, PS, "--kind={job}", "--number={index}") == ""
    assert notice(tmp_path, own, PS, kind="job_name", number="task_index") == ""
    assert notice(tmp_path, "x = 1", PS, "{job}", "{index}") == ""
    for_each = f"ps-0={tmp_path}/main.py,worker-0={tmp_path}/main.py,worker-1={tmp_path}/main.py"
    assert read_program(for_each, jobs=PS).notice == ""


UNUSABLE = {
    "arguments without a parser": ("import sys\nprint(sys.argv[1])", PS),
    "a strategy of one host": ("s = tf.distribute.MirroredStrategy()", PS),
    "a word in a text": ("print('HOSTNAME of the server')", PS),
    "a variable that is only written": ("import os\nos.environ['TF_CONFIG'] = '{}'", PS),
    # It replaces the variable that tells the strategy its place.
    "a strategy with a variable of its own": (
        "import os\nos.environ['TF_CONFIG'] = '{}'\n"
        "s = tf.distribute.MultiWorkerMirroredStrategy()",
        PS,
    ),
    "unknown flags": (
        "p.add_argument('--kind')\np.add_argument('--number')\n"
        "p.add_argument('-v', action='count')",
        PS,
    ),
    "no job": ("p.add_argument('--task_index')\np.add_argument('--kind')", PS),
    "no index": ("p.add_argument('--job_name', default='worker')", PS),
    "no index of workers": ("p.add_argument('--epochs')", TWO),
    "many flags": ("\n".join(f"p.add_argument('--f{number}')" for number in range(9)), TWO),
}


def test_a_program_that_forms_no_cluster_has_a_notice(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    lines = {name: notice(tmp_path, source, jobs) for name, (source, jobs) in UNUSABLE.items()}
    assert lines == snapshot
    assert all("start alike" in line or "starts alike" in line for line in lines.values())
