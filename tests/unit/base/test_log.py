"""Where the messages go: to one output, at their level, and each as it stands."""

from __future__ import annotations

import logging
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from lab.base import console
from lab.base.log import LOG, is_shown, passed_on, shown_by, shown_once
from lab.base.text import visible
from lab.base.threads import with_timeout
from tests.support.agents import PATIENCE_S

EVIL = "100 %s %d \x1b[2J"


def test_a_message_is_no_format_and_its_control_characters_are_visible(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with shown_by(console.show):
        LOG.info(EVIL)
    assert capfd.readouterr() == ("", f"{visible(EVIL)}\n")


def test_the_innermost_block_shows_the_messages_also_of_other_threads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outer: list[str] = []
    inner: list[str] = []
    with shown_by(outer.append):
        LOG.info("a")
        with pytest.raises(ValueError, match="end"), shown_by(inner.append, quiet=True):
            LOG.info("b")
            with ThreadPoolExecutor() as pool:
                pool.submit(LOG.warning, "c").result()
            raise ValueError("end")
        LOG.info("d")
    assert (outer, inner, caplog.messages) == (["a", "d"], ["c"], [])
    LOG.info("e")  # for the handlers of a program that uses lab
    assert caplog.messages == ["e"]


def test_a_thread_with_its_own_block_shows_its_messages_there() -> None:
    quiet: list[str] = []
    own: list[str] = []
    block = shown_by(own.append)
    with shown_by(quiet.append, quiet=True), ThreadPoolExecutor(1) as thread:
        assert (is_shown(), thread.submit(is_shown).result()) == (True, False)
        thread.submit(block.__enter__).result()
        LOG.info("quiet")
        with_timeout(PATIENCE_S, lambda: LOG.info("quiet"))
        thread.submit(LOG.info, "a").result()
        thread.submit(with_timeout, PATIENCE_S, lambda: LOG.info("b")).result()
        thread.submit(block.__exit__, None, None, None).result()
    assert (quiet, own) == ([], ["a", "b"])


def test_blocks_of_threads_may_end_in_any_order(caplog: pytest.LogCaptureFixture) -> None:
    first: list[str] = []
    second: list[str] = []
    one, other = shown_by(first.append), shown_by(second.append)
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    LOG.info("a")
    other.__exit__(None, None, None)
    LOG.info("b")
    assert (first, second, caplog.messages) == ([], ["a"], ["b"])


def test_without_a_block_only_warnings_are_printed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.lastResort, "_stderr", sys.stderr, raising=False)
    LOG.info("progress")
    LOG.warning(EVIL)
    assert capfd.readouterr() == ("", f"{visible(EVIL)}\n")


def test_a_repeated_message_is_shown_once_and_always_passed_on(notices: list[str]) -> None:
    found: list[str] = []
    for _ in range(2):
        with shown_once():
            for _ in range(2):
                with passed_on(found.append):
                    LOG.info("a")
                    LOG.warning("b")
                LOG.info("c")
    assert (notices, found) == (["a", "b", "c"] * 2, ["a", "b"] * 4)


def test_messages_of_another_thread_are_not_passed_on(notices: list[str]) -> None:
    """As in the queue of a class, which boots several environments at once."""
    found: list[str] = []
    with passed_on(found.append), ThreadPoolExecutor() as pool:
        pool.submit(LOG.info, "a").result()
        LOG.info("b")
    assert (notices, found) == (["a", "b"], ["b"])
