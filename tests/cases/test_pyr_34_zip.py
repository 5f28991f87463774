"""A zip archive is built once, each name in it once; a rebuild is refused."""

import zipfile

import dask
import numpy as np
import pytest
import zarr
from helpers import FORMATS, MODES, Way, threads
from zarr.storage import ZipStore

from ziggurat.errors import ReadOnlyError, StoreError, ZigguratError

SOURCE = np.full((16, 16), 9, "uint16")


@pytest.fixture(params=FORMATS)
def archive(request, tmp_path):
    """Make an archive with all metadata and level 0 in it, still open."""
    way = Way(request.param, "local", "numpy", tmp_path)
    store = ZipStore(tmp_path / "image.zip", mode="w")
    group = way.image(SOURCE, (8, 8), (4, 4), chunks=(4, 4), store=store)
    yield group
    store.close()


@pytest.mark.parametrize("mode", MODES)
def test_every_name_occurs_once(archive, tmp_path, mode):
    way = Way("", "", mode, tmp_path)
    with threads(8):
        way.rebuild([archive[name] for name in "012"])
    archive.store.close()
    names = zipfile.ZipFile(tmp_path / "image.zip").namelist()
    assert len(names) == len(set(names))
    with zarr.open_group(ZipStore(tmp_path / "image.zip", mode="r"), mode="r").store as store:
        for path, n in (("1", 8), ("2", 4)):
            assert zarr.open_array(store, path=path, mode="r")[...].tolist() == [[9] * n] * n


@pytest.mark.parametrize("mode", MODES)
def test_a_rebuild_is_refused(archive, tmp_path, mode):
    way = Way("", "", mode, tmp_path)
    way.rebuild([archive[name] for name in "012"])
    archive.store.close()
    path = tmp_path / "image.zip"
    before = path.read_bytes()
    with ZipStore(path, mode="a") as store:
        group = zarr.open_group(store, mode="r+")
        with pytest.raises(StoreError, match=r"level '1' .*zip"):
            way.rebuild([group[name] for name in "012"])
    with ZipStore(path, mode="r") as store:
        group = zarr.open_group(store, mode="r")
        with pytest.raises(ReadOnlyError):
            way.rebuild([group[name] for name in "012"])
    assert path.read_bytes() == before


def test_process_workers_are_refused(archive, tmp_path):
    levels = [archive[name] for name in "012"]
    with dask.config.set(scheduler="processes", num_workers=2), pytest.raises(ZigguratError, match="zip"):
        Way("", "", "dask-units", tmp_path).rebuild(levels)
    archive.store.close()
    names = zipfile.ZipFile(tmp_path / "image.zip").namelist()
    assert len(names) == len(set(names))
    assert any(name.startswith("0/c/0") or name == "0/0.0" for name in names)
