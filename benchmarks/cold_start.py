"""What a user waits for the first time: `python -m benchmarks.cold_start`.

Every line is a fresh process. "first" has an empty numba cache, "later" the cache that the first one left; `import
numpy` is what any program in this field waits for.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.images import Geometry, make_image
from benchmarks.processes import in_fresh_process

IMAGE = Geometry("small", (512, 512), (128, 128), None, (2, 2))
N_COARSER = 2
REBUILD = """
import json, sys, time
begin = time.perf_counter()
import ziggurat
imported = time.perf_counter()
ziggurat.consolidate(sys.argv[1], method=sys.argv[2])
print(json.dumps({"import": imported - begin, "call": time.perf_counter() - imported}))
"""
IMPORT_NUMPY = "import numpy; print('{}')"


def main(arguments: Sequence[str]) -> None:
    """Print the seconds of a first and of later processes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cold_start", description=__doc__)
    parser.add_argument("--method", default="mean")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="later processes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ziggurat-cold-") as temporary:
        image, cache = Path(temporary) / "image.zarr", {"NUMBA_CACHE_DIR": str(Path(temporary) / "numba")}
        make_image(image, IMAGE, "zstd", N_COARSER)
        print(f"{'':<28}{'process, s':>12}{'import, s':>12}{'call, s':>12}")
        for _ in range(options.repeat):
            _report("import numpy", {}, "-c", IMPORT_NUMPY)
        for name in ["first, empty numba cache", *["later"] * options.repeat]:
            _report(name, cache, "-c", REBUILD, str(image), options.method)


def _report(name: str, environment: dict[str, str], *arguments: str) -> None:
    begin = time.perf_counter()
    inside = in_fresh_process(*arguments, environment=environment)
    parts = [f"{inside[key]:.2f}" if key in inside else "-" for key in ("import", "call")]
    print(f"{name:<28}{time.perf_counter() - begin:>12.2f}{parts[0]:>12}{parts[1]:>12}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
