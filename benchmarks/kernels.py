"""GB of source per second on one core: method x dtype x window, warm, compiled path and plain numpy.

python benchmarks/kernels.py [method ...]
"""

import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ziggurat import kernels
from ziggurat.boxes import of_shape
from ziggurat.geometry import Edges, Stretch, Window

DTYPES = ("uint8", "uint16", "int16", "uint32", "uint64", "float32", "float64", ">u2")
SOURCE_BYTES = 8 * 2**20


def source_of(dtype: np.dtype[np.generic], ndim: int, content: str) -> NDArray[np.generic]:
    """Return SOURCE_BYTES of noise, or of labels: boxes of 19 pixels per axis."""
    n = round((SOURCE_BYTES / dtype.itemsize) ** (1 / ndim)) // 4 * 4
    rng = np.random.default_rng(0)
    if content == "noise":
        return rng.integers(0, 200, (n,) * ndim).astype(dtype)
    blocks = rng.integers(0, 200, (-(-n // 19),) * ndim).astype(dtype)
    return np.kron(blocks, np.ones((19,) * ndim, dtype))[(slice(n),) * ndim].copy()


def edges_of(shape: tuple[int, ...], window: str) -> Edges:
    """Return windows of factor 2 to 4, or a stretch to 0.4 of the size."""
    if window == "stretch":
        return tuple(Stretch(n, n * 2 // 5) for n in shape)
    return tuple(Window(n, n // int(f), int(f)) for n, f in zip(shape, window.split("x"), strict=True))


def best_of(work: Callable[[], None], n: int = 5) -> float:
    """Return the shortest of `n` runs, in seconds."""
    times = []
    for _ in range(n):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def rate(source: NDArray[np.generic], edges: Edges, method: str) -> float:
    """Return GB of source per second."""
    out = np.empty([e.m for e in edges], dtype=source.dtype)
    box = of_shape(out.shape)

    def work() -> None:
        kernels.reduce(source, (0,) * source.ndim, edges, box, out, method)

    work()
    return source.nbytes / best_of(work) / 1e9


def main(methods: list[str]) -> None:
    """Print one line per method, content and window, one column per dtype; compiled / numpy."""
    print(f"{'method':9}{'content':8}{'window':8}" + "".join(f"{dtype:>14}" for dtype in DTYPES))
    for method in methods:
        for window in ("2x2", "2x2x2", "1x2x2", "3x3", "stretch"):
            for content in ("noise", "labels") if method == "mode" else ("noise",):
                cells = []
                for name in DTYPES:
                    source = source_of(np.dtype(name), window.count("x") + 1 if "x" in window else 2, content)
                    rates = []
                    for pays in (-1, sys.maxsize):
                        kernels._NUMBA_PAYS_BYTES = pays
                        rates.append(rate(source, edges_of(source.shape, window), method))
                    cells.append(f"{rates[0]:7.2f} /{rates[1]:5.2f}")
                print(f"{method:9}{content:8}{window:8}" + "".join(f"{cell:>14}" for cell in cells), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(kernels.METHODS))
