"""One's own picture, made into what MNIST's images are.

The procedure is that of the data set's makers. Y. LeCun, C. Cortes and C. Burges write at
http://yann.lecun.com/exdb/mnist: "The original black and white (bilevel) images from NIST were
size normalized to fit in a 20x20 pixel box while preserving their aspect ratio. The resulting
images contain grey levels as a result of the anti-aliasing technique used by the normalization
algorithm. the images were centered in a 28x28 image by computing the center of mass of the
pixels, and translating the image so as to position this point at the center of the 28x28 field."
"""

from __future__ import annotations

import stat
import struct
import warnings
import zlib
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from lab.errors import InputError
from lab.task.sdk.data import SIDE, Floats

LARGEST: Final = 25_000_000
"""So many pixels a picture may have: a photograph has fewer, and a compressed file may claim
more than fits into memory."""

LARGEST_FILE: Final = 100_000_000
"""So many bytes a file may have."""

_BOX: Final = 20
# No side stays longer than about that many pixels: a multiple of the box, in which strokes keep
# their form, while the noise of a photograph averages out.
_ENOUGH: Final = 280
# The pixel on which the centres of mass of MNIST's images lie: on average, and never further than
# half a pixel from it.
_CENTRE: Final = 14
# Less than that between the ground and the strongest stroke, a share of black to white, is blank.
_FAINTEST: Final = 0.05
# A stroke begins where it has that share of its full strength: compression leaves less around it.
_EDGE: Final = 0.1
# The ground of a photograph varies; what differs from it by so many times its usual difference
# (the median) is drawn. Of a normal distribution one pixel in 20,000 differs as much by chance.
_GROUND_DIFFERENCES: Final = 6
# Visible pixels whose grey differs by less than that are of one colour; then transparency draws.
_ONE_COLOUR: Final = 0.25

Grey = npt.NDArray[np.float32]


def read_picture(path: Path) -> Floats:
    """Read a PNG of any size and mode, dark on light or light on dark, with one digit on it.

    Returns:
        The digit as MNIST would hold it: 784 values in [0, 1], row by row.

    Raises:
        InputError: There is no such file, it is no PNG, damaged, too large, or blank.
    """
    ink = _ink(_grey(path))
    if ink is None:
        raise InputError(f"{path}: the picture is blank", "draw one digit on it")
    return normalized(ink)


def normalized(ink: Grey) -> Floats:
    """Fit strokes into MNIST's field: size, then place.

    Args:
        ink: How strongly each pixel is drawn, in [0, 1], any shape; at least one is 1.

    Returns:
        784 values in [0, 1], float32.
    """
    strokes = ink >= _EDGE
    rows, columns = np.flatnonzero(strokes.any(axis=1)), np.flatnonzero(strokes.any(axis=0))
    drawn = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = _fitted(drawn.shape[0], drawn.shape[1])
    # Of the filters that smooth evenly, the sharpest one that adds no ringing of its own.
    image = Image.fromarray(drawn).resize((width, height), Image.Resampling.HAMMING)
    small = np.clip(np.asarray(image, np.float32), 0, 1)
    field = np.zeros((SIDE, SIDE), np.float32)
    top, left = _offset(small.sum(axis=1)), _offset(small.sum(axis=0))
    field[top : top + height, left : left + width] = small
    return field.reshape(-1)


def _fitted(height: int, width: int) -> tuple[int, int]:
    """The size at which the longer side fills the box."""
    longer = max(height, width)
    return max(1, round(height * _BOX / longer)), max(1, round(width * _BOX / longer))


def _offset(mass: npt.NDArray[np.float32]) -> int:
    """Where strokes begin, along one axis, so that their centre of mass comes to the middle."""
    # To a ten thousandth: half-way between two pixels, the last digit of a float would decide.
    centre = round(float((mass * np.arange(len(mass))).sum() / mass.sum()), 4)
    # Nothing that is drawn may fall out of the field.
    return min(max(round(_CENTRE - centre), 0), SIDE - len(mass))


