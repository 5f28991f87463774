"""New images from a dask array: `python -m benchmarks.building`.

Each line is a fresh process, warm, on two threads: level 0 and its levels from the same lazy data, with the same
chunks, codec and factors. What a contender cannot do, or is not installed for, is shown in its line.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from dask.utils import parse_bytes

from benchmarks.measure import measure
from benchmarks.processes import MEMORY_ENVIRONMENT, in_fresh_process

CHUNK = 1024
SIDE = 8192
N_LEVELS = 6


def lazy_data(n_planes: int, side: int = SIDE) -> Any:
    """Return (plane, y, x) uint16 pixels of a camera's noise, 2 MiB per dask chunk."""
    import dask.array as da

    rng = np.random.default_rng(0)
    tile = rng.poisson(100, (CHUNK, CHUNK)).astype("u2")

    def plane(block: Any, block_info: Any = None) -> Any:
        return tile[None] + np.uint16(block_info[None]["chunk-location"][0] % 7)

    empty = da.zeros((n_planes, side, side), chunks=(1, CHUNK, CHUNK), dtype="u2")
    return empty.map_blocks(plane, dtype="u2", meta=np.empty((0, 0, 0), "u2"))


def _codec() -> Any:
    from zarr.codecs import BloscCodec

    return BloscCodec(cname="zstd", clevel=3, shuffle="shuffle")


def _ours(data: Any, path: Path) -> None:
    import ziggurat as zg

    zg.build(data, path, axes="cyx", chunks=(1, CHUNK, CHUNK), compressors=_codec(), n_levels=N_LEVELS, mode="dask")


def _ome_zarr(data: Any, path: Path) -> None:
    from ome_zarr.writer import write_image

    factors = [{"c": 1, "y": 2**k, "x": 2**k} for k in range(1, N_LEVELS)]
    options = {"chunks": (1, CHUNK, CHUNK), "compressors": [_codec()]}
    write_image(data, str(path), axes="cyx", scale_factors=factors, storage_options=options)


def _ngff_zarr(data: Any, path: Path) -> None:
    import ngff_zarr

    image = ngff_zarr.to_ngff_image(data, dims=("c", "y", "x"))
    factors = [{"y": 2**k, "x": 2**k} for k in range(1, N_LEVELS)]
    method = ngff_zarr.Methods.ITKWASM_BIN_SHRINK
    chunks = {"c": 1, "y": CHUNK, "x": CHUNK}
    scales = ngff_zarr.to_multiscales(image, scale_factors=factors, method=method, chunks=chunks)
    ngff_zarr.to_ngff_zarr(str(path), scales, version="0.5", compressors=[_codec()])


def _multiscale_spatial_image(data: Any, path: Path) -> None:
    from multiscale_spatial_image import Methods, to_multiscale
    from spatial_image import to_spatial_image

    image = to_spatial_image(data, dims=("c", "y", "x"))
    chunks = {"c": 1, "y": CHUNK, "x": CHUNK}
    tree = to_multiscale(image, [{"y": 2, "x": 2}] * (N_LEVELS - 1), Methods.XARRAY_COARSEN, chunks=chunks)
    codec = {"compressors": [_codec()], "chunks": (1, CHUNK, CHUNK)}
    encoding = {node.path: dict.fromkeys(node.data_vars, codec) for node in tree.leaves}
    tree.to_zarr(str(path), mode="w", encoding=encoding, consolidated=False)


def _tensorstore(data: Any, path: Path) -> None:
    import dask.array as da
    import tensorstore as ts

    blosc = {"name": "blosc", "configuration": {"cname": "zstd", "clevel": 3, "shuffle": "shuffle", "typesize": 2}}
    shape = data.shape
    source = None
    for k in range(N_LEVELS):
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{path}/{k}/"}}
        grid = {"name": "regular", "configuration": {"chunk_shape": [1, min(CHUNK, shape[1]), min(CHUNK, shape[2])]}}
        codecs = [{"name": "bytes"}, blosc]
        metadata = {"shape": list(shape), "data_type": "uint16", "chunk_grid": grid, "codecs": codecs}
        target = ts.open(spec | {"metadata": metadata}, create=True).result()
        if source is None:
            da.store(data, _TensorStore(target), lock=False)
        else:
            half = ts.downsample(source, [1, 2, 2], "mean")
            for plane in range(shape[0]):
                target[plane].write(half[plane][: shape[1], : shape[2]]).result()
        source, shape = target, (shape[0], shape[1] // 2, shape[2] // 2)


class _TensorStore:
    def __init__(self, target: Any) -> None:
        self.target = target

    def __setitem__(self, key: Any, pixels: Any) -> None:
        self.target[key].write(pixels).result()


CONTENDERS: dict[str, Callable[[Any, Path], None]] = {
    "ours": _ours,
    "ome-zarr": _ome_zarr,
    "ngff-zarr": _ngff_zarr,
    "multiscale-spatial-image": _multiscale_spatial_image,
    "tensorstore": _tensorstore,
}


def contend(name: str, n_planes: int) -> None:
    """Warm the code up on a small image, then measure one run on the other, and print what it cost."""
    import dask

    dask.config.set(scheduler="threads", num_workers=2)
    with tempfile.TemporaryDirectory(prefix="ziggurat-building-") as temporary:
        try:
            CONTENDERS[name](lazy_data(1), Path(temporary) / "small.zarr")
            data = lazy_data(n_planes)
            cost = measure(lambda: CONTENDERS[name](data, Path(temporary) / "image.zarr"))
        except Exception as e:
            traceback.print_exc()
            print(json.dumps({"error": f"{type(e).__name__}: {e}"}))
        else:
            print(json.dumps(cost))


def _row(name: str, n_planes: int, repeat: int) -> str:
    command = ("-c", f"from benchmarks.building import contend; contend({name!r}, {n_planes})")
    runs = []
    for environment in (*[None] * repeat, MEMORY_ENVIRONMENT):
        try:
            run = in_fresh_process(*command, environment=environment)
        except subprocess.SubprocessError as e:
            run = {"error": str(e)}
        if "error" in run:
            return f"{name:<26}failed: {' '.join(run['error'].split())[:200]}"
        runs.append(run)
    *timed, watched = runs
    wall, cpu = (statistics.median(run[key] for run in timed) for key in ("wall_s", "cpu_s"))
    return f"{name:<26}{wall:>9.2f}{cpu:>9.2f}{watched['growth_bytes'] / 2**20:>13.0f}"


def main(arguments: Sequence[str]) -> None:
    """Print seconds and memory of each contender."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.building", description=__doc__)
    parser.add_argument("--size", type=parse_bytes, default="2GiB", help="of level 0")
    parser.add_argument("--repeat", type=int, default=3, metavar="N")
    parser.add_argument("--contender", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    options = parser.parse_args(arguments)
    n_planes = max(1, options.size // (2 * SIDE**2))
    print(f"{'contender':<26}{'wall, s':>9}{'CPU, s':>9}{'growth, MiB':>13}")
    for name in options.contender:
        print(_row(name, n_planes, options.repeat), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
