"""The module that starts a user's own program: it differs in nothing from the interpreter."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from lab.base.variables import LAB_DATA_DIR
from lab.task.own.mnist import load_data
from tests.support.commands import ROOT, python
from tests.support.programs import write

RUNNER = "lab.task.own"

Ended = tuple[int, str, str]


def run(*arguments: str, cwd: Path, **environ: str) -> Ended:
    found = python(*arguments, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT), **environ})
    return found.returncode, found.stdout, found.stderr


NAMES = """\
import sys, threading, atexit
atexit.register(lambda: print("at exit", seen()))
threading.Timer(0.05, lambda: print("later", seen())).start()
def seen():
    import __main__
    return __main__ is sys.modules["__main__"], __main__.seen is seen, __name__
shown = dict(globals())
del shown["seen"], shown["threading"], shown["atexit"], shown["sys"]
shown["__loader__"] = type(shown["__loader__"])
shown["__spec__"] = getattr(shown["__spec__"], "name", None)
print(sorted(shown.items(), key=str))
print(sys.argv, sys.orig_argv[1:], sys.path, "lab" in sys.modules, sys.flags)
"""
POOL = """\
import multiprocessing, pickle, sys
from lab.base.variables import LAB_DATA_DIR
class Point:
    x = 3
def double(point):
    return __name__, point.x * 2
if __name__ == "__main__":
    for method in ("spawn", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(double, [pickle.loads(pickle.dumps(Point()))]))
"""
FAILS = "def f():\n    raise ValueError('no')\ntry:\n    1 / 0\nexcept Exception:\n    f()\n"


@pytest.mark.parametrize(
    "source",
    [
        NAMES,
        POOL,
        FAILS,
        "import other",  # which fails
        "x = 1\nif x\n",
        "# -*- coding: latin-1 -*-\nprint('\u00e9')",
        "import sys; sys.exit()",
        "import sys; sys.exit(7)",
        "raise SystemExit('a message')",
        "import sys; sys.excepthook = lambda *_: print('mine'); raise KeyError(1)",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "from . import other",
        "import lab; print(lab.MINE)",
    ],
)
def test_a_file_runs_as_python_runs_it(tmp_path: Path, source: str) -> None:
    folder = tmp_path / "folder"
    files = {"main": source, "other": FAILS}
    program = write(folder, **files, **({"lab": "MINE = 1"} if "import lab" in source else {}))
    expected = run(str(program), "--a", "b", cwd=tmp_path)
    found = run("-m", RUNNER, str(program), "--a", "b", cwd=tmp_path)
    if "SIGINT" in source:  # the lines of the runner itself are in this traceback
        assert expected[0] == -signal.SIGINT
        found, expected = ((*each[:2], each[2].splitlines()[-1]) for each in (found, expected))
    assert found == expected


PACKAGE = {
    "trainer__in__task": "from . import near\nfrom models.net import SIZE\nprint(SIZE, near.X)\n",
    "trainer__in____init__": "import sys; print('first', sys.argv)",
    "trainer__in____main__": "print('main', __package__)\n",
    "trainer__in__near": "X = 1",
    "models__in__net": "SIZE = 3",
}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("trainer.task", NAMES),
        ("trainer.task", POOL),
        ("trainer.task", FAILS),
        ("trainer.task", "raise SystemExit('a message')"),
        ("trainer", ""),
        ("models.loose", "from .net import SIZE; print(SIZE)"),
        ("alone", NAMES),
    ],
)
def test_a_module_runs_as_python_runs_it(tmp_path: Path, module: str, source: str) -> None:
    write(tmp_path, **PACKAGE)
    write(tmp_path, trainer__in__task=PACKAGE["trainer__in__task"] + source)
    write(tmp_path, models__in__loose=source, alone=source)
    expected = run("-m", module, "x", cwd=tmp_path)
    code, output, errors = run("-m", RUNNER, "-m", module, "x", cwd=tmp_path)
    assert (code, output) == expected[:2]
    assert errors.splitlines()[-1:] == expected[2].splitlines()[-1:]
    assert str(ROOT / "lab") not in errors


@pytest.mark.parametrize("module", ["nothing", "models", "trainer.nothing"])
def test_a_missing_module_is_named(tmp_path: Path, module: str) -> None:
    write(tmp_path, **PACKAGE)
    code, _, errors = run("-m", RUNNER, "-m", module, cwd=tmp_path)
    assert (code, len(errors.splitlines())) == (1, 1)
    assert f"No module named {module}" in errors


@pytest.mark.parametrize(
    ("name", "imported"),
    [
        ("keras/src/datasets/mnist.py", "from keras.src.datasets.mnist import load_data"),
        ("tf_keras/src/datasets/mnist.py", "import tf_keras.src.datasets.mnist as m"),
        ("keras/datasets/mnist.py", "from keras.datasets import mnist as m"),
    ],
)
def test_keras_gets_the_shipped_images(tmp_path: Path, name: str, imported: str) -> None:
    """Real packages with Keras's names: the tests of programs import Keras itself."""
    keras = tmp_path / name
    keras.parent.mkdir(parents=True)
    for package in keras.relative_to(tmp_path).parents[:-1]:
        (tmp_path / package / "__init__.py").touch()  # so that no installed Keras comes first
    keras.write_text("import numpy\ndef load_data(path=''): raise OSError\n", encoding="utf-8")
    lines = (
        f"{imported}\nload_data = load_data if 'load_data' in dir() else m.load_data\n"
        "(x, y), (tx, ty) = load_data('mnist-%d.npz' % 3)\n"
        "x[0] = 0; print(x.shape, tx.shape, y.shape, ty.dtype, *y[:10], *ty[:10])\n"
    )
    program = write(tmp_path, main=lines)
    code, output, errors = run("-m", RUNNER, str(program), cwd=tmp_path)
    shapes = "(60000, 28, 28) (10000, 28, 28) (60000,) uint8"
    # The first digits of the two files of http://yann.lecun.com/exdb/mnist.
    assert output == f"{shapes} 5 0 4 1 9 2 1 3 1 4 7 2 1 0 4 1 4 9 5 9\n", errors
    assert code == 0


