"""Hooks of MkDocs: files of the repository that the documents link to become pages of the site.

A link in `docs/lessons/async.md` to `../../scripts/mnist_async.py` works where the repository is
browsed. The site holds only `docs/`, so the file is shown there on a page under `repository/`.

A notebook is a page with its outputs, if `make notebooks` has executed it; else without them.

The Chinese pages are in Chinese, also what the theme adds to them.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path, PurePosixPath
from typing import Final

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils.templates import TemplateContext
from nbconvert import MarkdownExporter

ROOT: Final = Path(__file__).resolve().parents[1]
EXECUTED: Final = ROOT / "build/notebooks"
SHOWN: Final = (
    "C*.md",
    "README*.md",
    "RELEASING.md",
    "SECURITY.md",
    "cluster.yaml",
    "docker-compose.yml",
    "benchmarks/RESULTS.md",
    "clusters/*.yaml",
    "docs/**/*.py",
    "lab/task/sdk/*.py",
    "notebooks/*.md",
    "notebooks/*.py",
    "scripts/*.py",
    "tests/oracle.py",
    "tools/page_figures.py",
    "tests/tf1_programs/*.py",
)
"""The files that become pages."""

_LINK: Final = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".yml": "yaml"}


def on_config(config: MkDocsConfig) -> None:
    """Silence jieba, which reports at each build that it loads its dictionary."""
    logging.getLogger("jieba").setLevel(logging.WARNING)


def on_page_context(
    context: TemplateContext, page: Page, config: MkDocsConfig, nav: Navigation
) -> None:
    """Set the theme's language to that of the page, which is rendered next."""
    config.theme["language"] = "zh" if is_chinese(page.file.src_uri) else "en"


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the script of the Chinese pages, which the theme does not: simplified Chinese."""
    return output.replace('<html lang="zh"', '<html lang="zh-CN"', 1)


def is_chinese(page: str) -> bool:
    """Whether a page is in Chinese, by its path in the site."""
    return "zh" in PurePosixPath(page).parts or page.endswith(".zh-CN.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file of the repository that is shown."""
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, page_of(name), content=_content(path, name)))
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        for name, content in notebook_files(path, EXECUTED).items():
            files.append(File.generated(config, f"repository/notebooks/{name}", content=content))
    return files


def notebook_files(path: Path, executed: Path) -> dict[str, str | bytes]:
    """The page of a notebook and its pictures, by the names of their files.

    Args:
        path: The notebook without outputs.
        executed: The directory of executed copies. One with other cells is out of date, and unused.
    """
    notebook, copy = nbformat.read(path, 4), executed / path.name
    note = "> Without outputs: `make notebooks` was not run before this site was built."
    if copy.is_file():
        found = nbformat.read(copy, 4)
        if [cell.source for cell in found.cells] == [cell.source for cell in notebook.cells]:
            notebook, note = found, ""
    notebook.metadata["language_info"] = {"name": "python"}
    resources = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    text, made = MarkdownExporter().from_notebook_node(notebook, resources)
    source = f"The notebook: [`{path.stem}.py`]({path.stem}.py), with `make jupyter`."
    # Markdown inside of HTML is not read without this attribute. Jupyter needs none.
    text = text.replace("<details>", "<details markdown>")
    page = "\n\n".join(filter(None, [text.strip(), note, source]))
    return {f"{path.stem}.md": page + "\n", **made.get("outputs", {})}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave `docs/` to the pages under `repository/`."""
    here = page.file.src_uri
    return _LINK.sub(
        lambda link: f"]({relinked(link['path'], here)}{link['anchor'] or ''})", markdown
    )


def page_of(name: str) -> str:
    """The page of a file: `docs/faults.md` → `faults.md`, `a.py` → `repository/a.py.md`."""
    path = PurePosixPath(name)
    if path.is_relative_to("docs") and path.suffix != ".py":
        return path.relative_to("docs").as_posix()
    if path.suffix == ".ipynb":
        path = path.with_suffix(".md")
    return f"repository/{path}" + ("" if path.suffix in {".md", ".png"} else ".md")


def relinked(link: str, here: str) -> str:
    """A link of a page, as it must be in the site.

    Args:
        link: The path as written, relative to the file's place in the repository.
        here: The page that has it, relative to the site's pages.
    """
    page = PurePosixPath(here)
    inside = page.is_relative_to("repository")
    origin = page.relative_to("repository") if inside else PurePosixPath("docs", page)
    target = PurePosixPath(os.path.normpath(origin.parent / link))
    return os.path.relpath(page_of(target.as_posix()), page.parent)


def _content(path: Path, name: str) -> str:
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    fence = "~" * 8
    head = f"---\nsearch: {{exclude: true}}\n---\n\n# `{name}`\n\n"
    return f"{head}{fence} {_LANGUAGES[path.suffix]}\n{text.rstrip()}\n{fence}\n"
