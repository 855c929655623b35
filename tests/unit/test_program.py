"""A user's program: its checks, its copied files, and its flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import InputError
from lab.run import program as programs
from lab.run.program import names_a_program, read_program


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / f"{name.replace('__in__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_names_of_programs() -> None:
    assert names_a_program("my.py")
    assert names_a_program("./async")
    assert not names_a_program("async")


def test_only_modules_and_packages_beside_it_are_copied(tmp_path: Path) -> None:
    write(tmp_path, main="import other", other="", pkg__in____init__="", pkg__in__deep__in__x="")
    write(tmp_path, loose__in__no_package="")
    (tmp_path / "data.bin").write_bytes(b"x" * 1000)
    (tmp_path / "elsewhere").symlink_to("/etc")
    program = read_program(str(tmp_path / "main.py"))
    program.copy_to(tmp_path / "copy", tmp_path / "data", tmp_path / "original")
    copied = {p.relative_to(tmp_path / "copy") for p in (tmp_path / "copy").rglob("*.py")}
    assert copied == {
        Path("main.py"),
        Path("other.py"),
        Path("pkg/__init__.py"),
        Path("pkg/deep/x.py"),
    }
    assert not (tmp_path / "copy" / "data.bin").exists()
    assert not (tmp_path / "data").exists()
    assert not (tmp_path / "original").exists()
    assert program.name == "main"


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("def broken(:\n", ":1:12: "),
        ("x = 1\nreturn x\n", ":2:1: "),
        ("a\0b", "null bytes"),
    ],
)
def test_a_syntax_error_is_found_before_anything_starts(
    tmp_path: Path, source: str, place: str
) -> None:
    write(tmp_path, main=source)
    with pytest.raises(InputError) as caught:
        read_program(str(tmp_path / "main.py"))
    assert place in str(caught.value)
    assert "fix the program" in str(caught.value)


def test_a_syntax_error_in_an_imported_module_counts_and_in_another_does_not(
    tmp_path: Path,
) -> None:
    write(tmp_path, main="from pkg import part", pkg__in____init__="", pkg__in__part="import deep")
    write(tmp_path, deep="import main", unrelated="def (")
    assert read_program(str(tmp_path / "main.py")).files
    write(tmp_path, deep="x =")
    with pytest.raises(InputError, match=r"deep\.py:1:4: invalid syntax"):
        read_program(str(tmp_path / "main.py"))


PACKAGES = {
    "pkg/__init__.py": "",
    "pkg/deep/__init__.py": "",
    "pkg/deep/x.py": "from . import near\nfrom ..other import thing\nfrom .... import nothing",
    "pkg/deep/near.py": "",
    "pkg/other.py": "",
    "space/part.py": "",
}


@pytest.mark.parametrize("broken", PACKAGES)
def test_every_module_that_an_import_runs_is_checked(tmp_path: Path, broken: str) -> None:
    write(tmp_path, main="import pkg.deep.x\nfrom space import part", pkg__in__unused="def (")
    write(tmp_path, other="def (", near="def (", x="def (")
    write(tmp_path, **{name.removesuffix(".py"): text for name, text in PACKAGES.items()})
    assert read_program(str(tmp_path / "main.py")).files
    (tmp_path / broken).write_text("def (", encoding="utf-8")
    with pytest.raises(InputError, match=rf"{broken}:1:5: "):
        read_program(str(tmp_path / "main.py"))


def test_a_module_precedes_a_directory_of_its_name(tmp_path: Path) -> None:
    write(tmp_path, main="import tool.part", tool="", tool__in__part="def (")
    assert Path("tool/part.py") not in read_program(str(tmp_path / "main.py")).files


def test_an_unreadable_directory_holds_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_file(self: Path) -> bool:
        if "numpy" in self.parts:
            raise PermissionError(13, "Permission denied", str(self))  # root may look into all
        return looks(self)

    looks = Path.is_file
    monkeypatch.setattr(Path, "is_file", is_file)
    write(tmp_path, main="import numpy.linalg")
    assert read_program(str(tmp_path / "main.py")).files == (Path("main.py"),)


def test_an_imported_directory_without_init_is_copied(tmp_path: Path) -> None:
    write(tmp_path, main="import utils.one, elsewhere.x", utils__in__one="", utils__in__two="")
    write(tmp_path, other__in__three="")
    files = read_program(str(tmp_path / "main.py")).files
    assert files == (Path("main.py"), Path("utils/one.py"), Path("utils/two.py"))


def test_invalid_programs_fail(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no program .*nowhere\.py; check its path"):
        read_program(str(tmp_path / "nowhere.py"))
    with pytest.raises(InputError, match=r"is not a Python program; name a file that ends in \.py"):
        read_program(str(tmp_path / "run.sh"))
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        read_program(str(tmp_path / "folder.py"))


def test_a_whole_home_directory_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MAX_FILES", 3)
    write(tmp_path, main="", a="", b="", c="")
    with pytest.raises(InputError, match=r"Python files: 4 files, 0 MiB; put .* its own directory"):
        read_program(str(tmp_path / "main.py"))
