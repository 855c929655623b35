"""Digits and what was answered, as a PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from lab.predict.network import Shares
from lab.predict.prediction import Prediction, percent
from lab.task.sdk.data import SIDE, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS: Final = (4, 5, 6, 7, 8)
_CELL: Final = 1.3  # inches
_HEAD: Final = 0.55
# Two colours that remain apart for colour-blind eyes, of the palette by Okabe and Ito; besides,
# what is wrong has a cross, a thick frame and the right digit beside it.
_RIGHT: Final = "#0072b2"
_WRONG: Final = "#d55e00"
_OTHER: Final = "#999999"

_SOFTWARE: Final = "lab predict"
"""The program that wrote a picture, in its metadata."""


def is_picture(begin: bytes) -> bool:
    """Whether a file that begins so is such a picture."""
    return begin.startswith(b"\x89PNG") and _SOFTWARE.encode() in begin


def draw_grid(answers: Sequence[Prediction], title: str) -> bytes:
    """Draw digits, each below its answer.

    Args:
        answers: At least one.
        title: What stands above them.

    Returns:
        A PNG; the same answers give the same bytes.
    """
    # Imported here: matplotlib costs more than all the rest, and a refusal does not need it.
    from lab.plots import style  # noqa: PLC0415

    columns = _columns(len(answers))
    rows = math.ceil(len(answers) / columns)
    with style.settings():
        figure = _titled(rows * _CELL, columns * _CELL, title)
        # A single row that is not full is spread over the width.
        across = min(columns, len(answers))
        axes = figure.subplots(rows, across, squeeze=False)
        for ax, answer in zip_longest(axes.flat, answers):
            if answer is None:
                ax.set_visible(False)
                continue
            colour = _WRONG if answer.wrong else _RIGHT
            _digit(ax, answer.image, colour, width=2.5 if answer.wrong else 0.8)
            weight = "bold" if answer.wrong else "normal"
            ax.set_title(answer.caption, fontsize=8.5, color=colour, pad=4, fontweight=weight)
        return style.png(figure, _SOFTWARE)


def draw_one(image: Floats, probabilities: Shares, title: str) -> bytes:
    """Draw one digit as the model saw it, beside the probability of each.

    Returns:
        A PNG; the same answer gives the same bytes.
    """
    from lab.plots import style  # noqa: PLC0415  (as above)

    with style.settings():
        figure = _titled(2.7, 6.0, title)
        picture, bars = figure.subplots(1, 2)
        _digit(picture, image, _RIGHT, width=0.8)
        best = int(probabilities.argmax())
        digits = range(len(probabilities))
        colours = [_RIGHT if digit == best else _OTHER for digit in digits]
        drawn = bars.barh(digits, probabilities.tolist(), color=colours)
        labels = bars.bar_label(drawn, list(map(percent, probabilities)), padding=4, fontsize=8)
        labels[best].set_fontweight("bold")
        bars.set(xlim=(0, 1.15), xticks=[], yticks=list(digits))
        bars.invert_yaxis()
        bars.tick_params(length=0, labelsize=9)
        bars.grid(visible=False)
        bars.spines["bottom"].set_visible(False)
        return style.png(figure, _SOFTWARE)


def _titled(height: float, width: float, title: str) -> Figure:
    """A sheet of so many inches, with room for a title above them."""
    from lab.plots import style  # noqa: PLC0415  (as above)

    figure = style.new_figure(height + _HEAD, width)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08)
    figure.suptitle(title, fontsize=9.5)
    return figure


def _columns(count: int) -> int:
    """So many that few places stay empty, and that the grid is a little wider than high."""
    wanted = 1.25 * math.sqrt(count)
    return min(_COLUMNS, key=lambda columns: (-count % columns, abs(columns - wanted)))


def _digit(axes: Axes, image: Floats, colour: str, *, width: float) -> None:
    """Draw an image, black on white, in a frame."""
    pixels = image.reshape(SIDE, SIDE)
    axes.imshow(pixels, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=colour, linewidth=width)
