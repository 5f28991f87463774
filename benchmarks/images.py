"""The images that the benchmarks work on: noisy, microscope-like, the same for every run."""

import hashlib
import math
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numcodecs import Blosc  # type: ignore[import-untyped]
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, ZstdCodec

N_COARSER = 3
# What zarr is told to make arrays with.
CODECS: dict[str, dict[str, Any]] = {
    "blosc-lz4": {"compressors": [BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=2)]},
    "zstd": {"compressors": [ZstdCodec(level=1)]},
    "none": {"compressors": None},
    "v2-blosc": {
        "zarr_format": 2,
        "compressors": Blosc(cname="lz4", clevel=5, shuffle=Blosc.SHUFFLE),
        "chunk_key_encoding": {"name": "v2", "separator": "/"},
    },
}
WARM_UP_BYTES = 192 * 2**20

BACKGROUND = 120.0
N_BLOBS = 12

# A half-open interval of pixels per axis.
type Box = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Geometry:
    """Level 0 of a uint16 image and the factors to every coarser level.

    Parameters
    ----------
    name
        What the tables call it.
    shape, chunks, shards, factors
        One value per axis, in pixels (`shards` is None for plain chunks).
    """

    name: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    factors: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Uncompressed size of level 0."""
        return 2 * math.prod(self.shape)

    @property
    def unit(self) -> tuple[int, ...]:
        """The write unit."""
        return self.shards or self.chunks

    def at_most(self, size_bytes: int) -> "Geometry":
        """Halve or double axes until level 0 is the largest that `size_bytes` holds.

        Planes keep their size and change in number; cubes change along the longest (or shortest) axis.
        """
        shape = list(self.shape)
        while 2 * math.prod(shape) > size_bytes:
            axis = self._elastic_axis(shape.index(max(shape)))
            if shape[axis] == 1:
                raise SystemExit(f"{self.name}: {size_bytes} bytes is less than one plane; give a larger --size")
            shape[axis] //= 2
        while 4 * math.prod(shape) <= size_bytes:
            shape[self._elastic_axis(shape.index(min(shape)))] *= 2
        return replace(self, shape=tuple(shape))

    def tiny(self) -> "Geometry":
        """Shrink for warming code up: enough pixels that whatever is compiled on the way is compiled by then."""
        return self.at_most(WARM_UP_BYTES)

    def _elastic_axis(self, otherwise: int) -> int:
        return self.factors.index(1) if 1 in self.factors else otherwise


GEOMETRIES = (
    Geometry("planes", (64, 4096, 4096), (1, 1024, 1024), None, (1, 2, 2)),
    Geometry("planes-sharded", (64, 4096, 4096), (1, 512, 512), (1, 2048, 2048), (1, 2, 2)),
    Geometry("cubes", (512, 1024, 1024), (64, 64, 64), None, (2, 2, 2)),
    Geometry("cubes-sharded", (512, 1024, 1024), (32, 64, 64), (128, 256, 256), (2, 2, 2)),
)


def make_image(path: Path, geometry: Geometry, codec: str, n_coarser: int = N_COARSER) -> None:
    """Write an OME-Zarr image, 0.4 in zarr v2 and 0.5 in v3: level 0 with pixels, the coarser levels empty."""
    level0 = _create(path, geometry, codec, n_coarser)
    slab = geometry.unit[0]
    for start in range(0, geometry.shape[0], slab) if len(geometry.shape) == 3 else (0,):
        level0[start : start + slab] = _slab(geometry.shape, start, slab)


def make_image_in_part(path: Path, geometry: Geometry, codec: str, units: Iterable[Box]) -> None:
    """Write a 3-D image as `make_image` does, of level 0 only these write units.

    Their noise is cut somewhere out of one that is drawn once: that of all planes up to there would take hours.
    """
    level0 = _create(path, geometry, codec, N_COARSER)
    rng, n_pixels = np.random.default_rng(0), math.prod(geometry.unit)
    noise = rng.standard_normal(8 * n_pixels, dtype=np.float32)
    for unit in units:
        shape = [b - a for a, b in unit]
        first = rng.integers(7 * n_pixels)
        pixels = _part(geometry.shape, unit, noise[first : first + math.prod(shape)])
        level0[tuple(slice(*interval) for interval in unit)] = pixels


def _create(path: Path, geometry: Geometry, codec: str, n_coarser: int) -> zarr.Array[Any]:
    zarr_format = CODECS[codec].get("zarr_format", 3)
    group = zarr.create_group(path, zarr_format=zarr_format)
    for k in range(n_coarser + 1):
        _create_level(group, k, geometry, codec)
    if zarr_format == 2:
        group.attrs["multiscales"] = [{**_multiscale(geometry, n_coarser), "version": "0.4"}]
    else:
        group.attrs["ome"] = {"version": "0.5", "multiscales": [_multiscale(geometry, n_coarser)]}
    level0 = group["0"]
    assert isinstance(level0, zarr.Array)
    return level0


def _create_level(group: zarr.Group, k: int, geometry: Geometry, codec: str) -> None:
    shape = tuple(max(1, n // f**k) for n, f in zip(geometry.shape, geometry.factors, strict=True))
    chunks = tuple(map(min, geometry.chunks, shape))
    shards = geometry.shards
    if shards is not None:
        shards = tuple(min(s, -(-n // c) * c) for s, n, c in zip(shards, shape, chunks, strict=True))
    options = dict(CODECS[codec])
    if options.get("zarr_format", 3) == 3:
        options["dimension_names"] = list("zyx"[-len(shape) :])
    else:
        del options["zarr_format"]  # the group's
    group.create_array(str(k), shape=shape, chunks=chunks, shards=shards, dtype="uint16", fill_value=0, **options)


def can_make(geometry: Geometry, codec: str) -> bool:
    """Whether there is such an image: zarr v2 has no shards."""
    return geometry.shards is None or CODECS[codec].get("zarr_format", 3) == 3


def _multiscale(geometry: Geometry, n_coarser: int) -> dict[str, Any]:
    datasets = []
    for k in range(n_coarser + 1):
        scale = [float(f**k) for f in geometry.factors]
        transforms = [
            {"type": "scale", "scale": scale},
            {"type": "translation", "translation": [(s - 1) / 2 for s in scale]},
        ]
        datasets.append({"path": str(k), "coordinateTransformations": transforms})
    names = "zyx"[-len(geometry.shape) :]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in names]
    return {"name": geometry.name, "axes": axes, "datasets": datasets}


def _slab(shape: tuple[int, ...], start: int, n: int) -> NDArray[np.uint16]:
    """Planes `[start, start + n)`, or the whole of a 2-D image."""
    if len(shape) == 2:
        return _plane(shape, 0.5, seed=0)
    planes = range(start, min(start + n, shape[0]))
    return np.stack([_plane(shape[1:], (z + 0.5) / shape[0], seed=z) for z in planes])


def _plane(shape: tuple[int, ...], depth: float, seed: int) -> NDArray[np.uint16]:
    """Smooth blobs whose noise has the variance of the signal, as a camera's shot noise has.

    The blobs are one product of two thin matrices and the noise is normal: drawing Poisson numbers would take longer
    than all that is measured.
    """
    (z, y, x), height, width = _blobs()
    weight = height * np.exp(-(((depth - z) / width) ** 2) / 2)
    rows, columns = (_profiles(n, at, width) for n, at in zip(shape, (y, x), strict=True))
    noise = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)
    return _noisy((rows * weight[:, None]).T, columns, noise)


def _part(shape: tuple[int, ...], box: Box, noise: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Pixels of a box."""
    centres, height, width = _blobs()
    each = zip(shape, box, centres, strict=True)
    layers, rows, columns = (_profiles(n, at, width, *interval) for n, interval, at in each)
    layers_of_rows = (height[:, None, None] * layers[:, :, None] * rows[:, None, :]).reshape(N_BLOBS, -1).T
    return _noisy(layers_of_rows, columns, noise).reshape([b - a for a, b in box])


