"""Draws digits with their predictions as a PNG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from lab.mnist import SIDE, Floats
from lab.predict.network import Probabilities
from lab.predict.prediction import Prediction, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS: Final = (4, 5, 6, 7, 8)
_CELL: Final = 1.3  # inches
_HEAD: Final = 0.55
# Two colours of the palette by Okabe and Ito, which colour-blind people can distinguish. A wrong
# prediction also has a cross, a thick frame and the right digit.
_RIGHT: Final = "#0072b2"
_WRONG: Final = "#d55e00"
_OTHER: Final = "#999999"

_SOFTWARE: Final = "lab predict"
"""The name of the program in the metadata of a PNG."""


def is_picture(begin: bytes) -> bool:
    """Return whether a file with this beginning is a PNG of this module."""
    return begin.startswith(b"\x89PNG") and _SOFTWARE.encode() in begin


def draw_grid(predictions: Sequence[Prediction], title: str) -> bytes:
    """Draw digits, each below its prediction.

    Args:
        predictions: At least one.
        title: The title above them.

    Returns:
        A PNG; the same predictions give the same bytes.
    """
    # Imported here: matplotlib is slow to import, and an error does not need it.
    from lab.plots import style  # noqa: PLC0415

    columns = _columns(len(predictions))
    rows = math.ceil(len(predictions) / columns)
    with style.settings():
        figure = _titled(rows * _CELL, columns * _CELL, title)
        # A single incomplete row uses the whole width.
        across = min(columns, len(predictions))
        axes = figure.subplots(rows, across, squeeze=False)
        for ax, prediction in zip_longest(axes.flat, predictions):
            if prediction is None:
                ax.set_visible(False)
                continue
            colour = _WRONG if prediction.wrong else _RIGHT
            _digit(ax, prediction.image, colour, width=2.5 if prediction.wrong else 0.8)
            weight = "bold" if prediction.wrong else "normal"
            ax.set_title(prediction.caption, fontsize=8.5, color=colour, pad=4, fontweight=weight)
        return style.png(figure, _SOFTWARE)


def draw_one(image: Floats, probabilities: Probabilities, title: str) -> bytes:
    """Draw one digit as the model gets it, beside the probability of each digit.

    Returns:
        A PNG; the same input gives the same bytes.
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
    """Return a figure of this size in inches, with additional room for a title."""
    from lab.plots import style  # noqa: PLC0415  (as above)

    figure = style.new_figure(height + _HEAD, width)
    figure.set_layout_engine("constrained", w_pad=0.1, h_pad=0.08)
    figure.suptitle(title, fontsize=9.5)
    return figure


def _columns(count: int) -> int:
    """Return a number of columns with few empty cells, for a grid slightly wider than high."""
    wanted = 1.25 * math.sqrt(count)
    return min(_COLUMNS, key=lambda columns: (-count % columns, abs(columns - wanted)))


def _digit(axes: Axes, image: Floats, colour: str, *, width: float) -> None:
    """Draw an image, black on white, in a frame."""
    pixels = image.reshape(SIDE, SIDE)
    axes.imshow(pixels, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(visible=True, color=colour, linewidth=width)
