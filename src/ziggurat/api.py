"""What people call: `consolidate` and `plan`."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from ziggurat import engines, kernels
from ziggurat.changes import Fingerprints, changed_boxes, read_marks
from ziggurat.config import get_config, write_block_ceiling
from ziggurat.errors import DTypeError, GeometryError, MethodError, ModeError, RegionError
from ziggurat.events import OnProgress
from ziggurat.geometry import Edges, edges_from_factors, infer_edges
from ziggurat.job import Changes, Job
from ziggurat.opening import Where, open_pyramid
from ziggurat.planning import Limits, Plan, make_plan
from ziggurat.pyramid import Pyramid
from ziggurat.regions import Boxes, as_box, as_boxes, normalize
from ziggurat.remote import Backend, check_options
from ziggurat.report import Report
from ziggurat.steps import Step
from ziggurat.verification import Verification

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["changes_of", "consolidate", "limits", "plan", "verify"]

type Regions = Iterable[Any] | Literal["touched", "marked", "changed"] | None
type Factors = int | Sequence[int | Sequence[int]] | None


def plan(
    target: Where | Pyramid,
    *,
    method: str = "auto",
    mode: Literal["auto", "numpy", "dask"] = "auto",
    regions: Regions = None,
    factors: Factors = None,
    nodata: float | int | None = None,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> Job:
    """Plan a rebuild without reading a pixel; parameters and errors are those of `consolidate`.

    Examples
    --------
    >>> import zarr
    >>> levels = [zarr.create_array({}, shape=(n, n), chunks=(16, 16), dtype="uint8") for n in (64, 32)]
    >>> plan(levels).bytes_read
    4096
    """
    pyramid = _opened(target, storage_options, backend)
    boxes, changes = changes_of(pyramid, regions)
    made = _plan(pyramid, method, mode, boxes, factors, nodata)
    if not made.is_regional:
        # Everything is rebuilt, and so is all that anybody noted by now; what cannot be written holds no notes.
        marks = [] if pyramid.home.read_only else read_marks(pyramid.home)[0]
        changes = Changes(len(pyramid.touched), tuple(marks), changes.seen)
    return _job(made, pyramid, changes)


def verify(
    target: Where | Pyramid,
    *,
    sample: float | None = None,
    repair: bool = False,
    method: str = "auto",
    mode: Literal["auto", "numpy", "dask"] = "auto",
    factors: Factors = None,
    nodata: float | int | None = None,
    progress: OnProgress = None,
    lock_timeout_s: float = 600.0,
    client: Any = None,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> Verification:
    """Recompute the coarser levels, in bounded memory, and compare them with what is stored.

    Parameters
    ----------
    sample : float, optional
        Compare only this share of the tasks, chosen at random, at least one of each stage.
    repair : bool
        Rewrite the write units that differ, and no others.
    target, method, mode, factors, nodata, progress, client, storage_options, backend
        As in `consolidate`.

    Returns
    -------
    Verification
        Which write units are stale: they differ, or cannot be decoded.

    Notes
    -----
    Each stage computes its levels from the stored level below it. Units above a stale one are named with it where one
    stage holds both; else they are judged by what is stored below them, and `repair` mends stage after stage.

    Examples
    --------
    >>> import zarr
    >>> levels = [zarr.create_array({}, shape=(n, n), chunks=(16, 16), dtype="uint8") for n in (64, 32)]
    >>> levels[0][:16] = 7
    >>> check = verify(levels, repair=True)
    >>> check.levels[0].stale
    ((0, 0), (0, 1))
    >>> verify(levels).is_stale
    False
    """
    if sample is not None and not 0 < sample <= 1:
        raise ValueError(f"sample is the share to compare, above 0 and at most 1, not {sample!r}")
    pyramid = _opened(target, storage_options, backend)
    chosen = _plan(pyramid, method, mode, None, factors, nodata).mode
    made = replace(_plan(pyramid, method, "dask", None, factors, nodata), mode=chosen)
    return _job(made, pyramid, Changes()).verify(progress, sample, repair, lock_timeout_s, client)


def consolidate(
    target: Where | Pyramid,
    *,
    method: str = "auto",
    mode: Literal["auto", "numpy", "dask"] = "auto",
    regions: Regions = None,
    factors: Factors = None,
    nodata: float | int | None = None,
    progress: OnProgress = None,
    compute: bool = True,
    resume: bool = False,
    lock_timeout_s: float = 600.0,
    client: Any = None,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> "Report | Delayed":
    """Rebuild the coarser levels of a pyramid from its finest.

    Parameters
    ----------
    target : path, URL, zarr store, zarr.Group, Pyramid, or sequence of zarr.Array
        The pyramid; arrays are listed finest first.
    method : str
        ``nearest``, ``stride``, ``linear``, ``cubic``, ``gaussian``, ``mean``, ``median``, ``mode``, ``min``, ``max``;
        ``auto`` is what the metadata records, else ``mode`` for labels and ``mean`` for images.
    mode : {"auto", "numpy", "dask"}
        In memory, or in bounded memory on the active dask scheduler; ``auto`` works in memory up to
        ``consolidation.numpy_max_bytes``. The pixels are the same.
    regions : iterable of tuple, or {"touched", "marked", "changed"}, optional
        What changed in level 0: boxes with one slice, integer, list of integers or ``(start, stop)`` per axis, or in
        physical units, as `Pyramid.set_roi` takes them. Only the write units that depend on them are rebuilt. None is
        everything, ``[]`` is nothing. ``"touched"``: what this `Pyramid` wrote; ``"marked"``: what any process marked;
        ``"changed"``: the stored objects of level 0 that differ from what the last rebuild saw, everything where no
        rebuild has seen any.
    factors : int, or one int or tuple of int per coarser level, optional
        Source pixels per target pixel, instead of what shapes and scales tell.
    nodata : number, optional
        Pixels of this value are left out by ``mean``, ``median``, ``mode``, ``min`` and ``max``. With method
        ``"auto"``, by default the value that `ziggurat.build` recorded in the image's metadata, if any.
    progress : callable or bool, optional
        Called with `ziggurat.events`: `Started`, `UnitsDone`, `TaskDone` and `Finished`, each a `Progress`. True draws
        a bar, in a terminal or a notebook, False nothing; by default a run of over ten seconds draws it on a terminal.
        Events come from one thread at a time, not always the caller's.
    compute : bool
        False returns a dask collection that computes to the report.
    resume : bool
        Do only what an interrupted dask run of the same plan left undone.
    lock_timeout_s : float
        Seconds to wait for another call on the same local pyramid.
    client : distributed.Client, optional
        Runs the tasks of mode ``"dask"``, instead of whatever scheduler is active. `dask.annotate` sets their
        ``retries``, ``priority`` and ``resources``.
    storage_options, backend : optional
        As in `open_pyramid`, where `target` is a URL.

    Returns
    -------
    Report or dask.delayed.Delayed

    Raises
    ------
    ZigguratError
        What cannot be done is refused before a byte changes: `PyramidNotFoundError`, `MetadataError`, `LevelError`,
        `GeometryError`, `RegionError`, `DTypeError`, `MethodError`, `ModeError`, `ReadOnlyError`, `StoreError`,
        `MemoryLimitError`, `LockError`.

    Examples
    --------
    >>> import zarr
    >>> levels = [zarr.create_array({}, shape=(n, n), chunks=(16, 16), dtype="uint8") for n in (64, 32)]
    >>> levels[0][:] = 7
    >>> report = consolidate(levels)
    >>> report.mode, int(levels[1][0, 0])
    ('numpy', 7)
    """
    pyramid = _opened(target, storage_options, backend)
    if not compute:
        return plan(pyramid, method=method, mode="dask", regions=regions, factors=factors, nodata=nodata).to_delayed()
    return plan(pyramid, method=method, mode=mode, regions=regions, factors=factors, nodata=nodata).run(
        progress, resume=resume, lock_timeout_s=lock_timeout_s, client=client
    )


def _opened(target: Where | Pyramid, storage_options: dict[str, Any] | None, backend: Backend) -> Pyramid:
    if not isinstance(target, Pyramid):
        return open_pyramid(target, storage_options=storage_options, backend=backend)
    check_options(target, storage_options, backend)
    return target


def _plan(
    pyramid: Pyramid,
    method: str,
    mode: Literal["auto", "numpy", "dask"],
    boxes: Boxes | None,
    factors: Factors,
    nodata: float | int | None,
) -> Plan:
    if mode not in ("auto", "numpy", "dask"):
        raise ModeError(f"mode {mode!r} does not exist: use 'auto', 'numpy' or 'dask'")
    chosen = pyramid.method if method == "auto" else method
    nodata = pyramid.nodata if method == "auto" and nodata is None else nodata
    _check(pyramid, chosen, nodata)
    steps = _steps(pyramid, chosen, factors, nodata)
    is_small = pyramid.levels[0].nbytes <= get_config().consolidation.numpy_max_bytes
    asks_dask = boxes is not None or mode == "dask" or (mode == "auto" and not is_small)
    return make_plan(pyramid.where, pyramid.levels, steps, mode, limits(asks_dask), boxes)


def limits(asks_dask: bool = True) -> Limits:
    """Return what the configuration allows, as it is now; loading dask takes longer than many a small image."""
    config = get_config()
    return Limits(
        write_block_ceiling(config.dask.write_block_max_bytes, engines.chunk_size_bytes() if asks_dask else None),
        config.dask.max_tasks,
        config.consolidation.numpy_max_bytes,
        config.consolidation.partial_max_coverage,
    )


def _check(pyramid: Pyramid, method: str, nodata: float | int | None) -> None:
    level = pyramid.levels[0]
    try:
        kernels.check(method, level.native, nodata)
    except (DTypeError, MethodError) as e:
        raise type(e)(f"{pyramid.where}, level {level.name!r} of {level.dtype}: {e}") from None


def _job(made: Plan, pyramid: Pyramid, changes: Changes) -> Job:
    return Job(**{f.name: getattr(made, f.name) for f in fields(made)}, pyramid=pyramid, changes=changes)


def changes_of(pyramid: Pyramid, regions: Regions) -> tuple[Boxes | None, Changes]:
    """Find what changed, and what a run that honours it settles."""
    shape = pyramid.levels[0].shape
    if not isinstance(regions, str):
        return None if regions is None else pyramid.boxes(regions), Changes()
    if regions == "touched":
        return as_boxes(pyramid.touched, len(shape)), Changes(n_touched=len(pyramid.touched))
    if regions == "marked":
        names, boxes = read_marks(pyramid.home)
        return normalize(map(as_box, boxes), shape), Changes(marks=tuple(names))
    if regions == "changed" and pyramid.home is not pyramid[0]:
        raise RegionError(f"level 0 of {pyramid.where} lies in other arrays, which keep no account: name the regions")
    if regions == "changed":
        seen, before = Fingerprints.take(pyramid[0]), Fingerprints.load(pyramid[0])
        return None if before is None else changed_boxes(before, seen, pyramid.levels[0]), Changes(seen=seen)
    raise RegionError(f"regions {regions!r} are none: use 'touched', 'marked', 'changed', or a list of regions")


def _steps(pyramid: Pyramid, method: str, factors: Factors, nodata: float | int | None) -> list[Step]:
    levels = pyramid.levels
    n = len(levels) - 1
    per_level = [factors] * n if factors is None or isinstance(factors, int) else list(factors)
    if len(per_level) != n:
        raise GeometryError(
            f"factors name {len(per_level)} levels, {pyramid.where} has {n} coarser ones: give one each"
        )
    pairs = zip(pairwise(levels), per_level, strict=True)
    return [Step(a, b, _edges(pyramid.where, a, b, f), method, nodata) for (a, b), f in pairs]


def _edges(where: str, source: Any, target: Any, factors: Any) -> Edges:
    try:
        if factors is not None:
            return edges_from_factors(source.shape, target.shape, factors)
        ratio = None
        if source.scale and target.scale:
            ratio = [b / a if a > 0 and b > 0 else None for a, b in zip(source.scale, target.scale, strict=True)]
        return infer_edges(source.shape, target.shape, ratio)
    except GeometryError as e:
        raise GeometryError(
            f"{where}: level {target.name!r} {target.shape} cannot be built from {source.name!r} {source.shape}: {e}"
        ) from None
