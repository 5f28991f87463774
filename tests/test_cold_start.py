"""What a fresh process loads to rebuild a plain image on a local disk: what it does not need, nobody waits for."""

import json
import os
import subprocess
import sys

import numpy as np

import ziggurat as zg

REBUILD = """
import json, sys
import ziggurat
ziggurat.consolidate(sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""
UNNEEDED = {
    *("yaozarrs", "dask", "distributed", "cloudpickle", "numba", "xarray", "pandas", "s3fs", "obstore", "aiohttp"),
    *("tenacity", "rich", "typer", "matplotlib", "skimage", "tifffile"),
}


def test_a_small_local_image_needs_no_library_for_anything_else(tmp_path):
    zg.build(np.ones((64, 64), np.uint16), tmp_path / "image.zarr", axes="yx")
    command = [sys.executable, "-c", REBUILD, str(tmp_path / "image.zarr")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not UNNEEDED & set(json.loads(done.stdout))


def test_defaults_need_no_validator(tmp_path):
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path), "ZIGGURAT_CONFIG_PATH": ""}
    code = "import ziggurat; print(type(ziggurat.get_config()).__pydantic_complete__)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **home})
    assert done.stdout == "False\n"
