"""One peer in a process of its own: `python -m benchmarks.peers_contender NAME IMAGE TINY_IMAGE`, JSON out."""

import functools
import itertools
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.contender import N_WORKERS, WRITE_BLOCK_MAX_BYTES, two_threads
from benchmarks.images import N_COARSER
from benchmarks.measure import Cost, measure
from benchmarks.processes import answer


def new_image(path: Path) -> Path:
    """Where contenders that cannot rebuild write the image at `path` anew."""
    return path.with_name(f"{path.name}-new")


def _ours(mode: str, path: Path) -> None:
    import ziggurat as zg

    zg.get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    zg.consolidate(path, method="mean", mode=mode)


def _ngio(mode: str, path: Path) -> None:
    import ngio
    from ngio.config import get_config

    get_config().dask.write_block_max_bytes = WRITE_BLOCK_MAX_BYTES
    ngio.open_ome_zarr_container(path).get_image(path="0").consolidate("linear", mode=mode)


def _tensorstore(path: Path) -> None:
    import tensorstore as ts

    limits = {"data_copy_concurrency": {"limit": N_WORKERS}, "file_io_concurrency": {"limit": N_WORKERS}}
    context = ts.Context(limits)
    levels = [_open_in_tensorstore(path / str(k), context) for k in range(N_COARSER + 1)]
    for source, target in itertools.pairwise(levels):
        half = ts.downsample(source, _factors(source, target), "mean")
        with ThreadPoolExecutor(N_WORKERS) as pool:
            for done in [pool.submit(_copy, half, target, box) for box in _boxes(target)]:
                done.result()


def _open_in_tensorstore(path: Path, context: Any) -> Any:
    import tensorstore as ts

    kvstore = {"driver": "file", "path": str(path), "file_io_sync": False}
    return ts.open({"driver": "zarr3", "kvstore": kvstore}, context=context).result()


def _copy(source: Any, target: Any, box: tuple[slice, ...]) -> None:
    target[box].write(source[box]).result()


def _boxes(target: Any) -> Iterator[tuple[slice, ...]]:
    units = target.chunk_layout.write_chunk.shape
    starts = (range(0, n, unit) for n, unit in zip(target.shape, units, strict=True))
    for corner in itertools.product(*starts):
        yield tuple(slice(a, min(a + u, n)) for a, u, n in zip(corner, units, target.shape, strict=True))


def _factors(source: Any, target: Any) -> list[int]:
    return [round(n / m) for n, m in zip(source.shape, target.shape, strict=True)]


def _topozarr(path: Path) -> None:
    import zarr
    from topozarr.engine import downsample_level

    group: Any = zarr.open_group(path, mode="r+")
    levels = [group[str(k)] for k in range(N_COARSER + 1)]
    for source, target in itertools.pairwise(levels):
        stride = tuple(_factors(source, target))
        downsample_level(source, target, stride=stride, method="mean", max_workers=N_WORKERS)


def _level0(path: Path) -> tuple[Any, Any, list[dict[str, int]]]:
    """Return level 0 as zarr and dask array, and the factors of the coarser levels to it, per axis."""
    import dask.array as da
    import zarr

    group: Any = zarr.open_group(path, mode="r")
    level0 = group["0"]
    every = dict(zip("zyx", _factors(level0, group["1"]), strict=True))
    factors = [{axis: f**k for axis, f in every.items()} for k in range(1, N_COARSER + 1)]
    return level0, da.from_zarr(level0, chunks=level0.shards or level0.chunks), factors


def _ours_anew(path: Path) -> None:
    import ziggurat as zg

    level0, pixels, factors = _level0(path)
    options = {"chunks": level0.chunks, "shards": level0.shards, "compressors": level0.compressors}
    step = tuple(factors[0].values())
    zg.build(
        pixels, new_image(path), axes="zyx", method="mean", factors=[step] * N_COARSER, n_levels=1 + N_COARSER,
        mode="dask", **options,
    )  # fmt: skip


def _ome_zarr(path: Path) -> None:
    from ome_zarr.scale import Methods
    from ome_zarr.writer import write_image

    level0, pixels, factors = _level0(path)
    # No chunk of a coarser level is larger than the level.
    options = [_fitting(level0, [n // f for n, f in zip(level0.shape, step.values(), strict=True)]) for step in factors]
    options = [_fitting(level0, level0.shape), *options]
    write_image(
        pixels, str(new_image(path)), axes="zyx", scale_factors=factors, method=Methods.LOCAL_MEAN,
        storage_options=options,
    )  # fmt: skip


def _fitting(level0: Any, shape: Any) -> dict[str, Any]:
    chunks = tuple(map(min, level0.chunks, shape))
    options: dict[str, Any] = {"chunks": chunks, "compressors": level0.compressors}
    if level0.shards:
        options["shards"] = tuple(min(s, -(-n // c) * c) for s, n, c in zip(level0.shards, shape, chunks, strict=True))
    return options


def _ngff_zarr(path: Path) -> None:
    import ngff_zarr

    level0, pixels, factors = _level0(path)
    image = ngff_zarr.to_ngff_image(pixels, dims=("z", "y", "x"))
    method = ngff_zarr.Methods.ITKWASM_BIN_SHRINK
    chunks = dict(zip("zyx", level0.chunks, strict=True))
    scales = ngff_zarr.to_multiscales(image, scale_factors=factors, method=method, chunks=chunks)
    options: dict[str, Any] = {"compressors": level0.compressors}
    if level0.shards:
        per_shard = (s // c for s, c in zip(level0.shards, level0.chunks, strict=True))
        options["chunks_per_shard"] = dict(zip("zyx", per_shard, strict=True))
    ngff_zarr.to_ngff_zarr(str(new_image(path)), scales, version="0.5", **options)


CONTENDERS: dict[str, Callable[[Path], None]] = {
    "ours": functools.partial(_ours, "dask"),
    "ours, in memory": functools.partial(_ours, "numpy"),
    "ngio, dask": functools.partial(_ngio, "dask"),
    "ngio, numpy": functools.partial(_ngio, "numpy"),
    "ngio, coarsen": functools.partial(_ngio, "coarsen"),
    "tensorstore": _tensorstore,
    "topozarr": _topozarr,
    "ours, new image": _ours_anew,
    "ome-zarr, new image": _ome_zarr,
    "ngff-zarr, new image": _ngff_zarr,
}


def contend(name: str, image: str, tiny: str) -> Cost:
    """Warm the code up on the tiny image, then measure one run on the other."""
    two_threads()
    rebuild = CONTENDERS[name]
    rebuild(Path(tiny))
    return measure(lambda: rebuild(Path(image)))


if __name__ == "__main__":
    answer(lambda: contend(*sys.argv[1:]))
