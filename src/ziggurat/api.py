"""What people call: `consolidate` and `plan`."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal

from ziggurat import engines, kernels
from ziggurat.cascade import Record, Work
from ziggurat.config import get_config, write_block_ceiling
from ziggurat.errors import GeometryError, ModeError, ReadOnlyError
from ziggurat.geometry import Edges, edges_from_factors, infer_edges
from ziggurat.planning import Limits, Plan, make_plan
from ziggurat.pyramid import Pyramid, Where, open_pyramid
from ziggurat.regions import normalize
from ziggurat.report import LevelReport, Progress, Report
from ziggurat.stages import Step
from ziggurat.store import Handle, check_writable

if TYPE_CHECKING:
    from dask.delayed import Delayed

__all__ = ["ReadyPlan", "consolidate", "plan"]

type Factors = int | Sequence[int | Sequence[int]] | None


@dataclass(frozen=True, slots=True)
class ReadyPlan(Plan):
    """A plan together with the arrays it is about: it can be run."""

    pyramid: Pyramid | None = None

    def run(self, progress: Callable[[Progress], None] | None = None) -> Report:
        """Do the work, and return what was done.

        Parameters
        ----------
        progress : callable, optional
            Called with a `Progress` after each task.

        Raises
        ------
        ReadOnlyError, StoreError
            Before anything is written, when a level cannot be written.
        """
        work = self._work()
        notify = _Notify(self, progress, time.time())
        if self.mode == "dask":
            records = engines.run_dask(work, self, notify) if self.stages else []
        elif self.is_regional:
            records = engines.run_here(work, self, notify)
        else:
            records = engines.run_numpy(work, self.writes, notify)
        return self.report(records)

    def to_delayed(self) -> "Delayed":
        """Return the work as a dask collection that computes to the report; nothing runs before that.

        Raises
        ------
        ReadOnlyError, StoreError
            When a level cannot be written.
        """
        return engines.delayed(self._work(), self, self.report)

    def _work(self) -> Work:
        assert self.pyramid is not None
        targets = self.pyramid.arrays[1:]
        for array in targets:
            if array.read_only:
                raise ReadOnlyError(f"level {array.path!r} of {self.where} is opened read-only: open it for writing")
        check_writable(targets)
        return Work(self.steps, self.stages, tuple(Handle(a) for a in self.pyramid.arrays))

    def report(self, records: Sequence[Record]) -> Report:
        """Make the report of what the tasks' `records` say was done."""
        done = {k: [0, 0] for k in range(1, len(self.levels))}
        for k, n_units, n_bytes in chain.from_iterable(r.levels for r in records):
            done[k][0] += n_units
            done[k][1] += n_bytes
        targets = [(self.levels[k], *counts) for k, counts in done.items()]
        levels = tuple(LevelReport(level.name, level.shape, n, level.n_units, size) for level, n, size in targets)
        read = sum(r.bytes_read for r in records)
        elapsed_s = max(r.finished_s for r in records) - min(r.started_s for r in records) if records else 0.0
        about = (self.where, self.method, self.mode, self.reason)
        return Report(*about, levels, self.n_tasks, read, self.peak_bytes, elapsed_s)


class _Notify:
    """Adds up the records of finished tasks and tells how far the work is."""

    def __init__(self, plan: Plan, progress: Callable[[Progress], None] | None, start: float) -> None:
        self.plan = plan
        self.progress = progress
        self.start = start
        self.n_units = 0
        self.n_bytes = 0

    def __call__(self, record: Record) -> None:
        self.n_units += sum(n for _, n, _ in record.levels)
        self.n_bytes += record.bytes_read + sum(size for _, _, size in record.levels)
        if self.progress is not None:
            level = min(k for k, _, _ in record.levels)
            elapsed = time.time() - self.start
            self.progress(Progress(level, self.n_units, self.plan.n_units, self.n_bytes, elapsed))


def plan(
    target: Where | Pyramid,
    *,
    method: str = "auto",
    mode: Literal["auto", "numpy", "dask"] = "auto",
    regions: Iterable[Any] | None = None,
    factors: Factors = None,
    nodata: float | int | None = None,
) -> ReadyPlan:
    """Plan a rebuild without reading a pixel; parameters and errors are those of `consolidate`.

    Examples
    --------
    >>> import zarr
    >>> levels = [zarr.create_array({}, shape=(n, n), chunks=(16, 16), dtype="uint8") for n in (64, 32)]
    >>> plan(levels).bytes_read
    4096
    """
    pyramid = target if isinstance(target, Pyramid) else open_pyramid(target)
    if mode not in ("auto", "numpy", "dask"):
        raise ModeError(f"mode {mode!r} does not exist: use 'auto', 'numpy' or 'dask'")
    chosen = pyramid.method if method == "auto" else method
    kernels.check(chosen, pyramid.levels[0].dtype, nodata)
    config = get_config()
    made = make_plan(
        pyramid.where,
        pyramid.levels,
        _steps(pyramid, chosen, factors, nodata),
        mode,
        Limits(
            _ceiling(config.dask.write_block_max_bytes),
            config.dask.max_tasks,
            config.consolidation.numpy_max_bytes,
            config.consolidation.partial_max_coverage,
        ),
        None if regions is None else normalize(regions, pyramid.levels[0].shape),
    )
    return ReadyPlan(**{f.name: getattr(made, f.name) for f in fields(made)}, pyramid=pyramid)


def consolidate(
    target: Where | Pyramid,
    *,
    method: str = "auto",
    mode: Literal["auto", "numpy", "dask"] = "auto",
    regions: Iterable[Any] | None = None,
    factors: Factors = None,
    nodata: float | int | None = None,
    progress: Callable[[Progress], None] | None = None,
    compute: bool = True,
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
    regions : iterable of tuple, optional
        What changed in level 0: boxes with one slice, integer, list of integers or ``(start, stop)`` per axis. Only the
        write units that depend on them are rebuilt. None is everything, ``[]`` is nothing.
    factors : int, or one int or tuple of int per coarser level, optional
        Source pixels per target pixel, instead of what shapes and scales tell.
    nodata : number, optional
        Pixels of this value are left out by ``mean``, ``median``, ``mode``, ``min`` and ``max``.
    progress : callable, optional
        Called with a `Progress` after each task.
    compute : bool
        False returns a dask collection that computes to the report.

    Returns
    -------
    Report or dask.delayed.Delayed

    Raises
    ------
    ZigguratError
        What cannot be done is refused before a byte changes: `PyramidNotFoundError`, `MetadataError`, `LevelError`,
        `GeometryError`, `RegionError`, `DTypeError`, `MethodError`, `ModeError`, `ReadOnlyError`, `StoreError`.

    Examples
    --------
    >>> import zarr
    >>> levels = [zarr.create_array({}, shape=(n, n), chunks=(16, 16), dtype="uint8") for n in (64, 32)]
    >>> levels[0][:] = 7
    >>> report = consolidate(levels)
    >>> report.mode, int(levels[1][0, 0])
    ('numpy', 7)
    """
    if not compute:
        return plan(target, method=method, mode="dask", regions=regions, factors=factors, nodata=nodata).to_delayed()
    return plan(target, method=method, mode=mode, regions=regions, factors=factors, nodata=nodata).run(progress)


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


def _ceiling(write_block_max_bytes: int | None) -> int:
    return write_block_ceiling(write_block_max_bytes, engines.chunk_size_bytes())
