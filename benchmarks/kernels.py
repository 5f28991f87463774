"""Methods in memory, on one core: `python -m benchmarks.kernels`. GB of source per second, the best of each round.

Warm, on arrays that mostly fit the processor's cache; in "times ours" above 1 is faster than ours. "plain numpy" is the
other path of ours, for arrays too small for compiled loops to pay. The others do what they have:

- tensorstore its downsample of an array in memory; for nearest its stride, which takes another pixel of the window;
- tinybrain averaging and mode, of arrays in Fortran order, which it is made for, in windows of 2x2 and 2x2x2; it rounds
  and breaks ties in its own way;
- scikit-image `block_reduce`, whose mean is a float64 array.

Noise is uint in [0, 200); labels are boxes of 19 pixels per axis.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import Record, parser_of
from ziggurat import kernels
from ziggurat.boxes import of_shape
from ziggurat.geometry import Edges, Stretch, Window

DTYPES = ("uint8", "uint16", "uint32", "float32")
WINDOWS = ("2x2", "2x2x2")
IN_TENSORSTORE = {"mean": "mean", "median": "median", "mode": "mode", "min": "min", "max": "max", "nearest": "stride"}
IN_SCIKIT_IMAGE = {"mean": np.mean, "median": np.median, "min": np.min, "max": np.max}
BUDGET_S = 0.05

type Array = NDArray[Any]
type Work = Callable[[], object]


class Case(NamedTuple):
    """One method on one kind of array."""

    method: str
    window: str
    dtype: str
    content: str

    @property
    def labels(self) -> dict[str, str]:
        """How the table calls it."""
        return self._asdict()


def main(arguments: Sequence[str]) -> None:
    """Measure the methods, dtypes and windows asked for."""
    parser = parser_of("kernels", __doc__, size="8MiB", repeat=5)
    parser.add_argument("--method", nargs="+", choices=kernels.METHODS, default=[*IN_TENSORSTORE])
    parser.add_argument("--contender", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--dtype", nargs="+", default=list(DTYPES), help="any, '>u2' too")
    parser.add_argument("--window", nargs="+", default=list(WINDOWS), help="'1x2x2', '3x3', 'stretch' too")
    options = parser.parse_args(arguments)
    record = Record("kernels", options, arguments, ["tensorstore", "tinybrain", "scikit-image"])
    record.content["chart"] = {"dtype": options.dtype[len(options.dtype) // 2]}  # All of them would be a yard.
    for case in record.within(_cases(options), " ".join):
        source = source_of(case, options.size)
        for name, (runs, error) in _turns(case, source, options).items():
            record.add({**case.labels, "contender": name}, runs, error=error)
    record.close()


def _cases(options: Any) -> Iterator[Case]:
    for method in options.method:
        for window in options.window:
            for dtype in options.dtype:
                for content in ("noise", "labels") if method == "mode" else ("noise",):
                    yield Case(method, window, dtype, content)


def source_of(case: Case, size_bytes: int) -> Array:
    """Return an array of the size, as good as cubic."""
    dtype, ndim = np.dtype(case.dtype), case.window.count("x") + 1 if "x" in case.window else 2
    n = round((size_bytes / dtype.itemsize) ** (1 / ndim)) // 4 * 4
    rng = np.random.default_rng(0)
    if case.content == "noise":
        return rng.integers(0, 200, (n,) * ndim).astype(dtype)
    boxes = rng.integers(0, 200, (-(-n // 19),) * ndim).astype(dtype)
    return np.kron(boxes, np.ones((19,) * ndim, dtype))[(slice(n),) * ndim].copy()


def _turns(case: Case, source: Array, options: Any) -> dict[str, tuple[list[dict[str, float]], str | None]]:
    """Return GB/s of every contender and round, and the errors of those that cannot."""
    found: dict[str, tuple[list[dict[str, float]], str | None]] = {}
    works: dict[str, Work] = {}
    for name in options.contender:
        try:
            work = CONTENDERS[name](case, source)
            if work is not None:
                work()  # Compiles.
                works[name], found[name] = work, ([], None)
        except Exception as e:
            found[name] = ([], f"{type(e).__name__}: {e}")
    for _ in range(options.repeat):
        for name, work in works.items():
            found[name][0].append({"gb_per_s": source.nbytes / _best_s(work) / 1e9})
    return found


def _best_s(work: Work) -> float:
    """Return the shortest of the runs that the budget holds, two at least."""
    times: list[float] = []
    while len(times) < 2 or sum(times) < BUDGET_S:
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def _edges(shape: tuple[int, ...], window: str) -> Edges:
    if window == "stretch":
        return tuple(Stretch(n, n * 2 // 5) for n in shape)
    return tuple(Window(n, n // int(f), int(f)) for n, f in zip(shape, window.split("x"), strict=True))


def _ours(case: Case, source: Array, pays_bytes: int = -1) -> Work:
    edges = _edges(source.shape, case.window)
    out = np.empty([e.m for e in edges], dtype=source.dtype)

    def work() -> None:
        kernels._NUMBA_PAYS_BYTES = pays_bytes
        kernels.reduce(source, (0,) * source.ndim, edges, of_shape(out.shape), out, case.method)

    return work


def _plain(case: Case, source: Array) -> Work:
    return _ours(case, source, sys.maxsize)


def _tensorstore(case: Case, source: Array) -> Work | None:
    if case.window == "stretch" or case.method not in IN_TENSORSTORE:
        return None
    import tensorstore as ts

    one = ts.Context({"data_copy_concurrency": {"limit": 1}})
    factors = list(map(int, case.window.split("x")))
    half = ts.downsample(ts.array(source, context=one), factors, IN_TENSORSTORE[case.method])
    return lambda: half.read().result()


def _tinybrain(case: Case, source: Array) -> Work | None:
    if case.method not in ("mean", "mode") or case.window not in WINDOWS:
        return None
    import tinybrain

    volume = np.asfortranarray(source if source.ndim == 3 else source[..., None])
    factor = (2, 2, 2 if source.ndim == 3 else 1)
    if case.method == "mean":
        return lambda: tinybrain.downsample_with_averaging(volume, factor)
    return lambda: tinybrain.downsample_segmentation(volume, factor)


def _scikit_image(case: Case, source: Array) -> Work | None:
    if case.method not in IN_SCIKIT_IMAGE or case.window == "stretch":
        return None
    from skimage.measure import block_reduce

    block = tuple(map(int, case.window.split("x")))
    return lambda: block_reduce(source, block, IN_SCIKIT_IMAGE[case.method])


CONTENDERS: dict[str, Callable[[Case, Array], Work | None]] = {
    "ours": _ours,
    "ours, plain numpy": _plain,
    "tensorstore": _tensorstore,
    "tinybrain": _tinybrain,
    "scikit-image": _scikit_image,
}


if __name__ == "__main__":
    main(sys.argv[1:])
