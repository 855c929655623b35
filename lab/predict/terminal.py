"""Shows predictions on the terminal: tables, and digits as block characters."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import numpy as np
from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from lab.mnist import SIDE, Floats
from lab.predict.network import Probabilities
from lab.predict.prediction import DigitScore, Prediction, most_probable, percent
from lab.tables import PIPE_WIDTH, table_of

_SHADES: Final = " ░▒▓█"
_GAP: Final = 2
_BAR: Final = 20


class Screen:
    """The output on stdout; it draws digits only on a terminal."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self._console = Console(width=None if terminal else PIPE_WIDTH, highlight=False)
        can_encode = self._console.encoding.startswith("utf")
        self._draws = terminal and not self._console.is_dumb_terminal and can_encode
        self._in_colour = bool(self._console.color_system) and not self._console.no_color

    def show(self, *renderables: RenderableType) -> None:
        """Print each below the other."""
        for each in renderables:
            self._console.print(each)

    def digits(self, predictions: Sequence[Prediction], indices: Sequence[int]) -> None:
        """Show images of the test set: as a row of drawings if possible, else as a table.

        Args:
            predictions: The predictions.
            indices: Their indices in the test set.
        """
        fitting = (self._console.width + _GAP) // (SIDE // 2 + _GAP)
        if not self._draws or fitting < 1:
            rows = [_row(each, index) for each, index in zip(predictions, indices, strict=True)]
            columns = (">image", ">digit", ">predicted", ">probability", "")
            self.show(table_of(columns, rows))
            return
        row = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
        for _ in predictions[:fitting]:
            row.add_column(width=SIDE // 2, no_wrap=True)
        row.add_row(*(self._blocks(_halved(each.image)) for each in predictions[:fitting]))
        row.add_row(*(_caption(each) for each in predictions[:fitting]))
        self.show(row)

    def picture(self, image: Floats, probabilities: Probabilities) -> None:
        """Show the user's picture as the model gets it, and the three most probable digits."""
        ranking = Table.grid(padding=(0, 2, 0, 0))
        for rank, (digit, probability) in enumerate(most_probable(probabilities, 3)):
            style = "" if rank else "bold"
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
        """Draw two rows of pixels in one line of characters, light on dark."""
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
    """Return a table with the score of each digit."""
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
    return table_of((">digit", ">images", ">right", ">accuracy", "most often mistaken for"), rows)


def _row(prediction: Prediction, index: int) -> tuple[str, ...]:
    return (
        str(index),
        str(prediction.label),
        str(prediction.predicted),
        percent(prediction.probability, 2),
        "wrong" if prediction.wrong else "right",
    )


def _caption(prediction: Prediction) -> Text:
    return Text(
        prediction.caption.replace("  ", " "),
        "bold red" if prediction.wrong else "",
        justify="center",
    )


def _halved(image: Floats) -> Floats:
    """Return an image with half as many pixels along each side, each the mean of four."""
    half = SIDE // 2
    means: Floats = image.reshape(half, 2, half, 2).mean(axis=(1, 3))
    return means


def _grey(value: float) -> str:
    level = round(float(np.clip(value, 0, 1)) * 255)
    return f"#{level:02x}{level:02x}{level:02x}"
