"""Digits and what was answered, as a PNG."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lab.predict.answers import Answer, percent
from lab.predict.network import Shares
from lab.task.data import SIDE, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS: Final = (4, 5, 6, 7, 8)
_CELL: Final = 1.3  # inches
_SIDE: Final = 0.76 * _CELL
_HEAD: Final = 0.55
_DPI: Final = 120
# Two colours that remain apart for colour-blind eyes, of the palette by Okabe and Ito; besides,
# what is wrong has a cross, a thick frame and the right digit beside it.
_RIGHT: Final = "#0072b2"
_WRONG: Final = "#d55e00"
_OTHER: Final = "#999999"


def draw_grid(answers: Sequence[Answer], title: str) -> bytes:
    """Draw digits, each below its answer.

    Args:
        answers: At least one.
        title: What stands above them.

    Returns:
        A PNG; the same answers give the same bytes.
    """
    columns = _columns(len(answers))
    rows = math.ceil(len(answers) / columns)
    # A single row that is not full stands in the middle.
    indent = (columns - len(answers)) / 2 if rows == 1 else 0
    with _sheet(columns * _CELL, rows * _CELL, title) as sheet:
        for place, answer in enumerate(answers):
            row, column = divmod(place, columns)
            bottom = (rows - row - 1) * _CELL + 0.1
            axes = sheet.axes((indent + column + 0.12) * _CELL, bottom, _SIDE, _SIDE)
            colour = _WRONG if answer.wrong else _RIGHT
            _digit(axes, answer.image, colour, width=2.5 if answer.wrong else 0.8)
            weight = "bold" if answer.wrong else "normal"
            axes.set_title(answer.caption, fontsize=8.5, color=colour, pad=4, fontweight=weight)
        return sheet.png()


def draw_one(image: Floats, probabilities: Shares, title: str) -> bytes:
    """Draw one digit as the model saw it, beside the probability of each.

    Returns:
        A PNG; the same answer gives the same bytes.
    """
    with _sheet(6.0, 2.7, title) as sheet:
        _digit(sheet.axes(0.4, 0.35, 2.2, 2.2), image, _RIGHT, width=0.8)
        bars = sheet.axes(3.2, 0.35, 2.1, 2.2)
        best = int(probabilities.argmax())
        digits = range(len(probabilities))
        colours = [_RIGHT if digit == best else _OTHER for digit in digits]
        bars.barh(list(digits), probabilities.tolist(), color=colours)
        for digit, share in enumerate(probabilities):
            weight = "bold" if digit == best else "normal"
            bars.text(
                share + 0.03, digit, percent(share), va="center", fontsize=8, fontweight=weight
            )
        bars.set_xlim(0, 1)
        bars.set_xticks([])
        bars.set_yticks(list(digits))
        bars.invert_yaxis()
        bars.tick_params(length=0, labelsize=9)
        bars.spines[["top", "right", "bottom"]].set_visible(False)
        return sheet.png()


def _columns(count: int) -> int:
    """So many that few places stay empty, and that the grid is a little wider than high."""
    wanted = 1.25 * math.sqrt(count)
    return min(_COLUMNS, key=lambda columns: (-count % columns, abs(columns - wanted)))


def _digit(axes: Axes, image: Floats, colour: str, *, width: float) -> None:
    """Draw an image, black on white, in a frame."""
    pixels = image.reshape(SIDE, SIDE)
    axes.imshow(pixels, cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(colour)
        spine.set_linewidth(width)


class _Sheet:
    """What is drawn upon, measured in inches from its lower left corner."""

    def __init__(self, figure: Figure) -> None:
        self._figure = figure

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """A rectangle to draw in."""
        across, up = self._figure.get_size_inches()
        return self._figure.add_axes((left / across, bottom / up, width / across, height / up))

    def png(self) -> bytes:
        """All of it as a PNG."""
        data = io.BytesIO()
        self._figure.savefig(data, format="png", metadata={"Software": _SOFTWARE})
        return data.getvalue()


@contextmanager
def _sheet(width: float, height: float, title: str) -> Iterator[_Sheet]:
    """A sheet of that many inches, and above them its title."""
    # matplotlib would say on stderr that it makes its list of fonts.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # Imported here: this costs more than all the rest, and a refusal does not need it.
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    # The defaults, not what a matplotlibrc of the user's sets; and a dollar sign begins no formula.
    settings = {**mpl.rcParamsDefault, "text.parse_math": False}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(width, height + _HEAD), dpi=_DPI, facecolor="white")
        FigureCanvasAgg(figure)
        top = 1 - 0.12 / (height + _HEAD)
        figure.text(0.5, top, title, ha="center", va="top", fontsize=9.5)
        yield _Sheet(figure)


_SOFTWARE: Final = "lab predict"
"""Who wrote a picture, as its metadata say."""


def is_picture(begin: bytes) -> bool:
    """Whether a file that begins so is such a picture."""
    return begin.startswith(b"\x89PNG") and _SOFTWARE.encode() in begin
