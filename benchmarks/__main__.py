"""Runs all benchmarks one after the other and composes RESULTS.md: `python -m benchmarks`."""

import argparse
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks import results
from benchmarks.pieces import PIECES, PRINTING, Piece
from benchmarks.processes import ROOT, stop

# A piece begins nothing new when its time is up; what it is at may take as long again.
PATIENCE = 2.0


def main(arguments: Sequence[str]) -> None:
    """Run every piece within its time, whatever becomes of the others."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(PIECES), default=list(PIECES), metavar="PIECE")
    parser.add_argument("--smoke", action="store_true", help="smallest sizes: whether it runs, not how fast it is")
    parser.add_argument("--list", action="store_true", help="print the command lines and run nothing")
    parser.add_argument("--minutes", type=float, default=1e6, metavar="M", help="begin no piece after that long")
    options = parser.parse_args(arguments)
    until = time.monotonic() + 60 * options.minutes
    for name in options.only:
        if time.monotonic() > until:
            print(f"no time left for {name}")
            continue
        command = _command(PIECES[name], options.smoke)
        print(shlex.join(["python", *command]), flush=True)
        if not options.list:
            _run(command, PIECES[name].seconds * PATIENCE)
    if not options.list:
        results.main([])


def _command(piece: Piece, smoke: bool) -> list[str]:
    options = shlex.split(piece.smoke if smoke else piece.options)
    limit = ["--seconds", str(piece.seconds)]
    if piece.module in PRINTING:
        return ["-m", "benchmarks.collect", *limit, piece.module, *options]
    return ["-m", f"benchmarks.{piece.module}", *limit, *options]


def _run(command: Sequence[str], seconds: float) -> None:
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        stop(process)
        print(f"stopped after {seconds:.0f} s; what was measured before is kept", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
