"""Label pyramids hold no id that the finest level does not hold."""

import numpy as np
import pytest
from helpers import ome

import ziggurat as zg

LABELS = np.array([[0, 0, 7, 7], [0, 4, 7, 7], [9, 9, 4, 0], [9, 9, 0, 0]], "uint16")


def attributes(way, n_levels):
    entry = ome(way.format, "yx", [(2**k, 2**k) for k in range(n_levels)])
    (entry if way.format == "v2" else entry["ome"])["image-label"] = {}
    return entry


def test_the_default_is_the_majority(way):
    group = way.image(LABELS, (2, 2), (1, 1), chunks=(2, 2), attributes=attributes(way, 3))
    assert way.rebuild(group).method == "mode"
    assert group["1"][...].tolist() == [[0, 7], [9, 0]]
    assert group["2"][...].tolist() == [[0]]


@pytest.mark.parametrize("how", ["metadata", "group", "arrays"])
def test_what_lies_under_labels_is_a_label_image(few_ways, how):
    scales = ome(few_ways.format, "yx", [(1, 1), (2, 2)]) if how == "metadata" else None
    group = few_ways.image(LABELS, (2, 2), chunks=(2, 2), path="labels/cells", attributes=scales)
    target = {"metadata": group, "arrays": [group["0"], group["1"]]}.get(how) or zg.open_pyramid(group, ["0", "1"])
    assert few_ways.rebuild(target).method == "mode"
    assert group["1"][...].tolist() == [[0, 7], [9, 0]]


@pytest.mark.parametrize(
    ("method", "rows"), [("nearest", [[4, 7], [9, 0]]), ("stride", [[0, 7], [9, 4]]), ("mean", [[1, 7], [9, 1]])]
)
def test_another_method_is_a_choice(few_ways, method, rows):
    group = few_ways.image(LABELS, (2, 2), chunks=(2, 2), attributes=attributes(few_ways, 2))
    few_ways.rebuild(group, method=method)
    assert group["1"][...].tolist() == rows


@pytest.mark.parametrize("method", ["auto", "mode", "nearest", "stride", "median", "min", "max"])
def test_no_id_is_invented_down_to_one_pixel(few_ways, method):
    source = np.random.default_rng(10).choice([0, 3, 1000, 70000], (64, 64)).astype("int32")
    shapes = [(n, n) for n in (32, 16, 8, 4, 2, 1)]
    group = few_ways.image(source, *shapes, chunks=(16, 16), attributes=attributes(few_ways, 7))
    few_ways.rebuild(group, method=method)
    for k in range(1, 7):
        assert group[str(k)].dtype == "int32"
        assert set(np.unique(group[str(k)][...])) <= {0, 3, 1000, 70000}
    assert len(np.unique(group["1"][...])) == 4
