"""A pyramid: the levels of one image, opened from a path, a group or a list of arrays."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ziggurat import ngff
from ziggurat.boxes import Box, shape_of
from ziggurat.changes import add_mark, locked
from ziggurat.config import get_config
from ziggurat.engines import write_patch
from ziggurat.errors import DTypeError, LevelError, ReadOnlyError
from ziggurat.grid import Level
from ziggurat.patches import fit_patch
from ziggurat.regions import Boxes, as_box, normalize
from ziggurat.remote import Backend, check_options
from ziggurat.roi import box_of_roi, is_roi
from ziggurat.runtime import check_pipeline
from ziggurat.settings import RetryConfig, ZarrConfig
from ziggurat.store import Handle, get_array, level_of, open_group, retried

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
    touched : list of Box
        What was written to level 0 through this object and not rebuilt since, for ``regions="touched"``.
    settings : ZarrConfig
        How the arrays are read and written: the section ``zarr`` of the configuration, as it was when they were opened.
    """

    where: str
    levels: tuple[Level, ...]
    arrays: "tuple[zarr.Array[Any], ...]"
    axes: tuple[str, ...]
    method: str
    name: str | None = None
    touched: list[Box] = field(default_factory=list)
    settings: ZarrConfig = field(default_factory=ZarrConfig)

    def __post_init__(self) -> None:
        _check_levels(self)

    def __getitem__(self, k: int) -> "zarr.Array[Any]":
        return self.arrays[k]

    def __len__(self) -> int:
        return len(self.levels)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{level.name}: {level.shape}" for level in self.levels)
        return f"Pyramid({self.where}, {','.join(self.axes)}, {self.levels[0].dtype}, {shapes})"

    def set_array(self, patch: Any, region: Any = None, *, lock_timeout_s: float = 600.0) -> None:
        """Write pixels to level 0 and remember them as touched.

        Parameters
        ----------
        patch : numpy or dask array, or a number
            The pixels, in the shape of the region; axes that the region names by an integer may be left out. A dask
            array is cut on the grid of write units, so that each unit has one writer.
        region : tuple, optional
            One slice, integer, list of integers or ``(start, stop)`` per axis; everything by default.

        Raises
        ------
        RegionError
            When the region leaves the array, or the patch has another shape.
        DTypeError
            When level 0 cannot hold the patch's values.
        ReadOnlyError
            When level 0 is opened read-only.

        Examples
        --------
        >>> import zarr
        >>> pyramid = open_pyramid([zarr.create_array({}, shape=(8, 8), chunks=(4, 4), dtype="uint8")])
        >>> pyramid.set_array(7, (slice(2, 5), 3))
        >>> pyramid.touched, int(pyramid[0][4, 3])
        ([((2, 5), (3, 4))], 7)
        """
        box = as_box(normalize([region if region is not None else self.levels[0].box], self.levels[0].shape)[0])
        if self[0].read_only:
            raise ReadOnlyError(f"level {self.levels[0].name!r} of {self.where} is read-only: open it for writing")
        pixels = fit_patch(patch, shape_of(box), self.levels[0].dtype)
        with locked(self[0], lock_timeout_s):
            # Remembered first: a write that fails half-way has changed pixels too.
            self.touched.append(box)
            write_patch(Handle(self[0], self.settings), box, pixels)

    def set_roi(self, patch: Any, roi: Any, *, lock_timeout_s: float = 600.0) -> None:
        """Write pixels to a region of level 0 that is given in physical units; see `set_array`.

        Parameters
        ----------
        patch : numpy or dask array, or a number
            The pixels, in the shape of the region.
        roi : mapping, or an object like ``ngio.Roi``
            Axis names to ``(start, stop)`` in the axes' units, counted from the outer edge of the first pixel; axes
            that are not named are whole.
        """
        self.set_array(patch, box_of_roi(roi, self), lock_timeout_s=lock_timeout_s)

    def mark(self, regions: Iterable[Any]) -> None:
        """Leave a record that `regions` of level 0 changed, for a later ``consolidate(regions="marked")``.

        Any number of processes may mark at once; each record has a key of its own.

        Raises
        ------
        RegionError
            When a region leaves the array.
        """
        boxes = self.boxes(regions)
        if len(boxes):
            add_mark(self[0], boxes)

    def boxes(self, regions: Iterable[Any]) -> Boxes:
        """Return regions in any of their forms, pixels or physical units, as boxes of level 0."""
        if isinstance(regions, Iterable) and not isinstance(regions, str):
            regions = [box_of_roi(r, self) if is_roi(r) else r for r in regions]
        return normalize(regions, self.levels[0].shape)


def open_pyramid(
    where: Where,
    levels: Sequence[str] | None = None,
    *,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> Pyramid:
    """Open a pyramid.

    Parameters
    ----------
    where : str, Path, zarr store, zarr.Group or sequence of zarr.Array
        A path is taken literally, whatever characters it holds; a ``file://`` URL is decoded once; ``s3://``,
        ``gs://`` and ``https://`` (read-only) URLs are opened with `backend`. Arrays are listed finest first.
    levels : sequence of str, optional
        Paths of the arrays in the group, finest first, instead of what the OME-Zarr metadata (0.4, 0.5) lists.
    storage_options : dict, optional
        Credentials, endpoint and the like: what fsspec's file system, or `obstore.store.from_url`, accepts.
    backend : {"fsspec", "obstore"}
        What makes the requests to a URL.

    Notes
    -----
    The settings ``io_retry`` and ``zarr`` are copied into what is opened; they travel with it to workers.

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
    config = get_config()
    pyramid = _open(where, levels, config.io_retry, storage_options, backend)
    settings = config.zarr.model_copy()
    for array in pyramid.arrays:
        settings = check_pipeline(settings, array)
    return replace(pyramid, settings=settings)


def _open(
    where: Where,
    levels: Sequence[str] | None,
    policy: RetryConfig,
    storage_options: dict[str, Any] | None,
    backend: Backend,
) -> Pyramid:
    if isinstance(where, Sequence) and not isinstance(where, str):
        check_options(where, storage_options, backend)
        return _from_arrays([retried(a, policy) if hasattr(a, "store_path") else a for a in where])
    group = open_group(where, storage_options, policy=policy, backend=backend)
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
        if level.native != first.native:
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
