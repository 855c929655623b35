"""The animated page on staleness, and the lessons' figures, as Chromium shows them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.agents import wait_for
from tests.support.chromium import Tab
from tools import figures, rules

pytest_plugins = ["tests.support.chromium"]

PAGE = Path(__file__).parents[2] / "docs/animations/async.html"
LENGTH_MS = 60_000
SETTINGS = [
    rules.Speeds((300, 500, 900), 0, 20),
    rules.Speeds((500,), 0, 0),
    rules.Speeds((300, 300), 2000, 50),
    rules.Speeds((500, 500, 500, 500), 0, 0),
    rules.Speeds((100, 2000, 100), 450, 35),
    rules.Speeds((100, 150, 200, 250, 300, 350, 400, 450), 50, 50),
    rules.Speeds((700,) * 8, 1000, 15),
]


@pytest.fixture
def tab(browser: Tab) -> Tab:
    browser.show_on(1280, still=True)
    browser.open(PAGE.as_uri())
    return browser


def move(tab: Tab, **sliders: int) -> None:
    for name, value in sliders.items():
        slider = f"document.getElementById('{name.replace('_', '-')}')"
        tab.run(f"{slider}.value = {value}")
        tab.run(f"{slider}.dispatchEvent(new Event('input', {{bubbles: true}}))")
        assert tab.run(f"{slider}.value") == str(value)


def table(tab: Tab) -> list[list[str]]:
    rows = "[...document.querySelectorAll('tbody tr, tfoot tr')]"
    return tab.run(f"{rows}.map((row) => [...row.cells].map((c) => c.innerText))")


@pytest.mark.parametrize("speeds", SETTINGS, ids=lambda each: f"{len(each.compute_ms)} workers")
def test_the_page_has_the_numbers_of_the_simulation(tab: Tab, speeds: rules.Speeds) -> None:
    compute = {f"compute_{worker}": ms for worker, ms in enumerate(speeds.compute_ms)}
    workers = len(compute)
    move(tab, workers=workers, pause=speeds.pause_ms, spread=speeds.spread, **compute)
    gradients = rules.asynchronous(speeds, LENGTH_MS)
    fields = ("worker", "read", "compute", "pause", "apply", "seen", "number")
    steps = tab.run(f"steps.filter((step) => step.apply <= {LENGTH_MS})")
    assert steps == [{name: getattr(each, name) for name in fields} for each in gradients]
    of = [[each for each in gradients if each.worker == worker] for worker in range(workers)]
    for row, own in zip(table(tab), [*of, gradients], strict=True):
        assert row[0] == ("all" if own is gradients else f"worker-{own[0].worker}")
        mean = pytest.approx(rules.mean_staleness(own), abs=0.00051)
        largest = max(each.staleness for each in own)
        assert [float(cell) for cell in row[1:]] == [len(own), mean, largest]
    numbers = [
        float(each) for each in re.findall(r"\d+(?:\.\d+)?", tab.run("at('summary').innerText"))
    ]
    mean = pytest.approx(rules.mean_staleness(gradients), abs=0.0051)
    assert numbers == [len(gradients), mean, 1, workers - 1]


def test_the_picture_shows_the_updates_so_far(tab: Tab) -> None:
    move(tab, time=6000)
    gradients = rules.asynchronous(SETTINGS[0], 6000)
    bars = "document.querySelectorAll('#timeline rect.apply[width=\"4\"]').length"
    assert tab.run(bars) == len(gradients)
    mean = tab.run("document.querySelector('#timeline').textContent").rpartition("⌀ ")[2]
    assert float(mean[:4]) == pytest.approx(rules.mean_staleness(gradients), abs=0.0051)


def test_the_keyboard_moves_the_sliders_and_starts_the_motion(tab: Tab) -> None:
    tab.run("at('workers').focus()")
    tab.page.keyboard.press("ArrowRight")
    assert [row[0] for row in table(tab)] == ["worker-0", "worker-1", "worker-2", "worker-3", "all"]
    tab.run("at('play').focus()")
    tab.page.keyboard.press(" ")
    assert tab.run("playing")


def test_every_control_has_a_name_in_both_languages(tab: Tab) -> None:
    names = []
    for language in ("en", "zh"):
        assert tab.run("document.documentElement.lang") == language
        names.append(
            tab.run("[...document.querySelectorAll('label b, button')].map((e) => e.innerText)")
        )
        assert all(names[-1])
        tab.run("at('language').click()")
    assert all(english != chinese for english, chinese in zip(*names, strict=True))
    assert tab.run(
        "[...document.querySelectorAll('input')].every((each) => each.labels.length === 1)"
    )


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_its_window(tab: Tab, width: int) -> None:
    colours = set()
    for dark in (False, True):
        tab.show_on(width, dark=dark, still=True)
        move(tab, workers=8)
        page = "document.documentElement"
        assert tab.run(f"{page}.scrollWidth <= {page}.clientWidth")
        colours.add(tab.run("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2


def test_the_page_has_the_colours_that_the_reader_chose_on_the_site(tab: Tab) -> None:
    key = "new URL('..', location).pathname + '.__palette'"
    tab.run(f"localStorage.setItem({key}, JSON.stringify({{color: {{scheme: 'slate'}}}}))")
    tab.open(PAGE.as_uri())
    found = tab.run("getComputedStyle(document.documentElement).colorScheme")
    tab.run("localStorage.clear()")
    assert found == "dark"


def test_it_moves_unless_the_reader_prefers_less_motion(tab: Tab) -> None:
    assert not tab.run("playing")
    tab.show_on(1280)
    tab.open(PAGE.as_uri())
    wait_for(lambda: tab.run("now > 0"), "the time goes on", 30)
    assert tab.run("at('play').innerText") == "Pause"


def test_it_loads_nothing(tab: Tab) -> None:
    assert tab.run("performance.getEntriesByType('resource').map((each) => each.name)") == []
    assert not re.search(r"https?://|\bsrc=|@import|fetch\(", PAGE.read_text("utf-8"))


OVERLAPS = """[...document.querySelectorAll("text")].flatMap((one, index, all) => {
  const {width, height} = one.ownerSVGElement.viewBox.baseVal, a = one.getBBox();
  const left = a.x < 2 || a.y < 2 || a.x + a.width > width - 2 || a.y + a.height > height - 2;
  const covers = (other) => {
    const b = other.getBBox();
    const across = a.x < b.x + b.width && b.x < a.x + a.width;
    return across && a.y + 3 < b.y + b.height && b.y + 3 < a.y + a.height;
  };
  const covered = all.slice(index + 1).filter(covers).map((each) => each.textContent);
  return [...(left ? ["the frame"] : []), ...covered].map((each) => `${one.textContent}: ${each}`);
})"""
"""The texts of a picture that leave it, or that cover each other."""


@pytest.mark.parametrize("path", figures.files(), ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_no_text_of_a_figure_is_cut_or_covered(browser: Tab, path: Path) -> None:
    browser.open(path.as_uri())
    assert browser.run("document.querySelectorAll('text').length") > 10
    assert browser.run(OVERLAPS) == []
