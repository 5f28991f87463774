"""What a new pyramid is built from: pixels that are read box by box, from numpy, dask or zarr."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ziggurat.boxes import Box, corner, intersect, shape_of, slices
from ziggurat.counted import Requests
from ziggurat.errors import DTypeError
from ziggurat.grid import Level, Shape
from ziggurat.settings import ZarrConfig

if TYPE_CHECKING:
    import dask.array as da

__all__ = ["ArraySource", "DaskSource", "Source", "is_dask"]


class Source(Protocol):
    """What the cascade reads from; `ziggurat.store.Handle` is one, too."""

    level: Level
    dtype: np.dtype[Any]
    settings: ZarrConfig
    requests: Requests

    @property
    def gives_chunks(self) -> bool:
        """Whether it is read chunk by chunk."""
        ...

    def lent(self, box: Box) -> NDArray[Any] | None:
        """Return the pixels of `box`, in native byte order, where they lie together in memory that stays as it is."""
        ...

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, in native byte order."""
        ...

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order; `out` is memory that may be used for it."""
        ...


class ArraySource:
    """Pixels in memory, or mapped into it.

    Parameters
    ----------
    pixels : numpy array, or anything with a shape, a dtype and slices
        The pixels.
    unit : tuple of int
        What is read at once, best.
    """

    gives_chunks = False

    def __init__(self, pixels: NDArray[Any], unit: Shape, settings: ZarrConfig) -> None:
        self.pixels = pixels
        self.settings = settings
        self.requests = Requests()
        self.level = Level("data", pixels.shape, pixels.dtype, unit, unit)
        self.dtype = self.level.native

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order."""
        return np.asarray(self.pixels[slices(box)]).astype(self.dtype, copy=False)

    def lent(self, box: Box) -> NDArray[Any] | None:
        """Return the pixels of `box`, in native byte order."""
        return self.read(box)

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box`."""
        yield box, self.read(box)


class DaskSource:
    """Pixels that dask computes, in the thread that reads them: the work is spread over tasks already.

    Parameters
    ----------
    array : dask array
        The pixels, in chunks of any sizes; all of a chunk is computed when a pixel of it is read.

    Attributes
    ----------
    is_even : bool
        Whether all chunks are of one size, but for the last ones.
    """

    gives_chunks = True

    def __init__(self, array: "da.Array", settings: ZarrConfig) -> None:
        if any(n != n for sizes in array.chunks for n in sizes):
            raise DTypeError("the chunks of the dask array have unknown sizes: call compute_chunk_sizes() on it")
        self.settings = settings
        self.requests = Requests()
        self.graph: Mapping[Any, Any] = dict(array.__dask_graph__())
        self.name = array.name
        self.starts = tuple(_starts(sizes) for sizes in array.chunks)
        self.is_even = all({*sizes[:-1]} <= {max(sizes)} for sizes in array.chunks)
        chunk = tuple(max(1, *sizes) for sizes in array.chunks)
        self.level = Level("data", array.shape, array.dtype, chunk, chunk)
        self.dtype = self.level.native

    def read(self, box: Box, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the pixels of `box`, in native byte order; each chunk that it touches is computed once."""
        pixels = np.empty(shape_of(box), self.dtype)
        for part, chunk in self.chunks(box):
            pixels[slices(part, corner(box))] = chunk
            del chunk
        return pixels

    def lent(self, box: Box) -> NDArray[Any] | None:
        """Return the pixels of `box`, in native byte order, where one chunk holds them."""
        met = self._met(box)
        return self._computed(box, met[0]) if len(met) == 1 else None

    def chunks(self, box: Box) -> Iterator[tuple[Box, NDArray[Any]]]:
        """Yield the pixels of `box` chunk by chunk, in native byte order; none is kept while the next is computed."""
        for index in self._met(box):
            where = tuple((s[i], s[i + 1]) for s, i in zip(self.starts, index, strict=True))
            part = intersect(box, where)
            yield part, self._computed(part, index)

    def _met(self, box: Box) -> list[Shape]:
        """Return the index of each chunk that `box` meets."""
        return list(product(*(_touched(s, *ab) for s, ab in zip(self.starts, box, strict=True))))

    def _computed(self, part: Box, index: Shape) -> NDArray[Any]:
        """Return the pixels of a `part` of a chunk."""
        first = [s[i] for s, i in zip(self.starts, index, strict=True)]
        pixels = np.asarray(self._compute((self.name, *index)))[slices(part, first)]
        return pixels.astype(self.dtype, copy=False)

    def _compute(self, key: tuple[Any, ...]) -> Any:
        from dask.local import get_sync
        from dask.optimization import cull

        graph, _ = cull(self.graph, [key])
        # Callbacks are for what the caller computes: a progress bar counts his tasks, not these.
        return get_sync(graph, key, callbacks=())


def _starts(sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(n) for n in np.cumsum([0, *sizes]))


def _touched(starts: Sequence[int], start: int, stop: int) -> list[int]:
    return [i for i, (a, b) in enumerate(pairwise(starts)) if a < stop and start < b]


def is_dask(data: object) -> bool:
    """Say whether `data` is a dask array."""
    return type(data).__module__.startswith("dask.") and hasattr(data, "__dask_graph__")
