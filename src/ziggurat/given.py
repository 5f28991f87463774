"""What callers hand over to build from, whatever it is, as one kind of value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from ziggurat.create import group_of
from ziggurat.datatree import VARIABLE, place_of_axis
from ziggurat.errors import DTypeError, GeometryError, MetadataError
from ziggurat.grid import Shape
from ziggurat.layout import Layout, default_chunk, factors_of, lay_out
from ziggurat.metadata import as_axes, default_axes
from ziggurat.ngff import Axis
from ziggurat.pyramid import Pyramid
from ziggurat.settings import ZarrConfig
from ziggurat.sources import Source
from ziggurat.store import level_of
from ziggurat.validation import AXIS_TYPES
from ziggurat.virtual import Virtual, as_source

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Given", "as_given", "lay_out_given", "per_axis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Pixels to build from, and what is known of them.

    Attributes
    ----------
    data : array
        numpy, dask or zarr, or anything with a shape, a dtype and slices.
    axes : tuple of Axis
        Name, type and unit of each axis.
    scale, translation : tuple of float
        Physical size of a pixel, and the position of the first one's centre.
    chunk, shard : tuple of int, optional
        How it is stored, if it is.
    method, nodata, name, attributes
        What the metadata says, if there is any; all attributes of the group.
    """

    data: Any
    axes: tuple[Axis, ...]
    scale: tuple[float, ...]
    translation: tuple[float, ...]
    chunk: Shape | None = None
    shard: Shape | None = None
    method: str | None = None
    nodata: float | int | None = None
    name: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """Pixels per axis."""
        return tuple(map(int, self.data.shape))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, in this machine's byte order."""
        dtype: np.dtype[Any] = np.dtype(self.data.dtype)
        return dtype.newbyteorder("=") if dtype.kind in "iufc" else dtype

    @property
    def is_space(self) -> tuple[bool, ...]:
        """Which axes are spatial; all that have no known type, where none is."""
        spatial = tuple(a.type == "space" for a in self.axes)
        return spatial if any(spatial) else tuple(a.type is None for a in self.axes)

    def source(self, unit: Shape, settings: ZarrConfig) -> Source:
        """Return what the cascade reads; `unit` is what is read at once where every box costs the same."""
        return as_source(self.data, settings, unit)


def as_given(
    data: Any,
    axes: Sequence[str] | None = None,
    scale: Sequence[float] | Mapping[str, float] | None = None,
    translation: Sequence[float] | Mapping[str, float] | None = None,
    units: Mapping[str, str] | str | None = None,
) -> Given:
    """Return `data` with all that it says itself, and what is said here instead.

    Raises
    ------
    MetadataError
        When what is said does not fit the axes.
    DTypeError
        When `data` is no array of pixels.
    """
    given = _read(data, axes)
    names = tuple(axes) if axes is not None else tuple(a.name for a in given.axes)
    if len(names) != len(given.shape) or len(set(names)) != len(names):
        raise MetadataError(f"axes {names} do not name the {len(given.shape)} axes of data of shape {given.shape}")
    if isinstance(units, str):
        units = {n: units for n in names if AXIS_TYPES.get(n) == "space"}
    known = {a.name: a.unit for a in given.axes if a.unit} if names == tuple(a.name for a in given.axes) else {}
    said = {n: u for n, u in {**known, **(units or {})}.items() if u is not None}
    types = {a.name: a.type for a in given.axes}
    return replace(
        given,
        axes=tuple(replace(a, type=a.type or types.get(a.name)) for a in as_axes(names, said)),
        scale=per_axis("scale", names, scale, given.scale),
        translation=per_axis("translation", names, translation, given.translation),
    )


def per_axis(
    word: str, names: Sequence[str], values: Sequence[float] | Mapping[str, float] | None, default: Sequence[float]
) -> tuple[float, ...]:
    """Return one number per axis, from a sequence, or a mapping of some axes' names."""
    if values is None:
        return tuple(map(float, default))
    if isinstance(values, Mapping):
        if unknown := set(values) - set(names):
            raise MetadataError(f"{word} is given for {sorted(unknown)}, the axes are {tuple(names)}")
        values = [values.get(n, d) for n, d in zip(names, default, strict=True)]
    if len(values) != len(names):
        raise MetadataError(f"{word} {tuple(values)} has {len(values)} numbers, the axes are {tuple(names)}")
    if not all(map(isfinite, values)):
        raise MetadataError(f"{word} {tuple(values)} is not finite: give one number per axis, or none")
    return tuple(map(float, values))


