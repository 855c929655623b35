"""The documents' site, as Chromium shows it from files, without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jieba
import pytest

from lab import __version__
from tests.support.agents import ROOT, wait_for
from tests.support.chromium import Tab
from tools import outside_links, site_versions

pytest_plugins = ["tests.support.chromium"]


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    return folder


def found(tab: Tab, query: str) -> list[str]:
    """The pages that the search finds, the best one first."""
    field = "document.querySelector('.md-search__input')"
    links = "[...document.querySelectorAll('.md-search-result__item > a')]"
    tab.run(f"{field}.focus()")
    tab.run(f"{field}.value = {json.dumps(query)}")
    tab.run(f"{field}.dispatchEvent(new Event('keyup', {{bubbles: true}}))")
    answer = "document.querySelector('.md-search-result__meta').textContent"
    wait_for(lambda: any(map(str.isdigit, tab.run(answer))), f"results for {query}", 30)
    return tab.run(f"{links}.map((each) => each.pathname)")


@pytest.mark.parametrize("query", ["陈旧度", "掉队者", "参数服务器"])
def test_the_search_finds_a_word_inside_a_sentence(browser: Tab, site: Path, query: str) -> None:
    browser.open((site / "zh/index.html").as_uri())
    pages = found(browser, query)
    assert pages
    texts = [Path(page).read_text("utf-8") for page in pages]
    assert query in texts[0]
    # A page lower in the list may have only a part of the word, such as 服务器.
    assert all(any(part in text for part in jieba.cut(query)) for text in texts)


def test_the_chinese_pages_are_in_chinese(browser: Tab, site: Path) -> None:
    pages = ("zh/index", "repository/README.zh-CN", "index")
    languages = {}
    for page in pages:
        browser.open((site / f"{page}.html").as_uri())
        placeholder = browser.run("document.querySelector('.md-search__input').placeholder")
        languages[page] = browser.run("document.documentElement.lang"), placeholder
    chinese = ("zh-CN", "搜索")
    assert languages == dict(zip(pages, (chinese, chinese, ("en", "Search")), strict=True))


def test_the_search_finds_an_english_word(browser: Tab, site: Path) -> None:
    browser.open((site / "index.html").as_uri())
    pages = found(browser, "straggler")
    assert pages
    assert all("straggler" in Path(page).read_text("utf-8").lower() for page in pages)


BROKEN = r"""
[...document.querySelectorAll("td code")].flatMap((code) => {
  const walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT), broken = []
  for (let text = walker.nextNode(); text; text = walker.nextNode())
    for (const word of text.data.matchAll(/\w+/g)) {
      const range = document.createRange()
      range.setStart(text, word.index)
      range.setEnd(text, word.index + word[0].length)
      const tops = new Set([...range.getClientRects()].map((each) => Math.round(each.top)))
      if (tops.size > 1) broken.push(word[0])
    }
  return broken
})
"""
"""The words of the code in tables that do not stay in one line."""


def test_no_identifier_is_broken_in_a_table(browser: Tab, site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if "<table" in page.read_text("utf-8")]
    assert len(pages) > 50
    broken = {}
    for page in pages:
        browser.open(page.as_uri())
        for width in (390, 768, 1280):
            browser.show_on(width)
            if words := browser.run(BROKEN):
                broken[page.relative_to(site).as_posix(), width] = words
    browser.show_on(1200)
    assert not broken


def test_a_reader_sees_the_version_and_goes_to_another(
    browser: Tab, site: Path, tmp_path: Path
) -> None:
    for version in ("0.10.0", "0.9.0"):
        site_versions.add(site, tmp_path, version)
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            home = f"http://127.0.0.1:{server.server_port}/"
            browser.open(home)
            browser.page.wait_for_url(f"{home}0.10/index.html")
            links = "[...document.querySelectorAll('.md-version__link')]"
            wait_for(lambda: browser.run(f"{links}.length") == 2, "the list of versions", 30)
            listed = browser.run(f"{links}.map((each) => [each.innerText.trim(), each.href])")
            assert listed == [["0.10.0", f"{home}0.10/"], ["0.9.0", f"{home}0.9/"]]
            browser.open(listed[1][1])
            foot = "document.querySelector('.md-copyright').innerText"
            assert f"lab {__version__}" in browser.run(foot)
        finally:
            server.shutdown()


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


def test_links_out_of_the_site_are_well_formed(site: Path) -> None:
    links = outside_links.links(site)
    assert len(links) > 20
    assert not {link: pages for link, pages in links.items() if outside_links.fault(link)}


@pytest.mark.parametrize(
    "link", ["http://a.org/", "//a.org/", "https://a", "https://a.org:x/", "https://a.org/b`"]
)
def test_a_malformed_link_is_noticed(link: str) -> None:
    assert outside_links.fault(link)
