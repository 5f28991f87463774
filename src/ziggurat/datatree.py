"""Pyramids as xarray sees them: a tree with one node per level, lazy, with physical coordinates."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.chunkgrid import rectilinear_sizes
from ziggurat.errors import MetadataError
from ziggurat.virtual import Rechunked, as_source

if TYPE_CHECKING:
    import xarray as xr

    from ziggurat.grid import Level
    from ziggurat.pyramid import Pyramid

__all__ = ["VARIABLE", "coordinate", "place_of_axis", "to_datatree"]

VARIABLE = "image"


def to_datatree(pyramid: "Pyramid") -> "xr.DataTree":
    """Return the pyramid as a tree; see `ziggurat.Pyramid.to_datatree`."""
    import xarray as xr

    attrs: dict[str, Any] = {"name": pyramid.name, "method": pyramid.method}
    if pyramid.image is not None:
        attrs |= {"ome_zarr_version": pyramid.image.version, "is_label": pyramid.image.is_label}
    nodes = {level.name: _dataset(pyramid, k) for k, level in enumerate(pyramid.levels)}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes}, name=pyramid.name)


def _dataset(pyramid: "Pyramid", k: int) -> "xr.Dataset":
    import dask.array as da
    import xarray as xr

    level, array = pyramid.levels[k], pyramid[k]
    # dask refuses zarr arrays with a rectilinear grid.
    readable = array if rectilinear_sizes(array) is None else Rechunked(as_source(array), level.units)
    chunks = tuple(axis.sizes if level.cuts else min(axis.size, axis.n) for axis in level.units.axes)
    lazy = da.from_array(readable, chunks=chunks, name=False, inline_array=True)
    image = xr.DataArray(lazy, dims=pyramid.axes, coords=_coordinates(pyramid, level))
    image.encoding = {"chunks": level.chunk, "shards": level.unit if level.is_sharded else None}
    return xr.Dataset({VARIABLE: image})


def _coordinates(pyramid: "Pyramid", level: "Level") -> "dict[str, Any]":
    if level.scale is None or level.translation is None:
        return {}
    axes = pyramid.image.axes if pyramid.image else ()
    found = {}
    for axis, n, scale, translation in zip(axes, level.shape, level.scale, level.translation, strict=True):
        if axis.type in ("space", "time"):
            attrs: dict[str, Any] = {"scale": scale} | ({"units": axis.unit} if axis.unit else {})
            found[axis.name] = (axis.name, coordinate(n, scale, translation), attrs)
    return found


def coordinate(n: int, scale: float, translation: float) -> NDArray[np.float64]:
    """Return where the centres of `n` pixels lie."""
    return np.arange(n, dtype=np.float64) * scale + translation


def place_of_axis(array: "xr.DataArray", axis: str) -> tuple[float, float, str | None]:
    """Return scale, translation and unit of one axis, as its coordinate says them.

    Coordinates that are no numbers, or dates, say nothing about scale and translation.

    Raises
    ------
    MetadataError
        When the coordinates are not evenly spaced, upwards.
    """
    if axis not in array.coords:
        return 1.0, 0.0, None
    variable = array.coords[axis]
    unit = variable.attrs.get("units")
    if variable.dtype.kind not in "iuf" or not variable.size:
        return 1.0, 0.0, unit
    values = np.asarray(variable.values, float)
    # Differences do not give it back to the last bit.
    known = float(variable.attrs.get("scale", 0.0))
    if known > 0 and _is_even(values, known):
        return known, float(values[0]), unit
    step = float((values[-1] - values[0]) / (len(values) - 1)) if len(values) > 1 else 1.0
    if not step > 0 or not _is_even(values, step):
        raise MetadataError(
            f"the coordinates of {axis!r} are not evenly spaced, upwards: OME-Zarr has one scale per axis; drop them, "
            "or sort and resample the data"
        )
    return step, float(values[0]), unit


def _is_even(values: Sequence[float] | Any, step: float) -> bool:
    expected = values[0] + step * np.arange(len(values))
    return bool(np.allclose(values, expected, rtol=1e-9, atol=1e-3 * step))
