"""Text from outside that is safe for a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.base.text import SPLIT_MARK, bounded, clipped, printed, short, visible


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("tab\tstays", "tab\tstays"),
        ("é 日本 🙂", "é 日本 🙂"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb\x08c\x07", "a\\x0db\\x08c\\x07"),
        (b"\x9b31m\xff", "\ufffd31m\ufffd"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eabc\u2028", "\\u202eabc\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_visible(raw: str | bytes, shown: str) -> None:
    assert visible(raw) == shown


@given(st.text() | st.binary() | st.text(st.sampled_from("ab\r\b\x1b[31mK;é")))
def test_nothing_unsafe_is_ever_shown(raw: str | bytes) -> None:
    line = raw.encode(errors="surrogatepass") if isinstance(raw, str) else raw
    for shown in (visible(raw), printed(line)):
        assert visible(shown) == shown
        assert not [c for c in shown if c != "\t" and (ord(c) < 32 or 127 <= ord(c) < 160)]
        shown.encode()


BAR = (
    "\x1b[1m{0}/20\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m\x1b[0m \x1b[1m1s\x1b[0m 2ms/step - loss: 0.{0}"
)
STATES = ("\b" * 40 + "\r").join(BAR.format(step) for step in range(1, 21))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (f"\r{STATES}\b\b\r", "20/20 ━━ 1s 2ms/step - loss: 0.20"),
        (STATES[: STATES.rindex("2ms")] + SPLIT_MARK, "19/20 ━━ 1s 2ms/step - loss: 0.19"),
        (f"a{SPLIT_MARK}", f"a{SPLIT_MARK}"),
        ("step 1\rstep 2\r", "step 2"),
        ("\r\b\r", ""),
        ("working |\b/\b-\bdone", "working done"),
        ("\b\bab", "ab"),
        ("\x1b[2K\x1b[31mred \x1b[0m[b]\x1b[38;5;1m é", "red [b] é"),
        ("\ttwo  blanks ", "\ttwo  blanks "),
        ("\x1b]0;title\x07\x1b", "\\x1b]0;title\\x07\\x1b"),
        ("\x1b\x1b[m[31mx", "\\x1b[31mx"),
    ],
)
def test_of_an_overwritten_line_the_last_state_is_shown(line: str, shown: str) -> None:
    assert printed(line.encode()) == shown


def test_short() -> None:
    assert short("x" * 200) == "x" * 200
    cut = short("x" * 5000)
    assert cut == "x" * 180 + "… (5,000 characters)"
    assert short(cut) == cut
    assert clipped("x" * 40, 40) == "x" * 40
    assert clipped("x" * 41, 40) == "x" * 39 + "…"


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("the runs' volume isn't there, and " + "so it is " * 30 + "with the user's files", None),
        (f"no task '{'x' * 201}'; see it", f"no task '{'x' * 182}… (201 characters)'; see it"),
        (f"no run '{'a b ' * 60}' here", f"no run '{('a b ' * 60)[:182]}… (240 characters)' here"),
        (f"/{'x' * 300}/y: not found", f"/{'x' * 181}… (304 characters) not found"),
        ("a b " * 300, ("a b " * 300)[:980] + "… (1,200 characters)"),
        ("x\n\x1b[2J", r"x\x0a\x1b[2J"),
    ],
)
def test_long_parts_of_a_message_are_cut(message: str, shown: str | None) -> None:
    assert bounded(message) == (message if shown is None else shown)


@given(st.text(st.sampled_from("ab '\n\x1b…é"), max_size=3000))
def test_messages_are_bounded(message: str) -> None:
    shown = bounded(message)
    assert len(shown) <= 1000
    assert max(map(len, shown.split(" "))) <= 202  # with quotation marks