def lay_out_given(
    given: Given,
    chunks: Sequence[int] | None = None,
    shards: Sequence[int] | None = None,
    n_levels: int | None = None,
    factors: int | Sequence[int | Sequence[int]] | None = None,
) -> tuple[Layout, ...]:
    """Lay out the levels of an image that holds what is given; parameters and errors are those of `ziggurat.build`."""
    shape, is_space = given.shape, given.is_space
    chunk = tuple(chunks or given.chunk or default_chunk(shape, is_space, given.dtype.itemsize))
    # The shards of what is read fit the chunks of what is read, and no others.
    shard = shards if shards is not None or chunks is not None else given.shard
    if factors is None:
        return lay_out(shape, factors_of(shape, is_space, chunk, given.scale, n_levels), chunk, shard)
    per_level = [factors] * ((n_levels or 2) - 1) if isinstance(factors, int) else list(factors)
    return lay_out(shape, [_step(f, is_space) for f in per_level], chunk, shard)


def _step(factor: int | Sequence[int], is_space: Sequence[bool]) -> tuple[int, ...]:
    if not isinstance(factor, int):
        return tuple(factor)
    return tuple(factor if s else 1 for s in is_space)


def _read(data: Any, axes: Sequence[str] | None) -> Given:
    if isinstance(data, Given):
        return data
    if isinstance(data, Pyramid):
        return _of_pyramid(data)
    if type(data).__module__.startswith("xarray.") and hasattr(data, "dims"):
        return _of_dataarray(data)
    if isinstance(data, Virtual):
        return _bare(data, None, data.level.chunk)
    if hasattr(data, "store_path") and not hasattr(data, "dtype"):
        raise DTypeError(f"{data} is a zarr group: open it with open_pyramid, or take one of its arrays")
    if hasattr(data, "store_path"):
        level = level_of(data)
        dims = getattr(data.metadata, "dimension_names", None)
        named = tuple(dims) if dims and all(dims) else None
        return _bare(data, named, level.chunk, level.unit if level.is_sharded else None)
    if not all(hasattr(data, name) for name in ("shape", "dtype", "__getitem__")) or isinstance(data, np.generic):
        data = np.asarray(data)
    return _bare(data, None)


def _bare(data: Any, names: Sequence[str] | None, chunk: Shape | None = None, shard: Shape | None = None) -> Given:
    n = len(data.shape)
    if not n:
        raise GeometryError("a single number is no image: the data has no axis")
    axes = as_axes(names or default_axes(n), None)
    return Given(data=data, axes=axes, scale=(1.0,) * n, translation=(0.0,) * n, chunk=chunk, shard=shard)


def _of_dataarray(array: "xr.DataArray") -> Given:
    names = tuple(map(str, array.dims))
    places = [place_of_axis(array, n) for n in names]
    # A variable without dask chunks is loaded here: nothing else knows how to read parts of it.
    bare = _bare(array.data, names, array.encoding.get("chunks"), array.encoding.get("shards"))
    return replace(
        bare,
        axes=as_axes(names, {n: unit for n, (_, _, unit) in zip(names, places, strict=True) if unit}),
        scale=tuple(scale for scale, _, _ in places),
        translation=tuple(translation for _, translation, _ in places),
        name=str(array.name) if array.name and array.name != VARIABLE else None,
    )


def _of_pyramid(pyramid: Pyramid) -> Given:
    level = pyramid.levels[0]
    bare = _bare(pyramid[0], None, level.chunk, level.unit if level.is_sharded else None)
    axes = pyramid.image.axes if pyramid.image else tuple(Axis(n, AXIS_TYPES.get(n)) for n in pyramid.axes)
    return replace(
        bare,
        axes=axes,
        scale=level.scale or bare.scale,
        translation=level.translation or bare.translation,
        method=pyramid.method,
        nodata=pyramid.nodata,
        name=pyramid.name,
        attributes=group_of(pyramid).attrs.asdict() if pyramid.image else {},
    )