def _blobs() -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Centres per axis, heights and widths, of which centres and widths are shares of an axis."""
    blobs = np.random.default_rng(7)
    return blobs.random((3, N_BLOBS)), blobs.uniform(300, 3000, N_BLOBS), blobs.uniform(0.03, 0.15, N_BLOBS)


def _noisy(rows: NDArray[np.float64], columns: NDArray[np.float64], noise: NDArray[np.float32]) -> NDArray[np.uint16]:
    signal = rows.astype(np.float32) @ columns.astype(np.float32) + np.float32(BACKGROUND)
    noisy = signal + np.sqrt(signal) * noise.reshape(signal.shape)
    pixels: NDArray[np.uint16] = np.clip(noisy, 0, 65535).astype(np.uint16)
    return pixels


def _profiles(
    n: int, at: NDArray[np.float64], width: NDArray[np.float64], start: int = 0, stop: int | None = None
) -> NDArray[np.float64]:
    """Gaussians along one axis of n pixels, or from start to stop: one row per blob."""
    pixels = (np.arange(start, n if stop is None else stop) + 0.5) / n
    profiles: NDArray[np.float64] = np.exp(-(((pixels - at[:, None]) / width[:, None]) ** 2) / 2)
    return profiles


def coarser_objects(path: Path) -> Iterator[Path]:
    """Find the directories that hold the objects of the coarser levels: one in v3, many in v2."""
    levels = (level for level in path.iterdir() if level.name.isdigit() and level.name != "0")
    return (child for level in levels for child in level.iterdir() if child.is_dir() and child.name[0] != ".")


def objects_of(path: Path, level: int) -> list[Path]:
    """Find the files that hold a level."""
    files = (file for file in (path / str(level)).rglob("[!.]*") if file.is_file() and file.name != "zarr.json")
    return sorted(file for file in files if ".ziggurat" not in file.parts)


def clear_levels(path: Path) -> None:
    """Delete the pixels of the coarser levels; their metadata stays."""
    for objects in list(coarser_objects(path)):
        shutil.rmtree(objects, ignore_errors=True)


def encoded_bytes(directory: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())


def warm_page_cache(path: Path) -> None:
    """Read level 0 once, so that no run is the first to touch the disk."""
    for file in (path / "0").rglob("*"):
        if file.is_file():
            file.read_bytes()


def digests(path: Path) -> list[str]:
    """One hash per coarser level, of its decoded pixels in C order."""
    group = zarr.open_group(path, mode="r")
    return [_digest(group[str(k)]) for k in range(1, N_COARSER + 1)]


def _digest(level: Any) -> str:
    pixels = hashlib.blake2b(digest_size=16)
    slab = (level.shards or level.chunks)[0]
    for start in range(0, level.shape[0], slab):
        pixels.update(np.ascontiguousarray(level[start : start + slab]))
    return pixels.hexdigest()