TORCHVISION = {
    "torch": """\
class from_numpy:
    def __init__(self, array): self.shape, self.array = array.shape, array
    def long(self): return self
""",
    "torchvision__in____init__": "",
    "torchvision__in__datasets__in____init__": "from torchvision.datasets.mnist import *",
    "torchvision__in__datasets__in__utils": "def download_url(url, root): raise OSError(url)\n",
    "torchvision__in__datasets__in__mnist": """\
import torch
from torchvision.datasets import utils
class MNIST:
    def __init__(self, root, train=True, download=False):
        self.root, self.train = root, train
        if download and not self._check_exists():
            utils.download_url("http://there/images.gz", f"{root}/raw")
        if not self._check_exists():
            raise RuntimeError("Dataset not found")
        self.data, self.targets = self._load_data()
    def _check_exists(self): return self.root == "own"
    def _load_data(self): return "own images", "own labels"
class FashionMNIST(MNIST):
    pass
""",
}


def test_torchvision_gets_the_shipped_images(tmp_path: Path) -> None:
    main = """\
from torchvision.datasets import MNIST, FashionMNIST
for train in (True, False):
    mnist = MNIST("data", train=train, download=train)
    print(mnist.data.shape, mnist.targets.array[:5].tolist())
print(MNIST("own").data, FashionMNIST("own").data)
FashionMNIST("data", download=True)
"""
    program = write(tmp_path, main=main, **TORCHVISION)
    code, output, errors = run("-m", RUNNER, str(program), cwd=tmp_path)
    assert output.splitlines() == [
        "(60000, 28, 28) [5, 0, 4, 1, 9]",
        "(10000, 28, 28) [7, 2, 1, 0, 4]",
        "own images own images",
    ], errors
    last = "put http://there/images.gz into data/raw beside the program"
    assert (code, errors.splitlines()[-1]) == (1, f"OSError: tasks have no Internet: {last}")


def test_a_program_without_keras_does_not_read_the_images(tmp_path: Path) -> None:
    source = "import sys; print(*{'numpy', 'tensorflow', 'keras', 'lab'} & {*sys.modules})"
    assert run("-m", RUNNER, str(write(tmp_path, main=source)), cwd=tmp_path) == (0, "\n", "")


def test_the_users_own_data_replace_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in ("train", "t10k"):
        pixels = np.arange(3 * 784, dtype=np.uint32).astype(np.uint8)
        sizes = np.array([0x0803, 3, 28, 28], ">u4").tobytes()
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(sizes + pixels.tobytes())
        labels = np.array([0x0801, 3], ">u4").tobytes() + bytes([7, 8, 9])
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    monkeypatch.setenv(LAB_DATA_DIR, str(tmp_path))
    (images, digits), (tested, _) = load_data(path="mine.npz")
    assert (images.shape, digits.tolist(), tested.dtype) == ((3, 28, 28), [7, 8, 9], np.uint8)
    assert images[2].tobytes() == pixels[2 * 784 :].tobytes()


# A thread that needs the interpreter's lock once more when the program ends, as those of Gloo.
THREAD = """\
import sys, threading
import torch.distributed
gate = threading.Lock()
gate.acquire()
def free():
    gate.acquire()
    print("freed")
threading.Thread(target=free, daemon=True).start()
sys.setswitchinterval(60)
gate.release()
"""


def test_a_thread_of_gloo_gets_the_lock_before_the_interpreter_ends(tmp_path: Path) -> None:
    write(tmp_path, end=THREAD, torch__in____init__="", torch__in__distributed="")
    assert run("-m", RUNNER, "end.py", cwd=tmp_path) == (0, "freed\n", "")
