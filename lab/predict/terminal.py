"""What the terminal shows: figures as tables, and digits as half blocks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from lab.predict.network import Shares
from lab.predict.prediction import DigitScore, Prediction, most_probable, percent
from lab.run.tables import PIPE_WIDTH, table_of
from lab.task.sdk.data import SIDE, Floats

_SHADES: Final = " ░▒▓█"
_GAP: Final = 2
_BAR: Final = 20


class Screen:
    """Where the answers are shown: stdout, drawn on where it is a terminal."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self._console = Console(width=None if terminal else PIPE_WIDTH, highlight=False)
        can_encode = self._console.encoding.startswith("utf")
        self._draws = terminal and not self._console.is_dumb_terminal and can_encode
        self._in_colour = bool(self._console.color_system) and not self._console.no_color

    def show(self, *renderables: RenderableType) -> None:
        """Print one below the other."""
        for each in renderables:
            self._console.print(each)

    def digits(self, answers: Sequence[Prediction], places: Sequence[int]) -> None:
        """Show images of the test set: a row of them as far as it goes, else a table.

        Args:
            answers: What the model says of them.
            places: Where they stand in the test set.
        """
        fitting = (self._console.width + _GAP) // (SIDE // 2 + _GAP)
        if not self._draws or fitting < 1:
            rows = [_row(answer, place) for answer, place in zip(answers, places, strict=True)]
            columns = (">image", ">digit", ">predicted", ">probability", "")
            self.show(table_of(columns, rows))
            return
        row = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
        for _ in answers[:fitting]:
            row.add_column(width=SIDE // 2, no_wrap=True)
        row.add_row(*(self._blocks(_halved(answer.image)) for answer in answers[:fitting]))
        row.add_row(*(_caption(answer) for answer in answers[:fitting]))
        self.show(row)

    def picture(self, image: Floats, probabilities: Shares) -> None:
        """Show what the model saw of one's own picture, and the three most probable digits."""
        ranking = Table.grid(padding=(0, 2, 0, 0))
        for place, (digit, probability) in enumerate(most_probable(probabilities, 3)):
            style = "" if place else "bold"
            cells = [str(digit), percent(probability, 2).rjust(7)]
            if self._draws:
                cells.append("█" * round(probability * _BAR))
            ranking.add_row(*(Text(cell, style) for cell in cells))
        fits = self._console.width >= SIDE + 3 + 12 + _BAR
        if not self._draws or not fits:
            self.show(ranking)
            return
        beside = Table.grid(padding=(0, 3, 0, 0))
        beside.add_row(self._blocks(image.reshape(SIDE, SIDE)), ranking)
        self.show(beside)

    def _blocks(self, image: Floats) -> Text:
        """Draw two rows of pixels in one line of signs; light on dark, as the model sees it."""
        text = Text(end="")
        for line in range(0, len(image), 2):
            if line:
                text.append("\n")
            for upper, lower in zip(image[line], image[line + 1], strict=True):
                if self._in_colour:
                    text.append("▀", Style(color=_grey(upper), bgcolor=_grey(lower)))
                else:
                    text.append(_SHADES[round((upper + lower) / 2 * (len(_SHADES) - 1))])
        return text


def scores_table(scores: Sequence[DigitScore]) -> Table:
    """How each digit was recognized."""
    rows = [
        (
            str(score.digit),
            f"{score.images:,}",
            f"{score.right:,}",
            "" if score.accuracy is None else f"{score.accuracy:.4f}",
            "" if score.mistaken_for is None else f"{score.mistaken_for} ({score.mistakes})",
        )
        for score in scores
    ]
    return table_of((">digit", ">images", ">right", ">accuracy", "most often taken for"), rows)


def _row(answer: Prediction, place: int) -> tuple[str, ...]:
    return (
        str(place),
        str(answer.label),
        str(answer.predicted),
        percent(answer.probability, 2),
        "wrong" if answer.wrong else "right",
    )


def _caption(answer: Prediction) -> Text:
    return Text(
        answer.caption.replace("  ", " "), "bold red" if answer.wrong else "", justify="center"
    )


def _halved(image: Floats) -> Floats:
    """Half as many pixels along each side: the means of four."""
    half = SIDE // 2
    means: Floats = image.reshape(half, 2, half, 2).mean(axis=(1, 3))
    return means


def _grey(value: float) -> str:
    level = round(float(np.clip(value, 0, 1)) * 255)
    return f"#{level:02x}{level:02x}{level:02x}"
