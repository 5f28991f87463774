"""What one piece of work costs a process, and those that work for it: wall time, CPU time and memory."""

import gc
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict


class Cost(TypedDict):
    """Seconds and bytes; `growth_bytes` is the peak above what was resident before."""

    wall_s: float
    cpu_s: float
    growth_bytes: int


def measure(work: Callable[[], object], pids: Sequence[int] = ()) -> Cost:
    """Run `work` once. Import and warm up what it needs before, or that is counted too.

    CPU time and growth are sums over this process and those of `pids`.
    """
    everyone = (os.getpid(), *pids)
    gc.collect()
    # The kernel's high-water mark still remembers imports and compilers; 5 resets it (Linux).
    for pid in everyone:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    resident = sum(resident_bytes("VmRSS", pid) for pid in everyone)
    wall, cpu = time.perf_counter(), _cpu_s(everyone)
    work()
    wall, cpu = time.perf_counter() - wall, _cpu_s(everyone) - cpu
    return Cost(wall_s=wall, cpu_s=cpu, growth_bytes=sum(resident_bytes("VmHWM", pid) for pid in everyone) - resident)


def resident_bytes(key: str, pid: int | str = "self") -> int:
    """Return what /proc/PID/status says: VmRSS is resident now, VmHWM the most since it was reset."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/{pid}/status has no {key}: these benchmarks run on Linux")


def _cpu_s(pids: Sequence[int]) -> float:
    # The clock of this process is exact, that of others counts hundredths of a second.
    return sum(_ticks(pid) for pid in pids) / os.sysconf("SC_CLK_TCK") if len(pids) > 1 else time.process_time()


def _ticks(pid: int) -> int:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return int(user) + int(system)
