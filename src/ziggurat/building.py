"""New pyramids: level 0 and all coarser levels, written in one pass over the data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from ziggurat import kernels
from ziggurat.api import Factors, limits
from ziggurat.cascade import Record, Work
from ziggurat.cluster import check_client
from ziggurat.create import Place, default_creation
from ziggurat.engines import check_scheduler
from ziggurat.errors import GeometryError, ModeError
from ziggurat.events import OnProgress
from ziggurat.geometry import Stretch, edges_from_factors
from ziggurat.given import Given, as_given, lay_out_given
from ziggurat.graph import every
from ziggurat.image import NewImage, Version
from ziggurat.job import Job, fingerprints
from ziggurat.labels import label_given, label_place, register_label
from ziggurat.layout import Layout
from ziggurat.metadata import carried, datasets_of, label_of
from ziggurat.opening import Where
from ziggurat.planning import Plan, make_plan
from ziggurat.pyramid import Pyramid
from ziggurat.remote import Backend
from ziggurat.runtime import is_synchronous
from ziggurat.sources import ArraySource, DaskSource, Source
from ziggurat.steps import Step
from ziggurat.store import is_in_memory

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

    from ziggurat.handle import Handle

__all__ = ["Building", "build", "copy_levels"]

type PerAxis = Sequence[float] | Mapping[str, float] | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Building(Job):
    """A job that reads from data that lies elsewhere, as one more level below level 0."""

    source: Source = field(repr=False)

    @property
    def method(self) -> str:
        """How the coarser levels are computed."""
        return self.pyramid.method

    def _work(self, act: Literal["write", "compare", "repair"]) -> Work:
        work = Job._work(self, act)
        return replace(work, handles=(cast("Handle", self.source), *work.handles))

    def _run_journaled(self, work: Work, scheduler: Any, tell: Any, resume: bool) -> list[Record]:
        """Keep no journal: the data need not be the same when the work is resumed."""
        return self._execute(work, scheduler, tell, every)

    def _settle(self, seen: Any = None) -> None:
        """Remember level 0 as it is now, not as it was before it was written."""
        Job._settle(self, fingerprints(self.pyramid))


def build(
    data: Any,
    where: "str | Path | Store | zarr.Group",
    *,
    axes: Sequence[str] | None = None,
    scale: PerAxis = None,
    translation: PerAxis = None,
    units: Mapping[str, str] | str | None = None,
    name: str | None = None,
    chunks: Sequence[int] | None = None,
    shards: Sequence[int] | None = None,
    compressors: Any = "auto",
    fill_value: Any = 0,
    n_levels: int | None = None,
    factors: Factors = None,
    method: str = "auto",
    nodata: float | int | None = None,
    labels_of: Where | Pyramid | None = None,
    version: Version = "0.5",
    overwrite: bool = False,
    mode: Literal["auto", "numpy", "dask"] = "auto",
    progress: OnProgress = None,
    client: Any = None,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> Pyramid:
    """Write data as a new OME-Zarr image: level 0 and its coarser levels, in one pass and in bounded memory.

    Parameters
    ----------
    data : numpy, dask or zarr array, xarray.DataArray, or Pyramid
        The pixels of level 0. A DataArray's dimensions, coordinates and units become axes, scale and translation; a
        pyramid is written anew, with other chunks for instance. Chunks of a dask array may have any size.
    where : path, URL, zarr store or zarr.Group
        A directory that is to be made, or a group that is still empty and keeps its attributes. With `labels_of`,
        the name of the label image.
    axes : sequence of str, optional
        Names of the axes; by default what the data says, else the last of ``t``, ``c``, ``z``, ``y``, ``x``.
    scale, translation : sequence or mapping of float, optional
        Physical size of a pixel, and the position of the first pixel's centre, per axis or by the axes' names.
    units : mapping of str, or str, optional
        Unit of each axis that has one, as in ``{"t": "second"}``, or of all spatial axes.
    name : str, optional
        Name in the metadata.
    chunks, shards : sequence of int, optional
        Pixels per chunk and per shard, clipped to each level; by default those of the array that is read, else about
        1 MiB, with equal sides along the spatial axes, and no shards.
    compressors, fill_value : optional
        As in `zarr.create_array`; by default blosc with zstd, and 0.
    n_levels : int, optional
        Number of levels, level 0 among them. By default each spatial axis is halved until it has at most 256 pixels,
        those with the finest pixels first.
    factors : sequence of int or tuple of int, optional
        Factor of each coarser level to the next finer one, for all spatial axes, or for each axis.
    method, nodata
        As in `ziggurat.consolidate`; recorded in the metadata.
    labels_of : pyramid, path or group, optional
        The image that the data labels. The new label image lies in it, is registered there, and has its scale.
    version : {"0.5", "0.4"} or None
        Of OME-Zarr: 0.5 is zarr version 3, 0.4 is version 2. None makes a plain zarr group of arrays "0", "1", ...
    overwrite : bool
        Delete the zarr group or array that is there first.
    mode, progress, client, storage_options, backend
        As in `ziggurat.consolidate`.

    Returns
    -------
    Pyramid
        The new image, opened.

    Raises
    ------
    StoreError
        When there is something at `where` already, or what is to be overwritten is what the data reads from.
    GeometryError, MetadataError, MethodError, DTypeError, ModeError
        What cannot be written is refused before anything is.

    Examples
    --------
    >>> import numpy as np
    >>> from zarr.storage import MemoryStore
    >>> pixels = np.ones((600, 400), "uint8")
    >>> pyramid = build(pixels, MemoryStore(), scale=(0.5, 0.5), units={"y": "micrometer", "x": "micrometer"})
    >>> [level.shape for level in pyramid.levels]
    [(600, 400), (300, 200), (150, 200)]
    """
    if mode not in ("auto", "numpy", "dask"):
        raise ModeError(f"mode {mode!r} does not exist: use 'auto', 'numpy' or 'dask'")
    if client is not None:
        check_client(client)
    given = as_given(data, axes, scale, translation, units)
    image = None
    if labels_of is None:
        place = Place(where, storage_options, backend)
    else:
        image, place, version = label_place(labels_of, where, storage_options, backend)
        given = label_given(given, image, named=axes is not None, scaled=scale is not None)
    if version == "0.4":
        if shards is not None:
            raise GeometryError("OME-Zarr 0.4 is zarr version 2, which has no shards: leave shards out, or use '0.5'")
        given = replace(given, shard=None)
    layouts = lay_out_given(given, chunks, shards, n_levels, factors)
    if method == "auto":
        method = given.method or ("mode" if image else "mean")
        nodata = given.nodata if nodata is None else nodata
    kernels.check(method, given.dtype, nodata)
    creation = default_creation(given.dtype, 2 if version == "0.4" else 3, fill_value, [a.name for a in given.axes])
    new = NewImage(
        version=version,
        axes=given.axes,
        datasets=datasets_of(map(str, range(len(layouts))), layouts, given.scale, given.translation),
        layouts=layouts,
        creation=creation if compressors == "auto" else creation | {"compressors": compressors},
        name=name or given.name or place.stem,
        method=method,
        parameters={"nodata": nodata},
        label={"source": {"image": "../../"}} if image else label_of(given.attributes),
        attributes=carried(given.attributes, version),
    )
    _check(given, new, place, nodata, mode, client)
    pyramid = new.create(place, overwrite, data)
    if image:
        register_label(image, str(where))
    _building(given, pyramid, layouts, nodata, mode).run(progress, client=client)
    return pyramid


def _check(
    given: Given,
    new: NewImage,
    place: Place,
    nodata: float | int | None,
    mode: Literal["auto", "numpy", "dask"],
    client: Any,
) -> None:
    """Plan the work on an image of the same levels in memory: what cannot be done is refused before one is made."""
    made, _ = _planned(given, new.rehearse(), new.layouts, nodata, mode, is_synchronous(place.store))
    if made.mode == "dask":
        check_scheduler(made, client, is_in_memory(place.store))


def _planned(
    given: Given,
    pyramid: Pyramid,
    layouts: Sequence[Layout],
    nodata: float | int | None,
    mode: Literal["auto", "numpy", "dask"],
    is_prompt: bool,
) -> tuple[Plan, Source]:
    """Plan the work, and return what it reads; a store that `is_prompt` can as well be given one unit at a time."""
    source = given.source(pyramid.levels[0].clipped_unit, pyramid.settings)
    levels = (replace(source.level, name="data"), *pyramid.levels)
    allowed = limits()
    if isinstance(source, DaskSource):
        # A chunk is in memory whole as soon as a pixel of it is computed.
        allowed = replace(allowed, ceiling=max(allowed.ceiling, source.level.bytes_of(source.level.chunk)))
    same = tuple(Stretch(n, n) for n in given.shape)
    steps = [Step(levels[0], levels[1], same, "stride", lends=is_prompt and _lends(source))]
    for a, b, layout in zip(levels[1:], levels[2:], layouts[1:], strict=False):
        steps.append(Step(a, b, edges_from_factors(a.shape, b.shape, layout.step), pyramid.method, nodata))
    return make_plan(pyramid.where, levels, steps, mode, allowed), source


def _lends(source: Source) -> bool:
    """Say whether pixels come in memory of their own, chunk by chunk of one size."""
    return isinstance(source, ArraySource) or (isinstance(source, DaskSource) and source.is_even)


def _building(
    given: Given,
    pyramid: Pyramid,
    layouts: Sequence[Layout],
    nodata: float | int | None,
    mode: Literal["auto", "numpy", "dask"],
) -> Building:
    made, source = _planned(given, pyramid, layouts, nodata, mode, is_synchronous(pyramid[0].store))
    if made.mode == "numpy" and isinstance(source, DaskSource):
        # All of it at once, on the active scheduler.
        source = ArraySource(np.asarray(given.data.compute()), source.level.unit, pyramid.settings)
    values = {f.name: getattr(made, f.name) for f in fields(made)} | {"base": -1}
    return Building(**values, pyramid=pyramid, source=source)


def copy_levels(given: Sequence[Given], pyramid: Pyramid, mode: Literal["auto", "numpy", "dask"]) -> None:
    """Fill each level of `pyramid` with pixels of its own."""
    for k, level in enumerate(given):
        alone = replace(pyramid, levels=pyramid.levels[k : k + 1], arrays=pyramid.arrays[k : k + 1])
        _building(level, alone, (), None, mode).run()
