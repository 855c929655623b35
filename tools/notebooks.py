"""The notebooks: their `.ipynb` files made from their `.py` sources, and all of them executed.

The sources are Python in jupytext's percent format, so that a change can be read. The `.ipynb`
files beside them hold the same cells without any output; who executes one writes nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
PATIENCE_S = 300
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def sources() -> list[Path]:
    """The notebooks, in their order."""
    return sorted(FOLDER.glob("[0-9][0-9]_*.py"))


def read(source: Path) -> nbformat.NotebookNode:
    """A source as a notebook without outputs, the same whenever it is made."""
    notebook = jupytext.reads(source.read_text(encoding="utf-8"), fmt="py:percent")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # jupytext would draw one.
        cell.metadata = nbformat.from_dict({})
    return notebook


def text_of(source: Path) -> str:
    """What its `.ipynb` has to hold."""
    text: str = nbformat.writes(read(source), version=4)
    return text.rstrip("\n") + "\n"


def execute(source: Path, patience_s: float = PATIENCE_S) -> nbformat.NotebookNode:
    """Run a notebook from its top to its end, in its folder and by this very Python.

    Raises:
        CellExecutionError: A cell failed.
        CellTimeoutError: A cell took longer than `patience_s`, in seconds.
    """
    # A kernel named python3 of the user's own might be another Python.
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"
    notebook = read(source)
    where = {"metadata": {"path": str(FOLDER)}}
    client = NotebookClient(
        notebook, kernel_name=KERNEL["name"], timeout=patience_s, resources=where
    )
    client.execute()
    return notebook


def main() -> None:
    """Write all `.ipynb` files anew, or execute notebooks one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--execute", nargs="*", metavar="NAME", help="all, or those: 00_tour")
    names = parser.parse_args().execute
    known = {source.stem: source for source in sources()}
    if unknown := set(names or ()) - known.keys():
        parser.error(f"no notebook {min(unknown)!r}: {', '.join(known)}")
    if names is None:
        for source in known.values():
            source.with_suffix(".ipynb").write_text(text_of(source), encoding="utf-8")
        return
    for name in names or known:
        began = time.monotonic()
        print(f"{name} …", end=" ", flush=True)
        execute(known[name])
        print(f"{time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
