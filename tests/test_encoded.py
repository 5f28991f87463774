"""Chunks that a compiled loop reads, decodes and reduces: the same bytes, errors and counts as without it."""

from contextlib import contextmanager
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

import ziggurat as zg
from ziggurat import encoded, kernels, stages
from ziggurat.blocks import Block
from ziggurat.codecs import ChunkCodec

pytestmark = pytest.mark.skipif(
    any(encoded._calls(coder) is None for coder in (None, encoded.numcodecs.Blosc, encoded.numcodecs.Zstd)),
    reason="the codecs' C functions are not found here",
)


@pytest.fixture(autouse=True)
def from_the_first_byte_on(monkeypatch):
    """Let small images have what large ones have: compiled loops, several tasks, several levels per stage."""
    monkeypatch.setattr(kernels, "_NUMBA_PAYS_BYTES", -1)
    monkeypatch.setattr(stages, "MIN_BLOCKS", 1)
    with dask.config.set(scheduler="sync"):
        yield


@contextmanager
def in_python():
    """Let all chunks go the usual way."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ziggurat.direct.calls_of", lambda codec: None)
        yield


@contextmanager
def watched():
    """Count the chunks that the loop took, and those that Python decoded."""
    counts = {"taken": 0, "decoded": 0}
    take, decode = Block.take, ChunkCodec.decode

    def counted_take(block, stored):
        done = take(block, stored)
        counts["taken"] += sum(done)
        return done

    def counted_decode(codec, data, room):
        counts["decoded"] += 1
        return decode(codec, data, room)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Block, "take", counted_take)
        patched.setattr(ChunkCodec, "decode", counted_decode)
        yield counts


def objects(root):
    """Return the bytes of all files under `root` but for the bookkeeping."""
    files = {str(path.relative_to(root)): path for path in Path(root).rglob("*") if ".ziggurat" not in path.parts}
    return {key: path.read_bytes() for key, path in files.items() if path.is_file()}


# --- what the loop must leave to others


@pytest.mark.parametrize(("n", "m", "factor"), [(5, 3, 2), (3, 1, 4), (7, 2, 4), (35, 18, 2)])
def test_one_chunk_that_ends_inside_of_the_last_window(n, m, factor, tmp_path):
    def built(where):
        group = zarr.create_group(LocalStore(where))
        arrays = [group.create_array(str(k), shape=(s, s), chunks=(s, s), dtype="uint8") for k, s in enumerate((n, m))]
        arrays[0][...] = 1 + np.arange(n * n).reshape(n, n) % 250
        zg.consolidate(arrays, method="mean", mode="dask", factors=factor)
        return objects(where)

    found = built(tmp_path / "loop")
    with in_python():
        assert found == built(tmp_path / "python")
