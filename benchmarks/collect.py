"""Keeps what a benchmark prints as its record: `python -m benchmarks.collect MODULE [OPTION ...]`."""

import argparse
import signal
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.processes import ROOT
from benchmarks.record import Record


def main(arguments: Sequence[str]) -> None:
    """Run `python -m benchmarks.MODULE OPTION ...` and write `benchmarks/results/MODULE.json`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.collect", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0, metavar="S", help="stop it after that long")
    parser.add_argument("module")
    parser.add_argument("options", nargs=argparse.REMAINDER)
    given = parser.parse_args(arguments)
    options = argparse.Namespace(name=given.module, seconds=given.seconds)
    record = Record(given.module, options, given.options)
    command = [sys.executable, "-m", f"benchmarks.{given.module}", *given.options]
    done = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        text, _ = done.communicate(timeout=given.seconds)
    except subprocess.TimeoutExpired:
        done.send_signal(signal.SIGINT)  # It removes its images on the way out.
        text, _ = done.communicate()
        record.content["missing"] = [f"what comes after the last line: it was stopped after {given.seconds:.0f} s"]
    else:
        record.content["missing"] = [f"the rest: it failed with {done.returncode}"] if done.returncode else []
    record.content["text"] = text
    record.save()
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
