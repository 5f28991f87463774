"""Coarser levels of version 2 keep their dimension separator."""

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr
from helpers import MODES, Way, make_arrays

READ = "import sys, zarr; print(zarr.open_array(sys.argv[1], path='1', mode='r')[...].tolist())"


@pytest.mark.parametrize("separator", ["/", "."])
@pytest.mark.parametrize("mode", MODES)
def test_chunks_lie_where_the_metadata_says(tmp_path, mode, separator):
    make_arrays(
        zarr.create_group(tmp_path, zarr_format=2),
        np.full((8, 8), 5, "uint16"),
        [(4, 4)],
        chunks=(2, 2),
        chunk_key_encoding={"name": "v2", "separator": separator},
    )
    metadata = (tmp_path / "1" / ".zarray").read_bytes()
    for _ in range(2):
        reopened = zarr.open_group(tmp_path, mode="r+")
        Way("v2", "local", mode, tmp_path).rebuild([reopened["0"], reopened["1"]])
        names = {p.relative_to(tmp_path / "1").as_posix() for p in (tmp_path / "1").rglob("*") if p.is_file()}
        chunks = {f"{y}{separator}{x}" for y in range(2) for x in range(2)}
        assert {name for name in names if not name.startswith(".")} == chunks
    assert (tmp_path / "1" / ".zarray").read_bytes() == metadata
    assert json.loads(metadata)["dimension_separator"] == separator
    done = subprocess.run([sys.executable, "-c", READ, tmp_path], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [[5] * 4] * 4
