"""Ways to build the same image by orders and block by block, and to see that both give the same."""

from contextlib import contextmanager
from pathlib import Path

import pytest
from zarr.codecs import BloscCodec, ZstdCodec

from ziggurat.cascade import Walk
from ziggurat.climbing import _Climb
from ziggurat.orders import Alike, Orders

CODECS = {
    "none": [],
    "blosc": [BloscCodec(cname="lz4", clevel=5)],
    "blosc-zstd": [BloscCodec(cname="zstd", clevel=1, shuffle="bitshuffle")],
    "zstd": [ZstdCodec(level=1)],
}


@contextmanager
def in_python():
    """Let all blocks be built one by one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ziggurat.tasks.walk_of", Walk)
        yield


@contextmanager
def watched():
    """Count calls of compiled code, trees that followed the orders of another, and what Python did instead."""
    counts = {"parts": 0, "followed": 0, "instead": 0}

    def counted(name, done):
        def counting(*given):
            counts[name] += 1
            return done(*given)

        return counting

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_Climb, "_follow", counted("parts", _Climb._follow))
        # Once more for each that is kept.
        patched.setattr(Orders, "moved", counted("followed", Orders.moved))
        patched.setattr(Alike, "keep", counted("kept", Alike.keep))
        patched.setattr(_Climb, "_take", counted("instead", _Climb._take))
        patched.setattr(_Climb, "_write", counted("instead", _Climb._write))
        counts["kept"] = 0
        yield counts
    counts["followed"] -= counts["kept"]


def objects(root):
    """Return the bytes of all files under `root` but for the bookkeeping."""
    files = {str(path.relative_to(root)): path for path in Path(root).rglob("*") if ".ziggurat" not in path.parts}
    return {key: path.read_bytes() for key, path in files.items() if path.is_file()}


def counts_of(report):
    """Return what a report counts; of passes that overlap, one may count the requests of another."""
    levels = [(level.n_units, level.bytes_written, level.n_gets, level.n_sets) for level in report.levels]
    n_gets, n_sets = (sum(getattr(stage, name) for stage in report.stages) for name in ("n_gets", "n_sets"))
    return [stage.bytes_read for stage in report.stages], levels, n_gets, n_sets
