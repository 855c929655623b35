"""The figures of the lessons, and the rules from which their numbers come."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tools import figures, rules

FILES = figures.files()
TRAININGS = {
    "stragglers": rules.Synchronous(figures.STRAGGLERS, 3, apply_ms=2),
    "backup": rules.Synchronous(figures.STRAGGLERS, 2, apply_ms=2),
    "tokens": figures.TOKENS,
}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_file_is_what_the_code_draws(path: Path) -> None:
    hint = "run `python tools/figures.py`"
    assert path.is_file(), hint
    assert path.read_text("utf-8") == FILES[path], hint


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_figure_has_a_title_and_stays_inside_its_frame(path: Path) -> None:
    picture = ET.fromstring(FILES[path])  # noqa: S314  (ours)
    _, _, width, height = map(float, picture.attrib["viewBox"].split())
    assert picture.find("{*}title").text
    for each in picture.iter("{*}rect"):
        x, y, w, h = (float(each.get(name)) for name in ("x", "y", "width", "height"))
        assert w > 0
        assert x >= 0
        assert x + w <= width
        assert y + h <= height


def test_the_numbers_in_the_alternative_texts_are_those_of_the_figures() -> None:
    drawn = {path.stem: text for path, text in FILES.items() if path.parts[-3] == "docs"}
    lessons = figures.ROOT / "docs/tutorials/lessons"
    assert "band: 4 updates between" in drawn["async"]
    assert "four updates, so its staleness is 4" in (lessons / "async.md").read_text("utf-8")
    updates = Counter(re.findall(r'<circle class="apply"[^>]* cy="([\d.]+)"', drawn["sync"]))
    assert [updates[height] for height in sorted(updates, key=float)] == [3, 5]
    assert "five updates instead of three" in (lessons / "sync.md").read_text("utf-8")


@pytest.mark.parametrize("compute", [(9, 22, 30), (300, 300, 300, 300), (100, 900), (500,)])
@pytest.mark.parametrize("pause", [0, 70])
def test_staleness_counts_the_updates_since_the_read(compute: tuple[int, ...], pause: int) -> None:
    gradients = rules.asynchronous(rules.Speeds(compute, pause, spread=30), 6_000)
    counts = [(each.apply, each.worker) for each in gradients]
    assert counts == sorted(counts)
    for number, each in enumerate(gradients):
        between = [at for at in counts if (each.read, each.worker) < at < counts[number]]
        assert each.staleness == len(between)
    assert 0 <= rules.mean_staleness(gradients) <= len(compute) - 1


def test_without_backup_workers_an_update_has_one_gradient_of_each_worker() -> None:
    training = TRAININGS["stragglers"]
    begun = [each for each in training.moments if each.kind == "begin"]
    assert [sorted(each.gradients) for each in begun] == [[0, 1, 2]] * 6
    slowest = [max(times) for times in zip(*figures.STRAGGLERS, strict=True)]
    assert training.updates == list(np.cumsum([each + 2 for each in slowest]))


def test_a_backup_worker_makes_updates_earlier_and_drops_gradients() -> None:
    alone, backup = TRAININGS["stragglers"], TRAININGS["backup"]
    assert backup.updates[:5] < alone.updates[:5]
    assert all(each.accepted for each in alone.works)
    assert {each.worker for each in backup.works if not each.accepted} == {0, 1, 2}


def test_a_fast_worker_takes_two_tokens_and_both_gradients_enter_one_update() -> None:
    moments = TRAININGS["tokens"].moments
    taken = Counter((each.worker, each.token) for each in moments if each.kind == "take")
    assert taken[0, 1] == 2
    assert (2, (0, 0)) in {(each.token, each.gradients) for each in moments if each.kind == "begin"}


@pytest.mark.parametrize("workers", [2, 3, 4, 7])
def test_a_ring_adds_each_gradient_once(workers: int) -> None:
    frames = rules.ring(workers)
    assert len(frames) == 2 * (workers - 1)
    parts = np.random.default_rng(0).normal(size=(workers, workers))
    sums = parts.copy()
    for number, frame in enumerate(frames):
        sent = [sums[worker, part] for worker, part in enumerate(frame.moves)]
        for worker, part in enumerate(frame.moves):
            to = (worker + 1) % workers
            sums[to, part] = sent[worker] + (sums[to, part] if number < workers - 1 else 0)
        held = [[sum(parts[sorted(of), at]) for at, of in enumerate(row)] for row in frame.held]
        assert sums == pytest.approx(np.array(held))
    assert sums == pytest.approx(np.tile(parts.sum(axis=0), (workers, 1)))


def test_gradients_from_one_point_act_as_one_step_of_their_summed_rate() -> None:
    assert rules.descent(0.55, 4, 4)[-1] == pytest.approx(rules.descent(4 * 0.55, 1, 1)[-1])
    fresh, stale = (abs(rules.descent(0.55, together, 40)[-1]) for together in (1, 4))
    assert fresh < 1e-9
    assert stale > 1


def test_round_robin_places_the_same_bytes_as_the_lessons() -> None:
    held = rules.round_robin(figures.MLP, 2)
    assert [sum(parts.values()) for parts in held] == [1_588_000, 2_040]
