"""Arrays that hold no pixels: other chunks, chunks with a halo, and in `ziggurat.mosaic` tiles. Nothing is copied.

Each is a source like an array: `ziggurat.plan`, `consolidate`, `verify` and `build` read from it.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, corner, grown, intersect
from ziggurat.chunkgrid import ChunkGrid, Projection, extent
from ziggurat.config import get_config
from ziggurat.counted import Requests
from ziggurat.errors import DTypeError, GeometryError
from ziggurat.grid import Level, Shape
from ziggurat.handle import Handle
from ziggurat.settings import ZarrConfig
from ziggurat.sources import ArraySource, DaskSource, Source, is_dask
from ziggurat.store import retried

__all__ = ["Overlapping", "Rechunked", "Virtual", "as_part", "as_source", "is_virtual", "overlapping", "rechunked"]


class Virtual:
    """An array whose pixels lie in others; read-only, and picklable where they are.

    Attributes
    ----------
    grid : ChunkGrid
        Its chunks.
    level : Level
        The same, as a plan sees it.
    parts : tuple of Source
        What it is read from.
    """

    read_only = True

    def __init__(self, name: str, grid: ChunkGrid, parts: Sequence[Source]) -> None:
        self.grid = grid
        self.parts = tuple(parts)
        self.level = Level.of_grid(name, self.parts[0].level.dtype, grid)
        self.dtype = self.level.native
        self.settings: ZarrConfig = self.parts[0].settings
        self.requests: Requests = _Sum(self.parts)

    @property
    def shape(self) -> Shape:
        """Pixels per axis."""
        return self.level.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def origins(self) -> tuple[Any, ...]:
        """What holds the pixels: zarr, dask and numpy arrays."""
        return tuple(origin for part in self.parts for origin in _origins(part))

    @property
    def gives_chunks(self) -> bool:
        """Whether it is read chunk by chunk."""
        raise NotImplementedError

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, in native byte order."""
        raise NotImplementedError

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order; `out` is memory that may be used for it."""
        raise NotImplementedError

    def lent(self, box: Box) -> NDArray[Any] | None:
        """Return nothing: what its parts yield may be used again."""

    def __getitem__(self, selection: Any) -> NDArray[Any]:
        """Read a selection of slices with steps above 0, and integers."""
        out = np.empty(self.grid.out_shape(selection), self.dtype)
        if out.size:
            box, taken = extent(self.grid.selected(selection), (0,) * self.ndim)
            out[...] = self.read(box)[taken]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[...].astype(dtype or self.dtype, copy=False)

    def __repr__(self) -> str:
        return f"<{self.level.name} {self.shape} {self.dtype}>"


class _Sum(Requests):
    """The requests of all parts together."""

    def __init__(self, parts: Sequence[Source]) -> None:
        super().__init__()
        self.parts = parts

    def take(self) -> tuple[int, int]:
        """Return the reads and the writes, and begin anew."""
        found = [part.requests.take() for part in self.parts]
        return sum(gets for gets, _ in found), sum(sets for _, sets in found)


class Rechunked(Virtual):
    """An array with chunks of other sizes; use `rechunked`."""

    def __init__(self, source: Source, grid: ChunkGrid) -> None:
        super().__init__(f"{source.level.name}, rechunked", grid, [source])

    def __reduce__(self) -> tuple[Any, ...]:
        return Rechunked, (self.parts[0], self.grid)

    @property
    def gives_chunks(self) -> bool:
        """Whether it is read chunk by chunk."""
        return True

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order; `out` is memory that may be used for it."""
        return self.parts[0].read(box, out)

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, in native byte order."""
        for index in product(*self.grid.meeting(box)):
            part = intersect(box, self.grid.box(index))
            yield part, self.read(part)


class Overlapping(Virtual):
    """An array whose chunks hold their neighbours' nearest pixels too; use `overlapping`.

    Attributes
    ----------
    halo : tuple of int
        How many, per axis.
    """

    def __init__(self, source: Source, halo: Shape) -> None:
        super().__init__(f"{source.level.name}, overlapping", source.level.chunks, [source])
        self.halo = halo

    def __reduce__(self) -> tuple[Any, ...]:
        return Overlapping, (self.parts[0], self.halo)

    @property
    def gives_chunks(self) -> bool:
        """Whether it is read chunk by chunk."""
        return self.parts[0].gives_chunks

    def window(self, box: Box) -> Box:
        """Return `box` with the halo around it, as far as the array has it."""
        return grown(box, self.halo, self.shape)

    def project(self, selection: Any = ...) -> Iterator[tuple[Projection, Box]]:
        """Yield each projection as seen from the chunk with its halo, and the box of that chunk."""
        for p in self.grid.project(selection):
            box = self.grid.box(p.chunk_coords)
            window = self.window(box)
            offsets = [a - b for a, b in zip(corner(box), corner(window), strict=True)]
            inside = tuple(_moved(s, o) for s, o in zip(p.chunk_selection, offsets, strict=True))
            yield Projection(p.chunk_coords, inside, p.out_selection, p.whole), window

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order; `out` is memory that may be used for it."""
        return self.parts[0].read(box, out)

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, each pixel once, in native byte order."""
        return self.parts[0].chunks(box)


def rechunked(array: Any, chunks: Sequence[int | Sequence[int]]) -> Rechunked:
    """Return `array` with chunks of other sizes, without copying a pixel.

    Parameters
    ----------
    array : array
        zarr, dask, numpy, a pyramid (its level 0), or virtual.
    chunks : sequence of int or of sequence of int
        Pixels of a chunk, or of each chunk in turn, per axis.

    Raises
    ------
    GeometryError
        When the chunks do not add up to the array.

    Examples
    --------
    >>> rechunked(np.zeros((6, 6)), (4, (1, 5))).grid.shape
    (2, 2)
    """
    source = as_part(array)
    return Rechunked(source, ChunkGrid(source.level.shape, chunks))


def overlapping(array: Any, halo: int | Sequence[int]) -> Overlapping:
    """Return `array` with chunks that hold their neighbours' nearest pixels too, without copying one.

    Its shape and its pixels are those of `array`; `read_chunks` yields its chunks with the halo around them, as far as
    the array has it.

    Parameters
    ----------
    array : array
        zarr, dask, numpy, a pyramid (its level 0), or virtual.
    halo : int or sequence of int
        Pixels on either side, for all axes or for each.

    Raises
    ------
    GeometryError
        When a halo is negative, or their number is wrong.

    Examples
    --------
    >>> array = overlapping(rechunked(np.arange(9), (3,)), 1)
    >>> [window for _, window in array.project()]
    [((0, 4),), ((2, 7),), ((5, 9),)]
    """
    source = as_part(array)
    halos = tuple(halo) if isinstance(halo, Sequence) else (halo,) * len(source.level.shape)
    if len(halos) != len(source.level.shape) or min(halos, default=0) < 0:
        raise GeometryError(f"halo {halo!r}: give a number of pixels, 0 or more, for all axes or for each")
    return Overlapping(source, halos)


def is_virtual(array: object) -> bool:
    """Say whether `array` holds no pixels of its own."""
    return isinstance(array, Virtual)


def as_source(data: Any, settings: ZarrConfig | None = None, unit: Shape | None = None) -> Source:
    """Return what reads `data`; `unit` is what is read at once where every box costs the same."""
    config = get_config()
    settings = settings or config.zarr.model_copy()
    if isinstance(data, Virtual):
        return data
    if is_dask(data):
        return DaskSource(data, settings)
    if hasattr(data, "arrays") and hasattr(data, "levels"):
        return data[0] if isinstance(data[0], Virtual) else Handle(data[0], data.settings)
    if hasattr(data, "store_path") and not hasattr(data, "dtype"):
        raise DTypeError(f"{data} is a zarr group: open it with open_pyramid, or take one of its arrays")
    if hasattr(data, "store_path"):
        return Handle(retried(data, config.io_retry), settings)
    pixels = data if hasattr(data, "dtype") else np.asarray(data)
    return ArraySource(pixels, unit or tuple(max(1, n) for n in pixels.shape), settings)


def as_part(data: Any) -> Source:
    """Return what reads `data`, which knows the chunks of a dask array."""
    source = as_source(data)
    if not isinstance(source, DaskSource):
        return source
    return Rechunked(source, ChunkGrid(data.shape, [[n for n in sizes if n] for sizes in data.chunks]))


def _origins(source: Source) -> tuple[Any, ...]:
    if isinstance(source, Virtual):
        return source.origins
    if isinstance(source, Handle):
        return (source.array,)
    return (source.pixels,) if isinstance(source, ArraySource) else (source,)


def _moved(selection: slice | int, offset: int) -> slice | int:
    if isinstance(selection, int):
        return selection + offset
    return slice(selection.start + offset, selection.stop + offset, selection.step)
