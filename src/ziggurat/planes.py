"""Planes of a pyramid that can be looked at: which axes are seen, what a plane costs to read, and its picture."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, Interval, slices
from ziggurat.pictures import composite, label_colours, shrink

if TYPE_CHECKING:
    from ziggurat.pyramid import Pyramid

__all__ = ["Planes"]

MAX_CHANNELS = 6
"""More than these are hard to tell apart."""


@dataclass(frozen=True, slots=True)
class Planes:
    """The planes of a pyramid that are seen: all (or the first) channels, the first time, the middle of other axes.

    Attributes
    ----------
    pyramid : Pyramid
        What is looked at.
    channel, y : int or None
        The axis of channels, and the one that runs down; None where there is none.
    x : int
        The axis that runs right.
    is_label : bool
        Whether pixels are labels, or yes and no.
    """

    pyramid: "Pyramid"
    channel: int | None
    y: int | None
    x: int
    is_label: bool

    @staticmethod
    def of(pyramid: "Pyramid") -> "Planes":
        """Find out which axes of `pyramid` are seen."""
        types = {axis.name: axis.type for axis in pyramid.image.axes} if pyramid.image else {}
        channels = [i for i, name in enumerate(pyramid.axes) if types.get(name) == "channel" or name == "c"]
        seen = [i for i in range(len(pyramid.axes)) if i not in channels] or channels[-1:]
        channel = channels[0] if channels and channels[0] not in seen else None
        kind = pyramid.levels[0].dtype.kind
        is_label = pyramid.image.is_label if pyramid.image else pyramid.method == "mode"
        return Planes(pyramid, channel, seen[-2] if len(seen) > 1 else None, seen[-1], is_label and kind in "iub")

    @property
    def seen(self) -> tuple[int, ...]:
        """The axes that run down and right."""
        return (self.x,) if self.y is None else (self.y, self.x)

    def size(self, k: int) -> int:
        """Pixels of level `k` along the longer side."""
        return max(self.pyramid.levels[k].shape[i] for i in self.seen)

    def box(self, k: int) -> Box:
        """Return the whole plane of level `k`: the first channels, and the middle of axes that do not run."""
        return self.plane(k, self.pyramid.levels[k].box)

    def plane(self, k: int, box: Box) -> Box:
        """Return `box` of level `k` with as many channels as are seen, and one pixel of each axis that does not run."""
        level = self.pyramid.levels[k]
        axes = zip(self.pyramid.axes, box, level.shape, strict=True)
        return tuple(self._bounds(i, *axis) for i, axis in enumerate(axes))

    def _bounds(self, i: int, name: str, interval: Interval, n: int) -> Interval:
        if i == self.channel:
            return interval[0], min(interval[1], interval[0] + MAX_CHANNELS)
        if i in self.seen:
            return interval
        at = 0 if name == "t" and interval == (0, n) else min(sum(interval) // 2, n - 1)
        return at, at + 1

    def cost_bytes(self, k: int, box: Box) -> int:
        """Return the bytes of the chunks that reading `box` decodes."""
        level = self.pyramid.levels[k]
        axes = zip(box, level.chunk, strict=True)
        return level.bytes_of([(-(-stop // c) - start // c) * c for (start, stop), c in axes])

    def read(self, k: int, box: Box) -> NDArray[Any]:
        """Return the pixels of `box` as planes (c, y, x)."""
        pixels = np.asarray(self.pyramid[k][slices(box)])
        pixels = pixels.astype(pixels.dtype.newbyteorder("="), copy=False)
        order = [i for i in (self.channel, *self.seen) if i is not None]
        others = [i for i in range(pixels.ndim) if i not in order]
        planes = np.asarray(pixels.transpose(*others, *order)[(0,) * len(others)])
        return planes.reshape((1,) * (3 - planes.ndim) + planes.shape)

    def picture(
        self, planes: NDArray[Any], size: int | None = None, bounds: NDArray[Any] | None = None
    ) -> NDArray[np.uint8]:
        """Return planes as a picture of at most `size` pixels per side; `bounds` are those of `composite`."""
        small = planes if size is None else shrink(planes, size, self.is_label)
        return label_colours(small[0]) if self.is_label else composite(small, bounds)

    def physical(self, k: int) -> list[tuple[float, float]]:
        """Return scale and translation of level `k` per axis; in pixels of level 0 where the metadata has none."""
        level, first = self.pyramid.levels[k], self.pyramid.levels[0]
        if level.scale is not None and first.scale is not None and min(*level.scale, *first.scale) > 0:
            return list(zip(level.scale, level.translation or (0.0,) * len(level.shape), strict=True))
        ratios = [n / m for n, m in zip(first.shape, level.shape, strict=True)]
        return [(ratio, (ratio - 1) / 2) for ratio in ratios]
