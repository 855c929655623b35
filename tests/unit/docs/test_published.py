"""What is made for the site and README: pages of notebooks, and the figure of the loss."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from mkdocs.config.base import load_config

import lab
from tests.support.agents import ROOT
from tools import docs_site, reference
from tools.docs_site import notebook_files
from tools.site_versions import folder_of

PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
)


def executed(source: Path, folder: Path) -> Path:
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


def test_each_command_and_each_name_of_the_python_package_is_in_the_reference() -> None:
    pages = reference.pages()
    for name, page in reference.COMMAND_PAGES.items():
        assert f"\nusage: lab {name}" in pages[page]
        assert max(map(len, pages[page].splitlines())) < 100
    assert "--max-time TIME" in pages[reference.COMMAND_PAGES["run"]]
    python = pages[reference.PYTHON_PAGE]
    assert [name for name in lab.__all__ if f".{name}\n" not in python] == []


@pytest.mark.parametrize(
    ("repository", "site"),
    [
        ("", None),
        ("https://example.org/a/lab", None),
        ("https://github.com/a/lab", f"https://a.github.io/lab/{folder_of(lab.__version__)}/"),
    ],
)
def test_one_variable_leads_to_the_repository_and_names_the_address_of_the_site(
    repository: str, site: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCS_REPOSITORY", repository)
    monkeypatch.chdir(ROOT)
    config = load_config(str(ROOT / "mkdocs.yml"))
    docs_site.on_config(config)
    assert (config.repo_url or "", config.site_url or None) == (repository, site)
    assert config.edit_uri == ("edit/main/docs/" if repository else None)
