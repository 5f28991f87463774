"""New levels are placed by the centre of their grid, whatever the method samples; existing transforms stay."""

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import ziggurat as zg

SCALES = [0.5, 1.0, 2.0, 4.0, 8.0]
SHIFTS = [0.0, 0.25, 0.75, 1.75, 3.75]


def transforms(group):
    attributes = group.attrs.asdict()
    entry = attributes.get("ome", attributes)["multiscales"][0]
    return [d["coordinateTransformations"] for d in entry["datasets"]]


@pytest.mark.parametrize("method", ["mean", "nearest"])
@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("way", ["build", "add_levels"])
def test_half_pixels(version, method, way):
    store = MemoryStore()
    options = {"scale": (0.5, 0.5), "translation": (10.0, 20.0), "chunks": (16, 16), "method": method}
    pixels = np.zeros((64, 64), "uint16")
    if way == "build":
        zg.build(pixels, store, version=version, n_levels=5, **options)
    else:
        zg.build(pixels, store, version=version, n_levels=1, **options)
        zg.add_levels(store, n_levels=5)
    assert transforms(zarr.open_group(store)) == [
        [
            {"type": "scale", "scale": [scale, scale]},
            {"type": "translation", "translation": [10.0 + shift, 20.0 + shift]},
        ]
        for scale, shift in zip(SCALES, SHIFTS, strict=True)
    ]


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_time_and_channels_stay_where_they_are(version):
    store = MemoryStore()
    zg.build(np.zeros((2, 3, 600, 64), "u1"), store, axes="tcyx", scale=(7, 1, 0.5, 0.5), version=version)
    assert transforms(zarr.open_group(store))[1] == [
        {"type": "scale", "scale": [7.0, 1.0, 1.0, 0.5]},
        {"type": "translation", "translation": [0.0, 0.0, 0.25, 0.0]},
    ]


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_what_is_there_is_not_altered(version):
    store = MemoryStore()
    zg.build(np.zeros((64, 64), "u1"), store, n_levels=3, version=version)
    group = zarr.open_group(store)
    attributes = group.attrs.asdict()
    for dataset in attributes.get("ome", attributes)["multiscales"][0]["datasets"]:
        dataset["coordinateTransformations"] = dataset["coordinateTransformations"][:1]
    group.attrs.put(attributes)
    zg.consolidate(store)
    assert zarr.open_group(store).attrs.asdict() == attributes
