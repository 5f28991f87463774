"""Fresh processes, one after the other, each of which prints one JSON object."""

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 1800
# Else glibc keeps 10 to 40 MiB of freed blocks per thread, and memory is measured on its behalf. It makes every
# allocation a system call: for measuring memory only, never time.
MEMORY_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "131072"}

type Run = Mapping[str, Any]


def in_fresh_process(
    *arguments: str, environment: dict[str, str] | None = None, timeout_s: float = TIMEOUT_S
) -> dict[str, Any]:
    """Run `python ARGUMENTS` from the root of the repository; the last line it prints is the answer."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=timeout_s,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def stop(process: subprocess.Popen[Any]) -> None:
    """Interrupt a benchmark, which then removes its images, and end it where it does not listen."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:  # A shell lets what it runs in the background ignore interrupts.
        process.kill()
        process.wait()


def answer(work: Callable[[], Run]) -> None:
    """Print what the work returns as one line of JSON, or `{"error": ...}` and the traceback on stderr."""
    try:
        found = dict(work())
    except Exception as e:
        traceback.print_exc()
        found = {"error": f"{type(e).__name__}: {' '.join(str(e).split())[:300]}"}
    print(json.dumps(found), flush=True)


def rotated(names: Sequence[str], by: int) -> list[str]:
    """Nobody always runs after the same neighbour, whose writes are still on their way to the disk."""
    by %= len(names)
    return [*names[by:], *names[:by]]


def take_turns(
    names: Sequence[str], repeat: int, run: Callable[[str, dict[str, str]], Run]
) -> dict[str, tuple[list[Run], str | None]]:
    """Let contenders take turns, `repeat` rounds, and return runs and error of each.

    Memory is measured in a round of its own before the others, in `MEMORY_ENVIRONMENT`; every run has that growth.
    Who fails once does not run again.
    """
    runs: dict[str, list[Run]] = {name: [] for name in names}
    errors: dict[str, str] = {}
    growth: dict[str, Any] = {}
    for turn in range(repeat + 1):
        for name in rotated(names, turn):
            if name in errors:
                continue
            found = _tried(run, name, {} if turn else MEMORY_ENVIRONMENT)
            if "error" in found:
                errors[name] = found["error"]
            elif turn == 0:
                growth[name] = found["growth_bytes"]
            else:
                runs[name].append({**found, "growth_bytes": growth[name]})
    return {name: ([] if name in errors else runs[name], errors.get(name)) for name in names}


def _tried(run: Callable[[str, dict[str, str]], Run], name: str, environment: dict[str, str]) -> Run:
    try:
        return run(name, environment)
    except subprocess.TimeoutExpired as e:
        return {"error": f"stopped after {e.timeout:.0f} s"}
    except (subprocess.CalledProcessError, IndexError, json.JSONDecodeError) as e:
        return {"error": f"the process ended without an answer ({e.__class__.__name__})"}
