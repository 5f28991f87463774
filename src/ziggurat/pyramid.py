"""A pyramid: the levels of one image, opened from a path, a group or a list of arrays."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ziggurat import ngff
from ziggurat.errors import DTypeError, LevelError
from ziggurat.grid import Level
from ziggurat.store import get_array, level_of, open_group

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

__all__ = ["Pyramid", "open_pyramid"]

type Where = str | Path | Store | zarr.Group | Sequence[zarr.Array[Any]]


@dataclass(frozen=True, eq=False, repr=False)
class Pyramid:
    """The levels of one image, finest first.

    Attributes
    ----------
    where : str
        Where it lies, for people.
    levels : tuple of Level
        Shape, dtype, chunks, write units and, where known, scale and translation of each level.
    arrays : tuple of zarr.Array
        The arrays themselves; ``pyramid[k]`` is ``pyramid.arrays[k]``.
    axes : tuple of str
        Names of the axes.
    method : str
        What ``method="auto"`` means for this image.
    name : str or None
        As the metadata says.
    """

    where: str
    levels: tuple[Level, ...]
    arrays: "tuple[zarr.Array[Any], ...]"
    axes: tuple[str, ...]
    method: str
    name: str | None = None

    def __post_init__(self) -> None:
        _check_levels(self)

    def __getitem__(self, k: int) -> "zarr.Array[Any]":
        return self.arrays[k]

    def __len__(self) -> int:
        return len(self.levels)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{level.name}: {level.shape}" for level in self.levels)
        return f"Pyramid({self.where}, {','.join(self.axes)}, {self.levels[0].dtype}, {shapes})"


def open_pyramid(where: Where, levels: Sequence[str] | None = None) -> Pyramid:
    """Open a pyramid.

    Parameters
    ----------
    where : str, Path, zarr store, zarr.Group or sequence of zarr.Array
        A path is taken literally, whatever characters it holds; a ``file://`` URL is decoded once. Arrays are listed
        finest first.
    levels : sequence of str, optional
        Paths of the arrays in the group, finest first, instead of what the OME-Zarr metadata (0.4, 0.5) lists.

    Raises
    ------
    PyramidNotFoundError
        When there is no zarr group.
    MetadataError
        When the group has no OME-Zarr metadata that can be read, and `levels` is not given.
    LevelError, DTypeError
        When a level is missing, or the levels do not belong together.

    Examples
    --------
    >>> import zarr
    >>> group = zarr.create_group({})
    >>> for k, n in enumerate((64, 32)):
    ...     _ = group.create_array(str(k), shape=(n, n), chunks=(16, 16), dtype="uint8")
    >>> open_pyramid(group, levels=["0", "1"]).levels[1].shape
    (32, 32)
    """
    if isinstance(where, Sequence) and not isinstance(where, str):
        return _from_arrays(where)
    group = open_group(where)
    place = _place(where, group)
    if levels is not None:
        arrays = tuple(_array(group, path, place) for path in levels)
        return _from_arrays(arrays, place, tuple(levels))
    return _from_image(group, ngff.read_image(group.attrs.asdict(), place), place)


def _from_image(group: "zarr.Group", image: ngff.Image, place: str) -> Pyramid:
    arrays = tuple(_array(group, d.path, place) for d in image.datasets)
    levels = tuple(level_of(a, d.path, d.scale, d.translation) for a, d in zip(arrays, image.datasets, strict=True))
    axes = tuple(a.name for a in image.axes)
    if any(len(axes) != a.ndim for a in arrays):
        raise LevelError(f"{place}: the metadata names {len(axes)} axes, {axes}, its arrays have {arrays[0].ndim}")
    method = image.method or ("mode" if image.is_label else "mean")
    return Pyramid(place, levels, arrays, axes, method, image.name)


def _from_arrays(
    arrays: "Sequence[zarr.Array[Any]]", place: str | None = None, names: Sequence[str] | None = None
) -> Pyramid:
    if not arrays:
        raise LevelError("a pyramid has at least one level: list its arrays, finest first")
    if wrong := [type(a).__name__ for a in arrays if not hasattr(a, "store_path")]:
        raise LevelError(f"a pyramid is a list of zarr arrays, finest first; found {wrong[0]}")
    place = place or str(arrays[0].store_path)
    levels = tuple(level_of(a, n) for a, n in zip(arrays, names or cycle([None]), strict=False))
    dimension_names = getattr(arrays[0].metadata, "dimension_names", None) or ()
    axes = tuple(n or f"axis{i}" for i, n in enumerate(dimension_names)) or tuple(
        f"axis{i}" for i in range(arrays[0].ndim)
    )
    is_label = ngff.lies_in_labels(place)
    return Pyramid(place, levels, tuple(arrays), axes, "mode" if is_label else "mean")


def _place(where: Any, node: Any) -> str:
    """Return where the group lies: an absolute path where it is local, so that ``labels`` above it is seen."""
    if isinstance(where, str | Path) and "://" not in str(where):
        return os.path.abspath(os.path.expanduser(where))
    return str(where) if isinstance(where, str) else str(node.store_path)


def _array(group: "zarr.Group", path: str, place: str) -> "zarr.Array[Any]":
    array = get_array(group, path)
    if array is None:
        raise LevelError(
            f"{place}: level {path!r} is listed, but there is no such array: create it, or correct the list"
        )
    return array


def _check_levels(pyramid: Pyramid) -> None:
    first = pyramid.levels[0]
    for level in pyramid.levels[1:]:
        if level.dtype.newbyteorder("=") != first.dtype.newbyteorder("="):
            raise DTypeError(
                f"{pyramid.where}: level {level.name!r} holds {level.dtype}, level {first.name!r} {first.dtype}: "
                "all levels have one dtype; create the level anew"
            )
        if len(level.shape) != len(first.shape):
            raise LevelError(
                f"{pyramid.where}: level {level.name!r} has {len(level.shape)} axes, level {first.name!r} "
                f"{len(first.shape)}: all levels have the same axes"
            )
    for a, b in pairwise(sorted((str(a.store_path) for a in pyramid.arrays), key=str)):
        if a == b and a:
            raise LevelError(f"{pyramid.where}: {a} is listed twice, a level cannot be computed from itself")
