"""Builders for the cases: levels of given shapes in every format and kind of store, and every way to rebuild them."""

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dask
import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.storage import LocalStore, MemoryStore

import ziggurat as zg
from ziggurat.testing import tree_hash

FORMATS = ("v3", "v3-sharded", "v2")
STORES = ("memory", "local")

# The small images of the cases are one single task, but for a ceiling that lets no step write more than one unit.
MODES = {"numpy": ("numpy", None), "dask": ("dask", None), "dask-units": ("dask", 1), "auto": ("auto", None)}

type Shape = tuple[int, ...]


@contextmanager
def ceiling(n_bytes: int | None) -> Iterator[None]:
    """Set `dask.write_block_max_bytes` for a while."""
    config = zg.get_config().dask
    before = config.write_block_max_bytes
    config.write_block_max_bytes = n_bytes
    try:
        yield
    finally:
        config.write_block_max_bytes = before


@dataclass(frozen=True)
class Way:
    """One format, one kind of store, one way to rebuild."""

    format: str
    kind: str
    mode: str
    root: Path

    def store(self) -> Store:
        return MemoryStore() if self.kind == "memory" else LocalStore(tempfile.mkdtemp(dir=self.root))

    def image(self, source, *shapes: Shape, attributes=None, path="", store=None, **options) -> zarr.Group:
        """Return a group with the arrays "0", "1", ... of which the first holds `source`, the others nothing."""
        store = self.store() if store is None else store
        version = 2 if self.format == "v2" else 3
        group = zarr.create_group(store, path=path, zarr_format=version, attributes=attributes)
        make_arrays(group, np.asarray(source), shapes, sharded=self.format == "v3-sharded", **options)
        return group

    def levels(self, source, *shapes: Shape, **options) -> list[zarr.Array]:
        """Return the arrays of `image`, finest first."""
        group = self.image(source, *shapes, **options)
        return [group[str(k)] for k in range(len(shapes) + 1)]

    def rebuild(self, target, **options) -> zg.Report:
        mode, n_bytes = MODES[self.mode]
        with ceiling(zg.get_config().dask.write_block_max_bytes if n_bytes is None else n_bytes):
            return zg.consolidate(target, mode=mode, **options)

    def rebuilt(self, source, *shapes: Shape, chunks, method="auto", factors=None, nodata=None, **options):
        """Make levels, rebuild them, and return the pixels of the coarser ones."""
        levels = self.levels(source, *shapes, chunks=chunks, **options)
        self.rebuild(levels, method=method, factors=factors, nodata=nodata)
        return [a[...] for a in levels[1:]]


def make_arrays(group, source, shapes, *, chunks, sharded=False, dtype=None, fill=0, **options) -> None:
    """Create the arrays; `chunks` and `fill` are those of all levels, or lists with one per level."""
    shapes = (source.shape, *shapes)
    chunks = chunks if isinstance(chunks, list) else [chunks] * len(shapes)
    fills = fill if isinstance(fill, list) else [fill] * len(shapes)
    for k, (shape, chunk, value) in enumerate(zip(shapes, chunks, fills, strict=True)):
        shards = tuple(2 * c for c in chunk) if sharded else None
        group.create_array(
            str(k),
            shape=shape,
            chunks=chunk,
            shards=shards,
            dtype=dtype or source.dtype,
            fill_value=value,
            **options,
        )
    group["0"][...] = source


def all_ways(root: Path) -> Iterator[Way]:
    for names in itertools.product(FORMATS, STORES, MODES):
        yield Way(*names, root)


def built_alike(root: Path, source, *shapes: Shape, chunks, **options) -> list[np.ndarray]:
    """Rebuild in every way, check that all give the same bytes, and return the coarser levels."""
    built: list[np.ndarray] = []
    files: dict[str, dict[str, str]] = {}
    for way in all_ways(root):
        levels = way.levels(source, *shapes, chunks=chunks)
        way.rebuild(levels, **options)
        pixels = [a[...] for a in levels[1:]]
        built = built or pixels
        for k, (one, other) in enumerate(zip(built, pixels, strict=True), 1):
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), f"level {k} differs: {way}"
        if way.kind == "local":
            found = {k: v for k, v in tree_hash(levels[0].store.root).items() if ".ziggurat" not in k}
            assert files.setdefault(way.format, found) == found, f"stored bytes differ: {way}"
    return built


def ome(version: str, axes: str, scales: Sequence[Sequence[float]], **more) -> dict:
    """Return OME-Zarr attributes for the levels "0", "1", ... with these scales."""
    types = {"t": "time", "c": "channel"}
    entry = {
        "axes": [{"name": a, "type": types.get(a, "space")} for a in axes],
        "datasets": [
            {"path": str(k), "coordinateTransformations": [{"type": "scale", "scale": list(s)}]}
            for k, s in enumerate(scales)
        ],
        **more,
    }
    if version == "v2":
        return {"multiscales": [{"version": "0.4", **entry}]}
    return {"ome": {"version": "0.5", "multiscales": [entry]}}


def threads(n: int):
    return dask.config.set(scheduler="threads", num_workers=n)
