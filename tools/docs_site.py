"""Hooks of MkDocs: files of the repository that the documents link to become pages of the site.

A link in `docs/tutorials/lessons/async.md` to `../../scripts/mnist_async.py` works where the
repository is
browsed. The site holds only `docs/`, so the file is shown there on a page under `repository/`.

A notebook is a page with its outputs, if `make notebooks` has executed it; else without them. A
Chinese notebook has the outputs of the English one.

The Chinese pages are in Chinese, also what the theme adds to them. Each page leads to its
translation.
"""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import urlsplit

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils.templates import TemplateContext
from nbconvert import MarkdownExporter

from lab import __version__
from tools import reference
from tools.site_versions import folder_of

ROOT: Final = Path(__file__).resolve().parents[1]
EXECUTED: Final = ROOT / "build/notebooks"
SHOWN: Final = (
    "C*.md",
    "CITATION.cff",
    "LICENSE",
    "README*.md",
    "RELEASING.md",
    "SECURITY.md",
    "cluster.yaml",
    "docker-compose.yml",
    "benchmarks/RESULTS.md",
    "clusters/*.yaml",
    "docs/**/*.py",
    "lab/protocol/mnist.py",
    "lab/task/sdk/*.py",
    "notebooks/*.md",
    "notebooks/*.py",
    "scripts/*.py",
    "tests/groups/group.py",
    "tests/oracle.py",
    "tools/page_figures.py",
    "tests/tf1_programs/*.py",
    "tests/tf1_programs/*.yaml",
)
"""The files that become pages."""

_NOTES: Final = {
    "en": (
        "> Without outputs: `make notebooks` was not run before this site was built.",
        "The notebook: [`{name}.py`]({name}.py), with `make jupyter`.",
    ),
    "zh": (
        "> 构建本站之前没有运行 `make notebooks`。所以这里没有输出。",
        "笔记本的代码是 [`{name}.py`](../{name}.py)。用 `make jupyter` 打开 `zh/{name}.ipynb`。",
    ),
}
"""By language: the end of a notebook's page if it was not executed, and the last line."""

_LINK: Final = re.compile(r"\]\((?!\w+:)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_LANGUAGES: Final = {
    "": "text",
    ".cff": "yaml",
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def on_config(config: MkDocsConfig) -> None:
    """Add the pages of `tools/reference.py`, and the version of lab to the foot of each page.

    With a repository on GitHub, add links to edit a page, and the address of the site on its Pages.

    `--quiet` hides warnings, which then fail no strict build: show them. jieba reports the load of
    its dictionary: silence it.
    """
    config.copyright = f"lab {__version__}"
    for name in ("jieba", "mkdocs"):
        logging.getLogger(name).setLevel(logging.WARNING)
    sections = {name: pages for section in config.nav or () for name, pages in section.items()}
    sections["Reference"] += reference.navigation()
    if config.repo_url:
        config.edit_uri = "edit/main/docs/"
        config.site_url = address(config.repo_url)


def on_page_context(
    context: TemplateContext, page: Page, config: MkDocsConfig, nav: Navigation
) -> None:
    """Set the theme's language to that of the page, which is rendered next, and its translation."""
    config.theme["language"] = "zh" if is_chinese(page.file.src_uri) else "en"
    config.extra["alternate"] = [
        {
            "name": name,
            "lang": lang,
            "link": translation(page.file.src_uri, lang, config.extra["files"]),
        }
        for name, lang in (("English", "en"), ("中文", "zh-CN"))
    ]


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the script of the Chinese pages, which the theme does not: simplified Chinese.

    The link to the repository loses the attribute by which the theme loads its counts from GitHub:
    the site loads nothing from elsewhere.
    """
    output = output.replace(' data-md-component="source"', "")
    return output.replace('<html lang="zh"', '<html lang="zh-CN"', 1)


def address(repository: str) -> str | None:
    """The address of this version's site on GitHub Pages; None if the repository is elsewhere."""
    parts = urlsplit(repository)
    owner, _, name = parts.path.strip("/").partition("/")
    if parts.hostname != "github.com" or not name:
        return None
    return f"https://{owner}.github.io/{name}/{folder_of(__version__)}/"


def translation(page: str, language: str, files: Files) -> str:
    """The address of a page in a language; that of the Chinese home if it is not translated.

    Args:
        page: The page's path in the site.
        language: `en` or `zh-CN`.
        files: All files of the site.
    """
    english = page.removeprefix("zh/").replace("notebooks/zh/", "notebooks/").replace(".zh-CN", "")
    paths = [english, f"zh/{english}", english.replace("notebooks/", "notebooks/zh/")]
    paths += [english.replace("README.md", "README.zh-CN.md"), "zh/index.md"]
    found = [files.get_file_from_path(path) for path in paths]
    return next(
        file.url for file in found if file and is_chinese(file.src_uri) is (language != "en")
    )


def is_chinese(page: str) -> bool:
    """Whether a page is in Chinese, by its path in the site."""
    return "zh" in PurePosixPath(page).parts or page.endswith(".zh-CN.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file of the repository that is shown."""
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, page_of(name), content=_content(path, name)))
    for pattern in ("notebooks/[0-9]*.ipynb", "notebooks/zh/[0-9]*.ipynb"):
        for path in sorted(ROOT.glob(pattern)):
            folder = f"repository/{path.parent.relative_to(ROOT).as_posix()}"
            for name, content in notebook_files(path, EXECUTED).items():
                files.append(File.generated(config, f"{folder}/{name}", content=content))
    for name, text in reference.pages().items():
        files.append(File.generated(config, name, content=text))
    config.extra["files"] = files
    return files


def notebook_files(path: Path, executed: Path) -> dict[str, str | bytes]:
    """The page of a notebook and its pictures, by the names of their files.

    Args:
        path: The notebook without outputs.
        executed: The directory of executed copies. One with other code is out of date, and unused.
    """
    notebook, copy = nbformat.read(path, 4), executed / path.name
    is_executed = copy.is_file() and _take_outputs(notebook, nbformat.read(copy, 4))
    notebook.metadata["language_info"] = {"name": "python"}
    resources = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    text, made = MarkdownExporter().from_notebook_node(notebook, resources)
    note, source = _NOTES["zh" if path.parent.name == "zh" else "en"]
    # Markdown inside of HTML is not read without this attribute. Jupyter needs none.
    text = text.replace("<details>", "<details markdown>")
    parts = [text.strip(), *([] if is_executed else [note]), source.format(name=path.stem)]
    return {f"{path.stem}.md": "\n\n".join(parts) + "\n", **made.get("outputs", {})}


def _take_outputs(notebook: nbformat.NotebookNode, copy: nbformat.NotebookNode) -> bool:
    """Give a notebook the outputs of its executed copy, unless the copy has other code."""
    ours, theirs = ([c for c in each.cells if c.cell_type == "code"] for each in (notebook, copy))
    if [cell.source for cell in ours] != [cell.source for cell in theirs]:
        return False
    for cell, done in zip(ours, theirs, strict=True):
        cell.outputs, cell.execution_count = done.outputs, done.execution_count
    return True


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links that leave `docs/` to the pages under `repository/`."""
    here = page.file.src_uri
    return _LINK.sub(
        lambda link: f"]({relinked(link['path'], here)}{link['anchor'] or ''})", markdown
    )


def page_of(name: str) -> str:
    """The page of a file: `docs/how-to/faults.md` → `faults.md`, `a.py` → `repository/a.py.md`."""
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
