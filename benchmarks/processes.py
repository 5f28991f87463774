"""Fresh processes, one after the other, each of which prints one JSON object."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 1800
# Else glibc keeps 10 to 40 MiB of freed blocks per thread, and memory is measured on its behalf. It makes every
# allocation a system call: for measuring memory only, never time.
MEMORY_ENVIRONMENT = {"MALLOC_MMAP_THRESHOLD_": "131072"}


def in_fresh_process(*arguments: str, environment: dict[str, str] | None = None) -> Any:
    """Run `python ARGUMENTS` from the root of the repository; the last line it prints is the answer."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=TIMEOUT_S,
    )
    return json.loads(done.stdout.splitlines()[-1])
