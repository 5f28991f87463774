"""A path is what it says, whatever characters it holds; a file:// URL is decoded once."""

import numpy as np
import pytest
import zarr
from helpers import MODES, Way, make_arrays, ome

import ziggurat as zg
from ziggurat.errors import PyramidNotFoundError
from ziggurat.testing import tree_hash

NAMES = ["my data ü", "literal%20pct", "hash#1", "q?x"]
SOURCE = np.arange(16, dtype="uint8").reshape(4, 4)


@pytest.mark.parametrize("version", [3, 2])
@pytest.mark.parametrize("form", ["str", "Path", "file URL"])
@pytest.mark.parametrize("name", NAMES)
def test_levels_lie_under_exactly_that_directory(tmp_path, name, form, version):
    root = tmp_path / name
    attributes = ome("v2" if version == 2 else "v3", "yx", [(1, 1), (2, 2)])
    group = zarr.create_group(zarr.storage.LocalStore(root), zarr_format=version, attributes=attributes)
    make_arrays(group, SOURCE, [(2, 2)], chunks=(2, 2))
    where = {"str": str(root), "Path": root, "file URL": root.as_uri()}[form]
    chunk = root / "1" / ("0.0" if version == 2 else "c/0/0")
    for mode in MODES:
        chunk.unlink(missing_ok=True)
        Way("", "", mode, tmp_path).rebuild(where, method="max")
        assert chunk.is_file()
        assert [p.name for p in tmp_path.iterdir()] == [name]
        assert group["1"][...].tolist() == [[5, 7], [13, 15]]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_there_is_not_created(tmp_path, name):
    (tmp_path / "literal pct").mkdir()
    for where in (str(tmp_path / name), tmp_path / name, (tmp_path / name).as_uri()):
        with pytest.raises(PyramidNotFoundError):
            zg.consolidate(where)
    assert tree_hash(tmp_path) == {}
    assert [p.name for p in tmp_path.iterdir()] == ["literal pct"]
