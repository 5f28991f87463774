"""Pixels as pictures: contrast, colours, and PNG, with no more than numpy and the standard library."""

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["composite", "data_uri", "label_colours", "limits", "png", "shrink", "stretch"]

type Pixels = NDArray[np.generic]
type Bytes = NDArray[np.uint8]
type Colour = tuple[float, float, float]

GREY: Colour = (1, 1, 1)
COLOURS: tuple[Colour, ...] = ((1, 0, 1), (0, 1, 0), (0, 0.6, 1), (1, 0.7, 0), (1, 0, 0), (0, 1, 1))


def shrink(planes: Pixels, size: int, is_label: bool = False) -> Pixels:
    """Return planes (c, y, x) of at most `size` pixels per side: means of blocks, of labels one pixel of each."""
    step = max(1, *(-(-n // size) for n in planes.shape[1:]))
    if step == 1:
        return planes
    if is_label or planes.dtype.kind not in "iuf":
        return planes[:, ::step, ::step]
    sums = planes
    for axis in (2, 1):
        starts = np.arange(0, planes.shape[axis], step)
        counts = np.diff(np.append(starts, planes.shape[axis]))
        # Converted while it is added up: the whole as floats would take eight times as much memory.
        sums = np.add.reduceat(sums, starts, axis=axis, dtype=np.float64) / np.expand_dims(counts, (0, 3 - axis))
    return sums.astype(planes.dtype)


def limits(planes: Pixels, low: float = 1, high: float = 99.8) -> NDArray[np.float64]:
    """Return what is black and what is brightest in each channel of planes (c, y, x): two percentiles, shape (c, 2).

    Three channels of bytes are a colour picture, whose pixels mean what they say.
    """
    if planes.dtype == np.uint8 and len(planes) == 3:
        return np.array([(0.0, 255.0)] * 3)
    return np.array([_limits(channel, low, high) for channel in _real(planes)])


def _real(planes: Pixels) -> NDArray[np.float64]:
    values = np.abs(planes) if planes.dtype.kind == "c" else planes
    return values.astype(np.float64)


def _limits(channel: NDArray[np.float64], low: float, high: float) -> tuple[float, float]:
    finite = channel[np.isfinite(channel)]
    if not finite.size:
        return 0.0, 1.0
    floor, ceiling = np.percentile(finite, (low, high))
    if ceiling <= floor:
        # What differs is less than the percentiles leave out.
        floor, ceiling = finite.min(), finite.max()
    # A flat channel is grey, black where it is 0.
    return (float(floor), float(ceiling)) if ceiling > floor else (float(floor) - bool(floor), float(floor) + 1)


def stretch(planes: Pixels, bounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale each channel of planes (c, y, x) to 0..1 between its `bounds`, as `limits` returns them."""
    floor, ceiling = bounds[:, :1, None], bounds[:, 1:, None]
    return np.clip((np.nan_to_num(_real(planes), nan=-np.inf) - floor) / (ceiling - floor), 0, 1)


def composite(planes: Pixels, bounds: NDArray[np.float64] | None = None) -> Bytes:
    """Return planes (c, y, x) as a picture (y, x, 3): grey, the three colours, or one colour per channel, added up."""
    scaled = stretch(planes, limits(planes) if bounds is None else bounds)
    if len(scaled) == 1:
        colours: Sequence[Colour] = (GREY,)
    elif planes.dtype == np.uint8 and len(scaled) == 3:
        colours = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    else:
        colours = [COLOURS[i % len(COLOURS)] for i in range(len(scaled))]
    mixed = np.tensordot(scaled, np.asarray(colours, np.float64), axes=(0, 0))
    return np.rint(np.clip(mixed, 0, 1) * 255).astype(np.uint8)


def label_colours(labels: Pixels) -> Bytes:
    """Return labels (y, x) as a picture (y, x, 4): 0 is clear, every other value has a colour of its own, always.

    The colour is a hash of the value, so that the levels of an image, and images of a series, agree.
    """
    values = labels.astype(np.int64).astype(np.uint64)
    with np.errstate(over="ignore"):
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        values ^= values >> np.uint64(31)
    hue = (values & np.uint64(0xFFFF)).astype(np.float64) / 0x10000
    value = 0.65 + 0.35 * ((values >> np.uint64(16)) & np.uint64(0xFF)).astype(np.float64) / 0xFF
    # Three cosines a third of a turn apart go round the colours, none of them near black or white.
    turns = hue[..., None] + np.array([0, 1 / 3, 2 / 3])
    rgb = value[..., None] * (0.55 + 0.45 * np.cos(2 * np.pi * turns))
    alpha = np.where(labels == 0, 0.0, 1.0)
    return np.rint(np.concatenate([rgb, alpha[..., None]], axis=-1) * 255).astype(np.uint8)


def png(picture: Bytes) -> bytes:
    """Encode a picture (y, x, 3 or 4) as PNG."""
    height, width, n_channels = picture.shape
    # Each row as its difference from the one above, which compresses better (filter 2 of the format).
    rows = np.diff(picture.reshape(height, -1), axis=0, prepend=np.zeros((1, width * n_channels), np.uint8))
    filtered = np.concatenate([np.full((height, 1), 2, np.uint8), rows], axis=1)
    header = struct.pack(">IIBBBBB", width, height, 8, {3: 2, 4: 6}[n_channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def data_uri(picture: Bytes) -> str:
    """Return a picture as a URI that an ``img`` element shows."""
    return f"data:image/png;base64,{b64encode(png(picture)).decode()}"
