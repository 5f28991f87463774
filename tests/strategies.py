"""Random pyramids: odd and prime shapes, 1-sized axes, chunks, shards, formats, geometries, dtypes and methods."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import zarr
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from ziggurat.errors import DTypeError
from ziggurat.kernels import METHODS, check
from ziggurat.runtime import FUSED
from ziggurat.store import innermost

DTYPES = ["u1", "i2", ">u2", "i4", "u8", "i8", "f4", "f8", "?", "c8"]


@dataclass(frozen=True)
class Recipe:
    """All that is needed to make the arrays of a pyramid, as often as wanted, with the same pixels."""

    shapes: tuple[tuple[int, ...], ...]
    chunks: tuple[tuple[int, ...], ...]
    shards: tuple[tuple[int, ...] | None, ...]
    dtype: str
    zarr_format: int
    fill: int
    seed: int
    method: str = field(default="mean")

    def pixels(self) -> np.ndarray:
        """Return level 0: small and large values, runs of equal ones, some equal to the fill value."""
        rng = np.random.default_rng(self.seed)
        dtype = np.dtype(self.dtype).newbyteorder("=")
        shape = self.shapes[0]
        if dtype.kind in "iu":
            info = np.iinfo(dtype)
            wide = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        elif dtype.kind == "b":
            wide = rng.random(shape) < 0.5
        else:
            wide = (rng.standard_normal(shape) * 1000).astype(dtype)
        few = rng.integers(0, 3, shape).astype(dtype)
        return np.where(rng.random(shape) < 0.4, wide, few)

    def make(self, store: Any = None) -> list[zarr.Array]:
        """Make the arrays, with level 0 written and the others holding wrong pixels."""
        group = zarr.create_group(store if store is not None else MemoryStore(), zarr_format=self.zarr_format)
        arrays = []
        for k, (shape, chunks, shards) in enumerate(zip(self.shapes, self.chunks, self.shards, strict=True)):
            options: dict[str, Any] = {"shards": shards} if self.zarr_format == 3 else {}
            options |= {"shape": shape, "chunks": chunks, "dtype": self.dtype, "fill_value": self.fill}
            pixels = self.pixels() if k == 0 else np.ones(shape, self.dtype)
            with zarr.config.set({"codec_pipeline.path": FUSED}):  # takes half of the time, for chunks so small
                group.create_array(str(k), **options)[...] = pixels
            arrays.append(group[str(k)])
        return arrays


def stored(arrays: list[zarr.Array]) -> dict[str, bytes]:
    """Return every stored object of in-memory arrays."""
    return {key: value.to_bytes() for key, value in innermost(arrays[0].store)._store_dict.items()}


@st.composite
def recipes(draw: st.DrawFn, methods: tuple[str, ...] = METHODS, max_levels: int = 3) -> Recipe:
    """Draw a pyramid; half of them halve every axis on equal grids, so that stages hold several levels."""
    nests = draw(st.booleans())
    ndim = draw(st.integers(1, 2 if nests else 3))
    size = {1: 97, 2: 37, 3: 17}[ndim]
    shapes = [tuple(draw(st.integers(size // 2 if nests else 1, size)) for _ in range(ndim))]
    for _ in range(draw(st.integers(1, max_levels))):
        shapes.append(tuple(_coarser(draw, n, nests) for n in shapes[-1]))
    zarr_format = draw(st.sampled_from([2, 3, 3]))
    grids = [_grid(draw, shape, nests, zarr_format) for shape in shapes]
    if nests:
        grids = grids[:1] * len(shapes)
    dtype = draw(st.sampled_from(DTYPES))
    method = draw(st.sampled_from([m for m in methods if _fits(m, dtype)]))
    chunks, shards = zip(*grids, strict=True)
    fill, seed = draw(st.integers(0, 1)), draw(st.integers(0, 99))
    return Recipe(tuple(shapes), chunks, shards, dtype, zarr_format, fill, seed, method)


def _grid(draw: st.DrawFn, shape: tuple[int, ...], nests: bool, zarr_format: int) -> tuple[tuple[int, ...], Any]:
    sizes = st.sampled_from([2, 4]) if nests else st.integers(1, 9)
    chunk = tuple(min(draw(sizes), max(2, n)) for n in shape)
    if zarr_format == 2 or draw(st.booleans()):
        return chunk, None
    return chunk, tuple(c * draw(st.integers(1, 2 if nests else 3)) for c in chunk)


def _fits(method: str, dtype: str) -> bool:
    try:
        check(method, np.dtype(dtype), None)
    except DTypeError:
        return False
    return True


def _coarser(draw: st.DrawFn, n: int, nests: bool) -> int:
    """Draw a coarser size: by factor 2, floor or ceil, in the first place; else any."""
    if nests or draw(st.booleans()):
        return draw(st.sampled_from([max(1, n // 2), -(-n // 2)]))
    return draw(st.integers(max(1, n // 4), n))
