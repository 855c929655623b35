"""Converts a user's picture to an image like those of MNIST.

The procedure is that of the data set's authors. Y. LeCun, C. Cortes and C. Burges write at
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
from lab.mnist import SIDE, Floats

LARGEST: Final = 25_000_000
"""Maximum number of pixels: a photograph has fewer, and a damaged file may claim too many."""

LARGEST_FILE: Final = 100_000_000
"""Maximum size of a file, in bytes."""

_BOX: Final = 20
# The approximate maximum length of a side after reduction. Strokes keep their form, and the noise
# of a photograph averages out.
_ENOUGH: Final = 280
# The pixel of the centre of mass in MNIST's images: on average, and at most half a pixel off.
_CENTRE: Final = 14
# Minimum contrast of the strongest stroke to the background; with less, the picture is blank.
_FAINTEST: Final = 0.05
# The edge of a stroke has this share of its full strength; compression artifacts have less.
_EDGE: Final = 0.1
# A stroke differs from the background by this number of times the median difference within the
# background. In a normal distribution, one pixel in 20,000 differs as much by chance.
_BACKGROUND_DIFFERENCES: Final = 6
# Visible pixels with a smaller range of grey have one colour; then the opacity is the drawing.
_ONE_COLOUR: Final = 0.25

Grey = npt.NDArray[np.float32]


def read_picture(path: Path) -> Floats:
    """Read a PNG of any size and mode with one digit, dark on light or light on dark.

    Returns:
        The digit as in MNIST: 784 values in [0, 1], row by row.

    Raises:
        InputError: The file is missing, not a PNG, damaged, too large, or blank.
    """
    ink = _ink(_grey(path))
    if ink is None:
        raise InputError(f"{path}: the picture is blank", "draw one digit on it")
    return normalized(ink)


def normalized(ink: Grey) -> Floats:
    """Fit strokes into an image of MNIST's size: scale them, then centre them.

    Args:
        ink: How strongly each pixel is drawn, in [0, 1], any shape; at least one is 1.

    Returns:
        784 values in [0, 1], float32.
    """
    strokes = ink >= _EDGE
    rows, columns = np.flatnonzero(strokes.any(axis=1)), np.flatnonzero(strokes.any(axis=0))
    drawn = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    height, width = _fitted(drawn.shape[0], drawn.shape[1])
    # The sharpest filter that smooths evenly and adds no ringing.
    image = Image.fromarray(drawn).resize((width, height), Image.Resampling.HAMMING)
    small = np.clip(np.asarray(image, np.float32), 0, 1)
    field = np.zeros((SIDE, SIDE), np.float32)
    top, left = _offset(small.sum(axis=1)), _offset(small.sum(axis=0))
    field[top : top + height, left : left + width] = small
    return field.reshape(-1)


def _fitted(height: int, width: int) -> tuple[int, int]:
    """Return the size at which the longer side has 20 pixels."""
    longer = max(height, width)
    return max(1, round(height * _BOX / longer)), max(1, round(width * _BOX / longer))


def _offset(mass: npt.NDArray[np.float32]) -> int:
    """Return the offset along one axis that puts the centre of mass in the middle."""
    # Rounded, so that float errors do not decide half-way between two pixels.
    centre = round(float((mass * np.arange(len(mass))).sum() / mass.sum()), 4)
    # No stroke may be outside the image.
    return min(max(round(_CENTRE - centre), 0), SIDE - len(mass))


def _ink(grey: Grey) -> Grey | None:
    """Return how strongly each pixel is drawn, in [0, 1], or None for a blank picture.

    It is the difference to the background, which is the grey of the picture's rim. So dark on
    light and light on dark give the same.
    """
    rim = np.concatenate([grey[0], grey[-1], grey[1:-1, 0], grey[1:-1, -1]])
    background = np.median(rim)
    difference = np.abs(grey - background)
    strongest = difference.max()
    usual = float(np.median(np.abs(rim - background)))
    if strongest < max(_FAINTEST, _BACKGROUND_DIFFERENCES * usual):
        return None
    ink: Grey = difference / strongest
    ink[difference < _BACKGROUND_DIFFERENCES * usual] = 0
    return ink


def _grey(path: Path) -> Grey:
    """Return the greys of a file, 0 black to 1 white, shape [height, width]."""
    _check_file(path)
    fix = "give a PNG with one digit on it"
    try:
        with warnings.catch_warnings():
            # Pillow's warnings are not important if it can read the file.
            warnings.simplefilter("ignore")
            with Image.open(path, formats=["PNG"]) as image:
                _check_size(path, image)
                image.load()
                return _reduced(_greys_of(image))
    except UnidentifiedImageError as error:
        raise InputError(f"{path}: is not a PNG", fix) from error
    except Image.DecompressionBombError as error:
        raise _too_large(path) from error
    except OSError as error:
        if error.errno is not None:
            what = f"{path}: cannot be read ({error.strerror})"
            raise InputError(what, "check the file and its permissions") from error
        raise InputError(f"{path}: is damaged ({error})", fix) from error
    # The exceptions that Pillow raises for damaged files.
    except (
        AssertionError, EOFError, IndexError, SyntaxError, ValueError, struct.error, zlib.error,
    ) as error:  # fmt: skip
        raise InputError(f"{path}: is damaged ({error})", fix) from error


def _check_file(path: Path) -> None:
    """Check that it is a regular file: a read from a pipe could block forever."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        what = f"{path}: cannot be read ({reason})"
        raise InputError(what, "name a PNG with one digit on it") from error
    if not stat.S_ISREG(status.st_mode):
        kind = "a directory" if stat.S_ISDIR(status.st_mode) else "not a regular file"
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
    if image.mode.startswith("I"):  # 16 bits a pixel, in any integer mode of Pillow
        return _scaled(image, 0xFFFF)
    if not image.has_transparency_data:
        return _scaled(image.convert("L"), 0xFF)
    layers = image.convert("RGBA").convert("LA")
    return _flattened(_scaled(layers.getchannel("L"), 0xFF), _scaled(layers.getchannel("A"), 0xFF))


def _reduced(grey: Grey) -> Grey:
    """Reduce a large picture: average over squares of pixels."""
    factor = max(grey.shape) // _ENOUGH
    if factor <= 1:
        return grey
    small: Grey = np.asarray(Image.fromarray(grey).reduce(factor), np.float32)
    return small


def _scaled(image: Image.Image, white: int) -> Grey:
    """Return the pixels of one channel, scaled to [0, 1]."""
    values: Grey = np.asarray(image).astype(np.float32) / np.float32(white)
    return values


def _flattened(grey: Grey, opacity: Grey) -> Grey:
    """Put a transparent picture on a background.

    If all visible pixels have one colour, the opacity is the drawing. Otherwise the background is
    the median grey of the visible pixels.
    """
    visible = opacity > opacity.max() / 2
    greys = grey[visible]
    if greys.size == 0 or (not visible.all() and np.ptp(greys) < _ONE_COLOUR):
        return opacity
    flat: Grey = grey * opacity + np.median(greys) * (1 - opacity)
    return flat
