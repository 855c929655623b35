"""The environment variables of `lab`: each is declared once, and the documents describe them."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from lab.base import variables

ROOT = Path(__file__).parents[3]
NAME = re.compile(r"(?<!\w)LAB_[A-Z]+(?:_[A-Z]+)*(?![\w*])")
INTERNAL = {"The agent", "A class"}
DECLARED = {name for name in vars(variables) if name.startswith("LAB_")}


def rows() -> Iterator[str]:
    """The rows of the table in docs/reference/commands.md, from the texts below the names."""
    for name, text in pairwise(ast.parse(Path(variables.__file__).read_text("utf-8")).body):
        if isinstance(name, ast.AnnAssign):
            assert isinstance(text, ast.Expr)
            words = " ".join(ast.literal_eval(text.value).split()).removesuffix(".")
            found = re.fullmatch(r"([^:(]+?)(?: \(default: (.+?)\))?: (.+)", words)
            assert found, words
            reader, default, meaning = found.groups(default="")
            if reader not in INTERNAL:
                yield f"| `{ast.unparse(name.target)}` | {reader.lower()} | {default} | {meaning} |"


def test_each_variable_is_declared_once_and_has_its_own_name() -> None:
    for name in DECLARED:
        assert getattr(variables, name) == name
    others = [path for path in (ROOT / "lab").rglob("*.py") if path != Path(variables.__file__)]
    literals = [
        f"{path}:{node.lineno}"
        for path in others
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and NAME.fullmatch(node.value)
    ]
    assert literals == []


def test_every_variable_that_is_mentioned_is_declared() -> None:
    places = [ROOT / "README.md", *ROOT.glob("Dockerfile*"), ROOT / "docker-compose.yml"]
    for folder in ("lab", "scripts", "docs"):
        found = (ROOT / folder).rglob("*")
        places += [path for path in found if path.suffix in {".py", ".md", ".bashrc"}]
    mentioned = {name for path in places for name in NAME.findall(path.read_text("utf-8"))}
    assert mentioned - DECLARED == set()


def test_the_table_of_variables_is_that_of_the_code() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    head = "| variable | read by | default | meaning |\n| --- | --- | --- | --- |\n"
    assert head + "\n".join(rows()) + "\n" in page
