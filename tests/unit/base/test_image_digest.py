"""The digest by which two versions of lab's own code beside the programs are distinguished."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from lab.base.image_digest import BUILD_ARGUMENT, LABEL, PACKAGE, ROOMS, digest, sources
from tests.support.commands import ROOT, python

DOCKERFILE = (ROOT / "Dockerfile.gpu").read_text()


MNIST = "protocol/datasets/mnist"
IN = ("task/agent.py", "task/old/calls.py", f"{MNIST}/SHA256SUMS")
OUT = ("cli/__init__.py", f"{MNIST}/images")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("__init__.py", *(f"{each}/__init__.py" for each in ROOMS), *IN, *OUT):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    return tmp_path


def test_it_is_the_digest_of_what_sha256sum_prints(package: Path) -> None:
    names = tuple(sources(package))
    assert {"__init__.py", "base/__init__.py", *IN} < {*names}
    assert not {*OUT} & {*names}
    lines = [
        f"{hashlib.sha256((package / name).read_bytes()).hexdigest()}  {name}\n" for name in names
    ]
    assert digest(package) == hashlib.sha256("".join(lines).encode()).hexdigest()


def append(package: Path, name: str) -> None:
    (package / name).parent.mkdir(parents=True, exist_ok=True)
    with (package / name).open("a") as file:
        file.write("# changed\n")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        *((name, True) for name in ("__init__.py", "base/text.py", "task/new.py", *IN)),
        *((name, False) for name in ("cli/new.py", "task/__pycache__/agent.pyc", *OUT)),
        ("task/.#agent.py", False),
    ],
)
def test_only_what_is_beside_the_programs_changes_it(
    package: Path, name: str, changes: bool
) -> None:
    before = digest(package)
    append(package, name)
    assert (digest(package) != before) is changes


def test_names_count_and_links_to_nowhere_do_not(package: Path) -> None:
    before = digest(package)
    (package / "task/.#agent.py").symlink_to("ada@box.4711")  # an editor's
    assert digest(package) == before
    (package / "task/agent.py").rename(package / "task/agents.py")
    assert digest(package) != before


def test_it_is_of_all_python_that_goes_into_the_image() -> None:
    copied = re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert copied
    places = [
        ROOT / place
        for line in copied
        for place in line.split()
        if place != "scripts" and not place.startswith("requirements/")
    ]
    files = {
        file
        for place in places
        for file in ([place] if place.is_file() else place.rglob("*"))
        if file.suffix == ".py" or file.name == "SHA256SUMS"
    }
    assert {PACKAGE / name for name in sources()} == files
    assert PACKAGE == ROOT / "lab"


def test_the_image_has_it_as_a_label() -> None:
    argument = f'\nARG {BUILD_ARGUMENT}=""\nLABEL {LABEL}="${BUILD_ARGUMENT}"'
    # An argument changes each layer after it.
    assert DOCKERFILE.rindex(argument) > DOCKERFILE.rindex("\nRUN ")


def test_the_code_prints_it() -> None:
    done = python("-m", "lab.base.image_digest", cwd=ROOT, check=True)
    assert done.stdout == f"{digest()}\n"
