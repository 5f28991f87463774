"""Regions of interest: from positions along named axes to boxes of level-0 pixels. Pure arithmetic.

Position 0 is the outer edge of the image's first pixel, as in the ROI tables of Fractal and in ngio: pixel i covers
``[i * scale, (i + 1) * scale)``. The metadata's translation, the position of the first pixel's centre in the world,
plays no part.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box
from ziggurat.errors import MetadataError, RegionError
from ziggurat.grid import Shape

if TYPE_CHECKING:
    from ziggurat.pyramid import Pyramid

__all__ = ["Floats", "Intervals", "box_of_roi", "boxes_of", "is_roi", "scale_of", "settle"]

type Floats = NDArray[np.float64]
type Intervals = Mapping[str, tuple[Floats, Floats]]

NOISE = 1e-6
"""Pixels that float64 arithmetic may be off."""

LOOSE = 1e-2
"""Pixels that ngio takes for noise; what this module does never exceeds."""


def box_of_roi(roi: Any, pyramid: "Pyramid") -> Box:
    """Return the pixels of level 0 that a region touches which is given in physical units.

    Parameters
    ----------
    roi : mapping, or an object like ``ngio.Roi``
        A mapping of axis names to ``(start, stop)`` in the axes' own units, or to slices of them; None is an open end.
        An object like ngio's has ``slices``, each with ``axis_name``, ``start`` and ``length``, and a ``space``,
        ``"world"`` or ``"pixel"``; its box is the one that ngio reads and writes. Axes that are not named are whole.
    pyramid : Pyramid
        Its axes, level 0's shape and scale.

    Raises
    ------
    RegionError
        When the region names an axis that the image has not, leaves the image, or holds what is no number.
    MetadataError
        When the image has no scale.

    Examples
    --------
    >>> import zarr
    >>> from ziggurat import open_pyramid
    >>> scale = {"type": "scale", "scale": [0.5, 0.25]}
    >>> axes = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    >>> datasets = [{"path": "0", "coordinateTransformations": [scale]}]
    >>> group = zarr.create_group({}, attributes={"ome": {"version": "0.5", "multiscales": [
    ...     {"axes": axes, "datasets": datasets}]}})
    >>> _ = group.create_array("0", shape=(64, 64), chunks=(16, 16), dtype="uint8")
    >>> box_of_roi({"x": (1.0, 2.1)}, open_pyramid(group))
    ((0, 64), (4, 9))
    """
    if isinstance(roi, Mapping):
        found = {str(axis): _mapped(str(axis), bounds, pyramid, roi) for axis, bounds in roi.items()}
    elif is_roi(roi):
        entries = [entry for entry in roi.slices if not _is_flat(entry, pyramid)]
        found = {entry.axis_name: _sliced(entry, roi.space, pyramid) for entry in entries}
    else:
        raise RegionError(f"region {roi!r} is none: give a mapping of axis names to (start, stop), or a Roi")
    intervals = {axis: (np.array([start]), np.array([stop])) for axis, (start, stop) in found.items()}
    return boxes_of(intervals, 1, pyramid.axes, pyramid.levels[0].shape, lambda _: f"region {roi!r}")[0]


def is_roi(region: Any) -> bool:
    """Say whether `region` is given in physical units."""
    return isinstance(region, Mapping) or (hasattr(region, "slices") and hasattr(region, "space"))


def boxes_of(
    intervals: Intervals, n: int, axes: tuple[str, ...], shape: Shape, name: Callable[[int], str]
) -> list[Box]:
    """Return the boxes of all pixels that `n` regions touch.

    Parameters
    ----------
    intervals : mapping of str to two arrays
        Starts and stops along each axis, in pixels, of shape ``(n,)``; an axis that is absent is whole.
    axes, shape
        Of the image.
    name : callable
        What messages call a region, by its number.

    Raises
    ------
    RegionError
        When a bound is no finite number, a region ends before it starts, or leaves the image.

    Examples
    --------
    >>> boxes_of({"x": (np.array([0.5]), np.array([2.5]))}, 1, ("y", "x"), (4, 4), str)
    [((0, 4), (0, 3))]
    """
    bounds = np.empty((n, len(axes), 2), np.int64)
    for k, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        if axis in intervals:
            bounds[:, k, 0], bounds[:, k, 1] = _cover(*intervals[axis], axis, size, name)
        else:
            bounds[:, k] = 0, size
    return [tuple((start, stop) for start, stop in row) for row in bounds.tolist()]


def settle(pixels: Floats, tolerance: float | None = None) -> Floats:
    """Return positions with those that are whole, but for noise, made whole.

    Parameters
    ----------
    pixels : numpy.ndarray
        Positions in pixels.
    tolerance : float, optional
        What counts as noise: 1e-6 pixels by default, more far from 0, where positions that were once stored in single
        precision (as Fractal's tables are) are no better than that; never more than 1e-2.

    Examples
    --------
    >>> settle(np.array([2.9999999, 2.9]))
    array([3. , 2.9])
    """
    noise = np.clip(np.abs(pixels) * 2.0**-23, NOISE, LOOSE) if tolerance is None else tolerance
    whole = np.rint(pixels)
    with np.errstate(invalid="ignore"):
        return np.where(np.abs(pixels - whole) <= noise, whole, pixels)


def scale_of(axis: str, pyramid: "Pyramid") -> float:
    """Return the physical size of a level-0 pixel along `axis`.

    Raises
    ------
    RegionError
        When the image has no such axis.
    MetadataError
        When its scale is not known.
    """
    level, k = pyramid.levels[0], _index(axis, pyramid)
    scale = 0.0 if level.scale is None else level.scale[k]
    if not scale > 0:
        raise MetadataError(
            f"{pyramid.where}: level {level.name!r} has no scale along {axis!r}, so that physical units mean nothing: "
            "open the image by its OME-Zarr metadata, or give the region in pixels"
        )
    return scale


def _index(axis: str, pyramid: "Pyramid") -> int:
    if axis not in pyramid.axes:
        raise RegionError(f"{pyramid.where} has no axis {axis!r}: its axes are {', '.join(pyramid.axes)}")
    return pyramid.axes.index(axis)


def _cover(start: Floats, stop: Floats, axis: str, size: int, name: Callable[[int], str]) -> tuple[Floats, Floats]:
    first, last = np.floor(start), np.where(stop > start, np.ceil(stop), np.floor(start))
    for wrong, what in (
        (~(np.isfinite(start) & np.isfinite(stop)), "holds what is no finite number"),
        (stop < start, "ends before it starts"),
        ((first < 0) | (last > size), f"leaves the image, which has the pixels 0 to {size - 1}"),
    ):
        if wrong.any():
            i = int(np.argmax(wrong))
            raise RegionError(f"{name(i)} {what}: axis {axis!r}, pixels {start[i]:.9g} to {stop[i]:.9g}")
    return first, last


def _mapped(axis: str, bounds: Any, pyramid: "Pyramid", roi: Any) -> tuple[float, float]:
    scale, size = scale_of(axis, pyramid), pyramid.levels[0].shape[_index(axis, pyramid)]
    try:
        start, stop = (bounds.start, bounds.stop) if isinstance(bounds, slice) else bounds
        return _settled(0 if start is None else start / scale), _settled(size if stop is None else stop / scale)
    except (TypeError, ValueError):
        raise RegionError(
            f"region {roi!r}: {bounds!r} on axis {axis!r} is no (start, stop) in physical units"
        ) from None


def _is_flat(entry: Any, pyramid: "Pyramid") -> bool:
    """Say whether an entry is the z that ngio lets regions of a plane have."""
    return entry.axis_name == "z" and "z" not in pyramid.axes and entry.start in (0, None) and entry.length in (1, None)


def _sliced(entry: Any, space: str, pyramid: "Pyramid") -> tuple[float, float]:
    size = pyramid.levels[0].shape[_index(entry.axis_name, pyramid)]
    # ngio takes pixels as they are; of physical units it rounds start and length, each for itself, and then adds them.
    scale, noise = (1.0, 0.0) if space == "pixel" else (scale_of(entry.axis_name, pyramid), LOOSE)
    if entry.start is None or entry.length is None:
        return _settled((entry.start or 0) / scale, noise), size
    start = _settled(entry.start / scale, noise)
    return start, start + _settled(entry.length / scale, noise)


def _settled(pixels: float, tolerance: float | None = None) -> float:
    return float(settle(np.array(pixels, float), tolerance))
