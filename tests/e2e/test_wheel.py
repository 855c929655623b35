"""The wheel: built offline, installed outside of the clone, and used in an empty directory."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.protocol.mnist import SHIPPED
from lab.testing.backend import BackendTests
from tests.support.commands import ROOT, run_command

SITE = Path("lib") / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, from a build without a network."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*build, "--directory", str(folder)], cwd=ROOT, check=True)
    (made,) = folder.iterdir()
    return made


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and the directory in which it is called.

    Its other packages are those of this Python: a download of TensorFlow would take minutes.
    """

    environment: Path
    folder: Path

    def lab(self, line: str, code: int = 0) -> tuple[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LAB_", "PYTHON"))
        }
        done = run_command(
            [self.environment / "bin/lab", *line.split()],
            cwd=self.folder,
            env={**kept, "LAB_STATE": str(self.folder.parent / "state")},
        )
        assert done.returncode == code, done.stderr[-4000:]
        return done.stdout, done.stderr


def new_environment(wheel: Path, folder: Path) -> Path:
    """Return a virtual environment with the wheel."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install(folder, str(wheel))
    (own,) = (path for path in map(Path, sys.path) if path.match(str(Path("*") / SITE)))
    (folder / SITE / "others.pth").write_text(f"{own}\n")
    return folder


def install(environment: Path, package: str) -> None:
    """Install a package without a network, and without what it needs."""
    without = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    pip = [environment / "bin/python", "-m", "pip", "install", *without]
    subprocess.run([*pip, package], check=True)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_environment(wheel, tmp_path_factory.mktemp("installed") / "venv")


@pytest.fixture
def installed(environment: Path, tmp_path: Path) -> Installed:
    (tmp_path / "empty").mkdir()
    return Installed(environment, tmp_path / "empty")


def test_the_wheel_has_every_file_once(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {each.filename: archive.read(each) for each in archive.infolist()}
        metadata = files[f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/METADATA"].decode()
    listed = ("git", "ls-files", "scripts", "clusters", "requirements", "notebooks", "docs")
    shipped = subprocess.check_output(listed, cwd=ROOT, text=True).splitlines()
    for name in (*shipped, "cluster.yaml", "Dockerfile.gpu", "Dockerfile.class"):
        assert files[f"lab/shipped/{name}"] == (ROOT / name).read_bytes(), name
    for path in SHIPPED.glob("*.gz"):
        data = path.read_bytes()
        assert [name for name, each in files.items() if each == data] == [
            f"lab/protocol/datasets/mnist/{path.name}"
        ]
    assert "lab/py.typed" in files
    assert not [name for name in files if "__pycache__" in name or ".ipynb_" in name]
    assert "numpy" not in {
        line.partition(": ")[2].partition("=")[0]
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist") and "extra ==" not in line
    }


def test_an_empty_directory_becomes_a_project(installed: Installed) -> None:
    out, _ = installed.lab("--version")
    where = installed.environment / SITE
    assert re.fullmatch(rf"lab \d+\.\d+\.\d+, installed in {where}\n", out)
    assert "COMMAND" in installed.lab("--help")[0]
    _, err = installed.lab("validate")
    assert f"{where}/lab/shipped/cluster.yaml: valid" in err
    assert list(installed.folder.iterdir()) == []
    installed.lab("init --gpus none")
    installed.lab("render --gpus none")
    text = (installed.folder / "compose.yaml").read_text()
    assert "context: ./.lab/image\n" in text
    assert str(where) not in text
    assert "compose.yaml is up to date" in installed.lab("render --check")[1]
    assert "book.yaml: valid" in installed.lab("validate clusters/book.yaml")[1]


def test_the_images_are_built_from_the_installed_files(installed: Installed) -> None:
    """Also without a project, and the image of a class."""
    code = (
        "from lab.backends.build_context import prepare_context as p;"
        "from lab.base.image_digest import digest; from lab.base.shipped import *;"
        "from lab.teach.classroom.preparation import SOURCES;"
        "folder = p(SHIPPED, SOURCES); assert digest(folder / 'lab') == digest();"
        "print(len(list(files_of(SOURCES, folder)))); print(folder)"
    )
    python = [installed.environment / "bin/python", "-P", "-c", code]
    state = str(installed.folder / "state")
    done = run_command(python, env={"LAB_STATE": state}, check=True)
    count, folder = done.stdout.splitlines()
    assert int(count) > len(list((ROOT / "lab").rglob("*.py")))
    assert folder == f"{state}/image"
    assert not (Path(folder) / "lab/shipped").exists()


def test_the_backend_of_the_page_is_a_package_that_passes_its_tests(
    wheel: Path, tmp_path: Path
) -> None:
    page = (ROOT / "docs/how-to/backend.md").read_text("utf-8")
    metadata, module, tests = re.findall(r"```(?:toml|python)\n(.*?)```", page, re.DOTALL)
    package = tmp_path / "package"
    package.mkdir()
    for name, text in {
        "pyproject.toml": metadata,
        "lab_bare.py": module,
        "test_bare.py": tests,
    }.items():
        (package / name).write_text(text)
    environment = new_environment(wheel, tmp_path / "venv")
    install(environment, str(package))
    there = Installed(environment, package)
    assert "bare: can be used here\n  from lab-bare 1.0\n" in there.lab("backends")[0]
    pytest_ = [environment / "bin/python", "-m", "pytest", "-q", "test_bare.py"]
    done = run_command(pytest_, cwd=package)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"^(\d+) passed", done.stdout, re.MULTILINE)
    suite = [name for name in dir(BackendTests) if name.startswith("test_")]
    assert passed and int(passed[1]) > len(suite)


@pytest.mark.tensorflow
@pytest.mark.parametrize("in_project", [False, True], ids=["empty", "project"])
def test_an_installed_lab_trains(installed: Installed, in_project: bool) -> None:
    if in_project:
        installed.lab("init --gpus none")
    flags = "--backend local --epochs 1 --gpus none --json"
    out, err = installed.lab(f"run async {flags}")
    assert ("is missing: using the config and programs that come with lab" in err) is (
        not in_project
    )
    summary = json.loads(out.splitlines()[-1])
    assert (summary["state"], summary["records_lost"]) == ("succeeded", 0)
    runs = installed.folder / "runs"
    assert (runs / summary["run_id"] / "summary.json").is_file()
