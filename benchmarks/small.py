"""Small work, where what is around the pixels counts: `python -m benchmarks.small`.

Milliseconds, each repeat in the same warm process but for the imports: opening the pyramid, planning, and running,
where "around" is what a run with one thread takes beyond the time inside its tasks (dask, records, locks). A rebuild of
64 MiB (planes of 4096 x 4096 in chunks of 1024, blosc-lz4), in memory and by dask, and a rebuild of one region of
16 x 16 pixels. Imports are fresh processes, in turns; `ziggurat` beyond the other is what it adds.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.images import GEOMETRIES, make_image
from benchmarks.processes import ROOT
from benchmarks.record import Record, parser_of

IMPORTS = {"import zarr, numpy": "import zarr, numpy", "import ziggurat, zarr, numpy": "import ziggurat, zarr, numpy"}
REGION = ((0, 1), (1000, 1016), (2000, 2016))
WORK = {
    "64 MiB, in memory": {"mode": "numpy"},
    "64 MiB, dask": {"mode": "dask"},
    "one region": {"regions": [REGION]},
    "one region, dask": {"regions": [REGION], "mode": "dask"},
}


def main(arguments: Sequence[str]) -> None:
    """Measure imports, then each kind of work."""
    options = parser_of("small", __doc__, size="64MiB", repeat=7).parse_args(arguments)
    record = Record("small", options, arguments)
    _imports(record, options.repeat)
    with tempfile.TemporaryDirectory(prefix="ziggurat-bench-", dir=options.directory) as temporary:
        image = Path(temporary) / "image.zarr"
        make_image(image, GEOMETRIES[0].at_most(options.size), "blosc-lz4")
        for name, given in record.within(WORK.items(), lambda item: item[0]):
            _work(image, given)
            runs = [_work(image, given) for _ in range(options.repeat)]
            for step in runs[0]:
                record.add({"work": name, "step": step}, [{"ms": run[step]} for run in runs])
    record.close()


def _imports(record: Record, repeat: int) -> None:
    runs: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for turn in range(repeat + 1):
        for name, code in IMPORTS.items():
            ms = _ms(lambda code=code: subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True))[0]  # type: ignore[misc]
            if turn:  # The first one may read from the disk.
                runs[name].append(ms)
    for name, found in runs.items():
        record.add({"work": "process", "step": name}, [{"ms": ms} for ms in found])


def _work(image: Path, given: dict[str, Any]) -> dict[str, float]:
    """Return milliseconds by step."""
    import dask

    import ziggurat as zg

    with dask.config.set(scheduler="threads", num_workers=1):
        open_ms, pyramid = _ms(lambda: zg.open_pyramid(image))
        plan_ms, plan = _ms(lambda: zg.plan(pyramid, method="linear", **given))
        run_ms, report = _ms(lambda: plan.run(progress=False))
    around_ms = run_ms - 1000 * sum(stage.task_s for stage in report.stages)
    return {"open": open_ms, "plan": plan_ms, "around": around_ms, "run": run_ms, "in all": open_ms + plan_ms + run_ms}


def _ms(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = work()
    return 1000 * (time.perf_counter() - start), found


if __name__ == "__main__":
    main(sys.argv[1:])
