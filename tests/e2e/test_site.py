"""The documents' site, as Chromium shows it from files, without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import engine
from tests.support.agents import ROOT, wait_for
from tests.support.chromium import Tab, a_browser
from tests.support.conditions import lacking


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    try:
        engine.install("chromium")
    except engine.NoEngine as error:
        lacking(f"no Chromium, so the site is NOT tested here: {error}")
    with a_browser() as tab:
        yield tab


def found(tab: Tab, query: str) -> list[str]:
    """The pages that the search finds, the best one first."""
    field = "document.querySelector('.md-search__input')"
    links = "[...document.querySelectorAll('.md-search-result__item > a')]"
    tab.run(f"{field}.focus()")
    tab.run(f"{field}.value = {json.dumps(query)}")
    tab.run(f"{field}.dispatchEvent(new Event('keyup', {{bubbles: true}}))")
    answer = "document.querySelector('.md-search-result__meta').textContent"
    wait_for(lambda: any(map(str.isdigit, tab.run(answer))), f"results for {query}", 30)
    addresses: list[str] = tab.run(f"{links}.map((each) => each.pathname)")
    return addresses


@pytest.mark.parametrize("query", ["陈旧度", "掉队者", "参数服务器"])
def test_the_search_finds_a_word_inside_a_sentence(browser: Tab, site: Path, query: str) -> None:
    browser.open((site / "zh/index.html").as_uri())
    pages = found(browser, query)
    assert pages
    assert all(query in Path(page).read_text("utf-8") for page in pages)


def test_the_chinese_pages_are_in_chinese(browser: Tab, site: Path) -> None:
    pages = ("zh/index", "repository/README.zh-CN", "index")
    languages = {}
    for page in pages:
        browser.open((site / f"{page}.html").as_uri())
        placeholder = browser.run("document.querySelector('.md-search__input').placeholder")
        languages[page] = browser.run("document.documentElement.lang"), placeholder
    chinese = ("zh-CN", "搜索")
    assert languages == dict(zip(pages, (chinese, chinese, ("en", "Search")), strict=True))


@pytest.mark.parametrize(
    ("page", "english", "chinese"),
    [
        ("how-to/results", "how-to/results", "zh/how-to/results"),
        ("zh/how-to/results", "how-to/results", "zh/how-to/results"),
        ("reference/endings", "reference/endings", "zh/index"),
        ("repository/index", "repository/index", "repository/README.zh-CN"),
    ],
)
def test_a_page_leads_to_its_translation(
    browser: Tab, site: Path, page: str, english: str, chinese: str
) -> None:
    browser.open((site / f"{page}.html").as_uri())
    links = "[...document.querySelectorAll('.md-select__link')].map((each) => each.href)"
    assert browser.run(links) == [(site / f"{to}.html").as_uri() for to in (english, chinese)]
