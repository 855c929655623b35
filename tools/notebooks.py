"""Write the notebooks' `.ipynb` files from their `.py` sources, or execute the notebooks.

The sources are Python in jupytext's percent format, so that their diffs are readable. The `.ipynb`
files beside them have the same cells without output. Executed copies are written to
`build/notebooks`, from which `make docs` takes the outputs.

`zh/NN_name.md` has the Chinese texts of a notebook, with a line `<!-- cell -->` between two cells
of Markdown. The code is that of the English notebook.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
CHINESE = FOLDER / "zh"
EXECUTED = ROOT / "build/notebooks"
TIMEOUT_S = 300
BORDER = re.compile(r"^<!-- cell -->$", re.MULTILINE)
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources() -> list[Path]:
    """The sources of the notebooks, in order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def translations() -> list[Path]:
    """The Chinese texts of the notebooks, in order. Some notebooks may have none."""
    return sorted(CHINESE.glob("[0-9][0-9]_*.md"))


def read(source: Path) -> nbformat.NotebookNode:
    """Convert a source, or a Chinese text, into a notebook without outputs; it is deterministic.

    Raises:
        ValueError: The Chinese text has another number of cells than the English one.
    """
    if source.suffix == ".md":
        return _translated(source)
    notebook = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # jupytext makes random ids.
        cell.metadata = nbformat.from_dict({})
    return notebook


def _translated(path: Path) -> nbformat.NotebookNode:
    notebook = read(FOLDER / f"{path.stem}.py")
    cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    texts = BORDER.split(path.read_text(encoding="utf-8"))
    if len(texts) != len(cells):
        raise ValueError(f"{path}: {len(texts)} cells, not the {len(cells)} of {path.stem}.py")
    for cell, text in zip(cells, texts, strict=True):
        cell.source = text.strip()
    return notebook


def text_of(source: Path) -> str:
    """Return the text of a source's `.ipynb` file."""
    text: str = nbformat.writes(read(source), version=4)
    return text.rstrip("\n") + "\n"


def execute(source: Path, timeout_s: float = TIMEOUT_S) -> nbformat.NotebookNode:
    """Execute all cells of a notebook, in its directory and with this Python.

    Raises:
        CellExecutionError: A cell failed.
        CellTimeoutError: A cell took longer than `timeout_s`, in seconds.
    """
    # The user may have a kernel named python3 for another Python.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    notebook = read(source)
    resources = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(
        notebook, kernel_name=KERNEL["name"], timeout=timeout_s, resources=resources
    )
    client.execute()
    return notebook


def main() -> None:
    """Write all `.ipynb` files, or execute notebooks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--execute",
        nargs="*",
        metavar="NAME",
        help="execute these notebooks, for example 00_tour (default: all)",
    )
    names = parser.parse_args().execute
    known = {source.stem: source for source in sources()}
    if unknown := set(names or ()) - known.keys():
        parser.error(f"unknown notebook {min(unknown)!r}; use one of {', '.join(known)}")
    if names is None:
        for source in (*known.values(), *translations()):
            source.with_suffix(".ipynb").write_text(text_of(source), encoding="utf-8")
        return
    for name in names or known:
        began = time.monotonic()
        print(f"{name} …", end=" ", flush=True)
        notebook = execute(known[name])
        EXECUTED.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, EXECUTED / f"{name}.ipynb")
        print(f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
