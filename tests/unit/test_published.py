"""What is made for the site and README: pages of notebooks, and the figure of the loss."""

from __future__ import annotations

from pathlib import Path

import nbformat

from lab import api
from tests.support.agents import ROOT
from tools import reference
from tools.docs_site import notebook_files, page_of, relinked
from tools.page_figures import FIGURES, commands

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


def executed(source: Path, folder: Path) -> Path:
    """An executed copy of a notebook, whose first cell of code draws and prints."""
    notebook = nbformat.read(source, 4)
    cell = next(each for each in notebook.cells if each.cell_type == "code")
    picture = nbformat.v4.new_output("display_data", {"image/png": PIXEL})
    cell.outputs = [nbformat.v4.new_output("stream", text="the loss is 0.5"), picture]
    nbformat.write(notebook, folder / source.name)
    return folder / source.name


def test_a_notebook_is_published_with_the_outputs_of_its_executed_copy(tmp_path: Path) -> None:
    source = ROOT / "notebooks/00_tour.ipynb"
    (clean,) = notebook_files(source, tmp_path).values()
    assert "`make notebooks` was not run" in str(clean)
    assert "the loss is 0.5" not in str(clean)
    assert "<details markdown><summary>Answer</summary>" in str(clean)
    assert "<details>" not in str(clean)
    copy = executed(source, tmp_path)
    page, *pictures = notebook_files(source, tmp_path).items()
    assert page[0] == "00_tour.md"
    assert "the loss is 0.5" in str(page[1])
    assert "was not run" not in str(page[1])
    ((name, content),) = pictures
    assert f"]({name})" in str(page[1])
    assert isinstance(content, bytes)
    # The Chinese notebook has the same code.
    (name, chinese), *pictures = notebook_files(
        ROOT / "notebooks/zh/00_tour.ipynb", tmp_path
    ).items()
    assert name == "00_tour.md"
    assert "the loss is 0.5" in str(chinese)
    assert "<summary>答案</summary>" in str(chinese)
    assert len(pictures) == 1
    # An executed copy of other code is out of date.
    copy.write_text(copy.read_text().replace("import json", "import zlib", 1))
    assert list(notebook_files(source, tmp_path).values()) == [clean]


def test_links_lead_to_a_notebooks_page_and_its_pictures() -> None:
    assert page_of("notebooks/00_tour.ipynb") == "repository/notebooks/00_tour.md"
    here = "repository/notebooks/00_tour.md"
    assert relinked("00_tour_files/00_tour_3_0.png", here) == "00_tour_files/00_tour_3_0.png"
    assert (
        relinked("../docs/tutorials/lessons/async.md", here) == "../../tutorials/lessons/async.md"
    )
    here = "repository/notebooks/zh/00_tour.md"
    assert (
        relinked("../../docs/zh/tutorials/lessons/async.md", here)
        == "../../../zh/tutorials/lessons/async.md"
    )


def test_the_figure_of_three_frameworks_is_made_by_the_commands_of_its_lesson() -> None:
    *runs, report = commands(FIGURES["three-frameworks"])
    names = ["async", "torch-async", "sync", "ddp", "jax-dp"]
    assert [words[:2] for words in runs] == [["run", name] for name in names]
    assert report == ["report", *(f"last~{back}" for back in (4, 3, 2, 1)), "last"]
    assert all("--seed" in words for words in runs)


def test_each_command_and_each_name_of_the_python_package_is_in_the_reference() -> None:
    pages = reference.pages()
    for name, page in reference.COMMAND_PAGES.items():
        assert f"\nusage: lab {name}" in pages[page]
        assert max(map(len, pages[page].splitlines())) < 100
    assert "--max-time TIME" in pages[reference.COMMAND_PAGES["run"]]
    python = pages[reference.PYTHON_PAGE]
    assert [name for name in api.__all__ if f".{name}\n" not in python] == []
