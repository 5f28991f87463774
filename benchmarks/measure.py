"""What one piece of work costs this process: wall time, CPU time and memory."""

import gc
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict


class Cost(TypedDict):
    """Seconds and bytes; `growth_bytes` is the peak above what was resident before."""

    wall_s: float
    cpu_s: float
    growth_bytes: int


def measure(work: Callable[[], object]) -> Cost:
    """Run `work` once. Import and warm up what it needs before, or that is counted too."""
    gc.collect()
    # The kernel's high-water mark still remembers imports and compilers; 5 resets it (Linux).
    Path("/proc/self/clear_refs").write_text("5")
    resident, wall, cpu = _status_bytes("VmRSS"), time.perf_counter(), _cpu_s()
    work()
    wall, cpu = time.perf_counter() - wall, _cpu_s() - cpu
    return Cost(wall_s=wall, cpu_s=cpu, growth_bytes=_status_bytes("VmHWM") - resident)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}: these benchmarks run on Linux")