def _ink(grey: Grey) -> Grey | None:
    """How strongly each pixel is drawn, in [0, 1], or None where nothing is.

    What is drawn is what differs from the ground, which is the grey of the picture's rim: so it
    is the same whether dark on light or light on dark.
    """
    rim = np.concatenate([grey[0], grey[-1], grey[1:-1, 0], grey[1:-1, -1]])
    ground = np.median(rim)
    difference = np.abs(grey - ground)
    strongest = difference.max()
    usual = float(np.median(np.abs(rim - ground)))
    if strongest < max(_FAINTEST, _GROUND_DIFFERENCES * usual):
        return None
    ink: Grey = difference / strongest
    ink[difference < _GROUND_DIFFERENCES * usual] = 0
    return ink


def _grey(path: Path) -> Grey:
    """The greys of a file, 0 black to 1 white, shape [height, width]."""
    _check_file(path)
    fix = "give a PNG with one digit on it"
    try:
        with warnings.catch_warnings():
            # Pillow warns of what is odd in a file; what matters is whether it can be read.
            warnings.simplefilter("ignore")
            with Image.open(path, formats=["PNG"]) as image:
                _check_size(path, image)
                image.load()
                return _reduced(_greys_of(image))
    except UnidentifiedImageError as error:
        raise InputError(f"{path}: is no PNG", fix) from error
    except Image.DecompressionBombError as error:
        raise _too_large(path) from error
    except OSError as error:
        if error.errno is not None:
            what = f"{path}: cannot be read ({error.strerror})"
            raise InputError(what, "check the file and its permissions") from error
        raise InputError(f"{path}: is damaged ({error})", fix) from error
    # All that Pillow has been seen to raise at broken chunks.
    except (
        AssertionError, EOFError, IndexError, SyntaxError, ValueError, struct.error, zlib.error,
    ) as error:  # fmt: skip
        raise InputError(f"{path}: is damaged ({error})", fix) from error


def _check_file(path: Path) -> None:
    """See that it is a file, before anything waits for what a pipe may never say."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        what = f"{path}: cannot be read ({reason})"
        raise InputError(what, "name a PNG with one digit on it") from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise InputError(f"{path}: is {kind}", "name a PNG with one digit on it")
    if status.st_size > LARGEST_FILE:
        raise InputError(f"{path}: has {status.st_size:,} bytes", "give a smaller picture")


def _check_size(path: Path, image: Image.Image) -> None:
    width, height = image.size
    if width * height > LARGEST:
        raise _too_large(path, f" ({width} x {height} pixels)")


def _too_large(path: Path, size: str = "") -> InputError:
    return InputError(
        f"{path}: the picture is too large{size}", f"give one of at most {LARGEST:,} pixels"
    )


def _greys_of(image: Image.Image) -> Grey:
    if image.mode.startswith("I"):  # 16 bits a pixel, in whatever integers Pillow keeps them
        return _shares(image, 0xFFFF)
    if not image.has_transparency_data:
        return _shares(image.convert("L"), 0xFF)
    layers = image.convert("RGBA").convert("LA")
    return _flattened(_shares(layers.getchannel("L"), 0xFF), _shares(layers.getchannel("A"), 0xFF))


def _reduced(grey: Grey) -> Grey:
    """Average over squares, so that a large picture becomes one that is large enough."""
    factor = max(grey.shape) // _ENOUGH
    if factor <= 1:
        return grey
    small: Grey = np.asarray(Image.fromarray(grey).reduce(factor), np.float32)
    return small


def _shares(image: Image.Image, white: int) -> Grey:
    """The pixels of one channel, 1 where they are as large as they can be."""
    values: Grey = np.asarray(image).astype(np.float32) / np.float32(white)
    return values


def _flattened(grey: Grey, opacity: Grey) -> Grey:
    """Lay a transparent picture on a ground.

    Where all that can be seen is of one colour, the opacity is the drawing. Otherwise the picture
    brings its ground along: the grey that most of it has.
    """
    visible = opacity > opacity.max() / 2
    seen = grey[visible]
    if seen.size == 0 or (not visible.all() and np.ptp(seen) < _ONE_COLOUR):
        return opacity
    flat: Grey = grey * opacity + np.median(seen) * (1 - opacity)
    return flat
