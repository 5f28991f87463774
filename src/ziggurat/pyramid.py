"""A pyramid: the levels of one image, their arrays, and what was written to them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ziggurat.boxes import Box, shape_of
from ziggurat.changes import add_mark, locked
from ziggurat.engines import write_patch
from ziggurat.errors import DTypeError, LevelError, ReadOnlyError
from ziggurat.grid import Level
from ziggurat.handle import Handle
from ziggurat.ngff import Image
from ziggurat.patches import fit_patch
from ziggurat.regions import Boxes, as_box, normalize
from ziggurat.roi import box_of_roi, is_roi
from ziggurat.settings import ZarrConfig
from ziggurat.virtual import is_virtual

if TYPE_CHECKING:
    import xarray as xr
    import zarr
    from numpy.typing import DTypeLike

__all__ = ["Pyramid"]


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
    image, index : Image, int
        What the metadata says, where there is any, and which of its ``multiscales`` this is.
    """

    where: str
    levels: tuple[Level, ...]
    arrays: "tuple[zarr.Array[Any], ...]"
    axes: tuple[str, ...]
    method: str
    name: str | None = None
    touched: list[Box] = field(default_factory=list)
    settings: ZarrConfig = field(default_factory=ZarrConfig.model_construct)
    image: Image | None = None
    index: int = 0

    def __post_init__(self) -> None:
        _check_levels(self)

    @property
    def home(self) -> "zarr.Array[Any]":
        """The finest array that is stored: what is noted of the pyramid lies beside it."""
        return next(a for a in self.arrays if not is_virtual(a))

    def __getitem__(self, k: int) -> "zarr.Array[Any]":
        return self.arrays[k]

    def __len__(self) -> int:
        return len(self.levels)

    @property
    def nodata(self) -> float | int | None:
        """Value of pixels that do not count, as recorded with the method; what ``method="auto"`` leaves out."""
        return self.image.nodata if self.image else None

    def __repr__(self) -> str:
        shapes = ", ".join(f"{level.name}: {level.shape}" for level in self.levels)
        return f"Pyramid({self.where}, {','.join(self.axes)}, {self.levels[0].dtype}, {shapes})"

    def _repr_html_(self) -> str:
        """Return the levels for notebooks, with small pictures of them."""
        from ziggurat.faces import pyramid_html

        return pyramid_html(self)

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
        >>> from ziggurat import open_pyramid
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
            add_mark(self.home, boxes)

    def create_label(self, name: str, dtype: "DTypeLike" = "uint32", *, overwrite: bool = False) -> "Pyramid":
        """Make an empty label image of this image, and register it.

        It has the image's levels, scales and chunks, without its channels. Any number of threads, and of processes on
        a local file system, may make labels at once.

        Parameters
        ----------
        name : str
            As in "nuclei"; the label image lies at ``labels/nuclei`` in the image.
        dtype : dtype
            Of the labels.
        overwrite : bool
            Delete the label image of that name first.

        Raises
        ------
        StoreError
            When there is a label image of that name.
        MetadataError
            When this is no OME-Zarr image.
        """
        made: Pyramid = import_module("ziggurat.labels").create_label(self, name, dtype, overwrite=overwrite)
        return made

    def to_datatree(self) -> "xr.DataTree":
        """Return the pyramid as an `xarray.DataTree`: one node per level, each with the variable ``image``.

        The pixels are lazy dask arrays, one chunk per write unit. Spatial axes and time have coordinates, in the units
        that their attributes name. `ziggurat.from_datatree` writes such a tree.
        """
        from ziggurat.datatree import to_datatree

        return to_datatree(self)

    def boxes(self, regions: Iterable[Any]) -> Boxes:
        """Return regions in any of their forms, pixels or physical units, as boxes of level 0."""
        if isinstance(regions, Iterable) and not isinstance(regions, str):
            regions = [box_of_roi(r, self) if is_roi(r) else r for r in regions]
        return normalize(regions, self.levels[0].shape)


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
    read: Sequence[Any] = getattr(pyramid[0], "origins", pyramid.arrays[:1])
    places = {str(a.store_path) for a in read if hasattr(a, "store_path")}
    for a, b in pairwise(sorted([*places, *(str(a.store_path) for a in pyramid.arrays[1:])])):
        if a == b and a:
            raise LevelError(f"{pyramid.where}: {a} is listed twice, a level cannot be computed from itself")
