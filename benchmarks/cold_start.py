"""What a user waits for the first time: `python -m benchmarks.cold_start`.

Every run is a fresh process that rebuilds an image of 512 x 512 pixels: seconds of the whole process, of `import
ziggurat` and of the call. "first" has an empty numba cache, "later" the cache that the first one left; `import zarr,
numpy` is what any program in this field waits for. All find their modules compiled to bytecode, as installing leaves
them.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.images import Geometry, make_image
from benchmarks.processes import in_fresh_process
from benchmarks.record import Record, parser_of

IMAGE = Geometry("small", (512, 512), (128, 128), None, (2, 2))
N_COARSER = 2
REBUILD = """
import json, sys, time
begin = time.perf_counter()
import ziggurat
imported = time.perf_counter()
ziggurat.consolidate(sys.argv[1], method=sys.argv[2])
print(json.dumps({"import_s": imported - begin, "call_s": time.perf_counter() - imported}))
"""
IMPORTS = ("import numpy", "import zarr, numpy")


def main(arguments: Sequence[str]) -> None:
    """Measure a first and later processes."""
    parser = parser_of("cold_start", __doc__)
    parser.add_argument("--method", nargs="+", default=["mean"])
    options = parser.parse_args(arguments)
    record = Record("cold_start", options, arguments)
    with tempfile.TemporaryDirectory(prefix="ziggurat-cold-", dir=options.directory) as temporary:
        image = Path(temporary) / "image.zarr"
        make_image(image, IMAGE, "zstd", N_COARSER)
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(Path(temporary) / "bytecode")}
        in_fresh_process("-c", REBUILD, str(image), "stride", environment=compiled)
        for imports in IMPORTS:
            runs = [_seconds(compiled, "-c", f"{imports}; print('{{}}')") for _ in range(options.repeat)]
            record.add({"process": imports, "method": "-"}, runs)
        for method in record.within(options.method):
            environment = {**compiled, "NUMBA_CACHE_DIR": str(Path(temporary) / f"numba-{method}")}
            for name, repeat in (("first, empty numba cache", 1), ("later", options.repeat)):
                runs = [_seconds(environment, "-c", REBUILD, str(image), method) for _ in range(repeat)]
                record.add({"process": name, "method": method}, runs)
    record.close()


def _seconds(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    begin = time.perf_counter()
    inside = in_fresh_process(*arguments, environment=environment)
    return {"wall_s": time.perf_counter() - begin, **inside}


if __name__ == "__main__":
    main(sys.argv[1:])
