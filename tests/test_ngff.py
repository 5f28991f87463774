import copy
from fractions import Fraction
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yaozarrs import v04, v05

from ziggurat.errors import MetadataError, ZigguratError
from ziggurat.listing import label_names
from ziggurat.ngff import Axis, Dataset, Image, level_transform, read_image, scale_ratio
from ziggurat.validation import is_plain

TCZYX = [
    {"name": "t", "type": "time", "unit": "second"},
    {"name": "c", "type": "channel"},
    {"name": "z", "type": "space", "unit": "micrometer"},
    {"name": "y", "type": "space", "unit": "micrometer"},
    {"name": "x", "type": "space", "unit": "micrometer"},
]
VERSIONS = ["0.4", "0.5"]
METHODS = ["nearest", "stride", "linear", "cubic", "gaussian", "mean", "median", "mode", "min", "max"]


def transforms(scale: Any, translation: Any = None) -> list[dict[str, Any]]:
    moved = [] if translation is None else [{"type": "translation", "translation": list(translation)}]
    return [{"type": "scale", "scale": list(scale)}, *moved]


def dataset(path: str, scale: Any, translation: Any = None) -> dict[str, Any]:
    return {"path": path, "coordinateTransformations": transforms(scale, translation)}


def multiscale(n_axes: int = 2, **changes: Any) -> dict[str, Any]:
    datasets = [dataset("0", [0.5] * n_axes), dataset("1", [1.0] * n_axes, [0.25] * n_axes)]
    return {"axes": copy.deepcopy(TCZYX[-n_axes:]), "datasets": datasets, **changes}


def attributes(version: str, *multiscales: Any, **more: Any) -> dict[str, Any]:
    if version == "0.4":
        entries = [{"version": "0.4", **m} if isinstance(m, dict) else m for m in multiscales]
        return {"multiscales": entries, **more}
    return {"ome": {"version": "0.5", "multiscales": list(multiscales), **more}}


def read(version: str = "0.4", where: str = "image.zarr", **changes: Any) -> Image:
    return read_image(attributes(version, multiscale(**changes)), where)


# --- what is plain


WORDS = [
    "",
    "1",
    "x",
    "y",
    "a/b",
    "..",
    "__a",
    "µ",
    "\ud800",
    "space",
    "time",
    "channel",
    "space space",
    "scale",
    "0.5",
]
NUMBERS = [0, 1, -1, True, 2.5, 2**53, 10**400, float("nan"), float("inf")]
ODD = st.sampled_from([None, *WORDS, *NUMBERS, [], [1.0, 1.0], {}, ["x"]])
"""What may stand anywhere in a broken document."""


def places(node: Any, *path: Any) -> list[tuple[Any, ...]]:
    """Return the path of every value in a document, depth first."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []
    return [found for key in keys for found in [(*path, key), *places(node[key], *path, key)]]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw an entry of `multiscales`: valid, then changed, robbed or extended in a few places."""
    n_axes = draw(st.integers(2, 5))
    outer = draw(st.sampled_from([{}, {"coordinateTransformations": transforms([2] * n_axes, [1.5] * n_axes)}]))
    entry = multiscale(n_axes, name="cells", type="mean", metadata={"any": 1}, **outer)
    for _ in range(draw(st.integers(0, 3))):
        *path, key = draw(st.sampled_from(places(entry)))
        parent = entry
        for step in path:
            parent = parent[step]
        action = draw(st.sampled_from(["set", "set", "delete", "repeat", "swap"]))
        if action == "set":
            parent[key] = copy.deepcopy(draw(ODD))
        elif action == "delete":
            del parent[key]
        elif isinstance(parent, list) and action == "repeat":
            parent.append(copy.deepcopy(parent[key]))
        elif isinstance(parent, list):
            parent.reverse()
        if not places(entry):
            break
    return entry


@settings(max_examples=500, deadline=None)
@given(documents(), st.sampled_from(VERSIONS))
def test_yaozarrs_accepts_what_is_plain_and_reads_the_same_in_it(entry: dict[str, Any], version: str) -> None:
    if not is_plain(entry):
        return
    image = read_image(attributes(version, entry), "image.zarr")
    with mock.patch("ziggurat.validation.is_plain", lambda _: False):
        assert read_image(attributes(version, entry), "image.zarr") == image


@pytest.mark.parametrize("n_axes", [2, 3, 4, 5])
def test_usual_images_are_plain(n_axes: int) -> None:
    assert is_plain(multiscale(n_axes))
    assert is_plain(multiscale(n_axes, name="cells", type="gaussian", metadata={"method": "some"}, surprise=True))
    assert is_plain(multiscale(n_axes, coordinateTransformations=transforms([1] * n_axes)))


# --- what is read


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n_axes", [2, 3, 4, 5])
def test_an_image(version: str, n_axes: int) -> None:
    image = read_image(attributes(version, multiscale(n_axes, name="cells", type="mean")), "image.zarr")
    assert image == Image(
        axes=tuple(Axis(axis["name"], axis["type"], axis.get("unit")) for axis in TCZYX[-n_axes:]),
        datasets=(
            Dataset("0", (0.5,) * n_axes, (0.0,) * n_axes),
            Dataset("1", (1.0,) * n_axes, (0.25,) * n_axes),
        ),
        method="mean",
        is_label=False,
        name="cells",
        version=version,
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_unknown_keys_and_broken_rendering_hints_do_not_matter(version: str) -> None:
    entry = multiscale(metadata={"any": 1}, surprise=True)
    entry["axes"][0]["longName"] = "height"
    entry["datasets"][0]["extra"] = None
    more = {"omero": {"channels": "broken"}, "lab": {"note": "keep"}, "bioformats2raw.layout": 3}
    assert read_image(attributes(version, entry, **more), "image.zarr") == read(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_attributes_are_left_alone(version: str) -> None:
    given_attributes = attributes(version, multiscale(axes=[{"name": "y"}, {"name": "x"}]))
    before = copy.deepcopy(given_attributes)
    read_image(given_attributes, "image.zarr")
    assert given_attributes == before


@pytest.mark.parametrize("version", VERSIONS)
def test_unusual_units_and_names_are_no_fault(version: str) -> None:
    axes = [{"name": "y", "type": "space", "unit": "µm"}, {"name": "x", "type": "space", "unit": "pixel"}]
    image = read(version, axes=axes, datasets=[dataset("full res #1/ü", [1, 1])])
    assert [axis.unit for axis in image.axes] == ["µm", "pixel"]
    assert image.datasets[0].path == "full res #1/ü"


def test_an_axis_without_a_type_has_the_one_its_name_implies() -> None:
    axes = [{"name": "t"}, {"name": "c", "type": None}, {"name": "y"}, {"name": "x", "type": "space"}]
    image = read(n_axes=4, axes=axes)
    assert [axis.type for axis in image.axes] == ["time", "channel", "space", "space"]
    custom = [{"name": "angle"}, {"name": "y"}, {"name": "x"}]
    assert read(n_axes=3, axes=custom).axes[0] == Axis("angle", None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_transforms_of_the_whole_pyramid_come_after_those_of_a_level(version: str) -> None:
    datasets = [dataset("0", [1, 2]), dataset("1", [2, 4], [0.5, 1])]
    image = read(version, datasets=datasets, coordinateTransformations=transforms([10, 0.5], [100, 7]))
    assert image.datasets[0] == Dataset("0", (10.0, 1.0), (100.0, 7.0))
    assert image.datasets[1] == Dataset("1", (20.0, 2.0), (105.0, 7.5))


@pytest.mark.parametrize("version", VERSIONS)
def test_index(version: str) -> None:
    both = attributes(version, multiscale(name="a"), multiscale(name="b"))
    assert [read_image(both, "image.zarr", index).name for index in (0, 1)] == ["a", "b"]
    for index in (2, -1):
        with pytest.raises(MetadataError, match=rf"image.zarr: multiscales has no object at index {index}.*levels="):
            read_image(both, "image.zarr", index)


@pytest.mark.parametrize(
    ("word", "method"),
    [(name, name) for name in METHODS]
    + [
        ("Gaussian", "gaussian"),
        ("MODE", "mode"),
        ("nearest-neighbor", "nearest"),
        ("Nearest Neighbour", "nearest"),
        ("local_mean", "mean"),
        ("average", "mean"),
        ("bilinear", "linear"),
        ("bicubic", "cubic"),
        ("majority", "mode"),
        ("maximum", "max"),
        ("laplacian", None),
        ("zoom", None),
        ("mean3", None),
        ("", None),
        (None, None),
    ],
)
def test_method(word: str | None, method: str | None) -> None:
    assert [read(version, type=word).method for version in VERSIONS] == [method, method]


@pytest.mark.parametrize("version", VERSIONS)
def test_image_label_makes_a_label_image(version: str) -> None:
    labelled = attributes(version, multiscale(), **{"image-label": {"colors": "broken"}})
    assert read_image(labelled, "image.zarr").is_label
    assert not read_image(attributes(version, multiscale()), "image.zarr").is_label


@pytest.mark.parametrize(
    ("where", "is_label"),
    [
        ("image.zarr/labels/cells", True),
        ("labels/cells", True),
        ("/data/image.zarr/labels/nested/cells/", True),
        ("s3://bucket/image.zarr/labels/cells", True),
        ("file:///data/image.zarr/labels/cells", True),
        (r"C:\data\image.zarr\labels\cells", True),
        ("s3://labels/image.zarr", False),
        ("image.zarr/labels", False),
        ("image.zarr/labels_old/cells", False),
        ("my labels/cells", False),
        ("", False),
    ],
)
def test_an_image_under_labels_is_a_label_image(where: str, is_label: bool) -> None:
    assert read(where=where).is_label is is_label


# --- what is refused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"axes": ["y", "x"]}, r"multiscales\[0\]\.axes\[0\]: .*'y'"),
        ({"axes": TCZYX[-1:]}, r"multiscales\[0\]\.axes: "),
        ({"axes": [TCZYX[4], TCZYX[4]]}, r"multiscales\[0\]\.axes: "),
        ({"axes": [{"name": "a"}, {"name": "b"}]}, r"axes: There must be 2 or 3 axes of type 'space'"),
        ({"axes": [TCZYX[3], TCZYX[4], TCZYX[1]]}, r"axes: Axes are not in the required order"),
        ({"axes": None}, r"multiscales\[0\]\.axes: .*None"),
        ({"datasets": []}, r"multiscales\[0\]\.datasets: "),
        ({"datasets": [{"path": "0"}]}, r"datasets\[0\]\.coordinateTransformations: "),
        ({"datasets": [{"coordinateTransformations": transforms([1, 1])}]}, r"datasets\[0\]\.path: "),
        ({"datasets": [dataset("../0", [1, 1])]}, r"datasets\[0\]\.path: .*'\.\./0'"),
        ({"datasets": [dataset("0", [1, 1, 1])]}, r"coordinateTransformations\[0\]: The length .*\(3\).*\(2\)"),
        ({"datasets": [dataset("0", [1, "wide"])]}, r"datasets\[0\].*scale\[1\]: .*'wide'"),
        ({"datasets": [dataset("0", [1, float("nan")])]}, r"datasets\[0\]: a transformation is not finite: .*nan"),
        ({"datasets": [dataset("0", [1, 1], [float("inf"), 0])]}, r"datasets\[0\]: a transformation is not finite"),
        ({"datasets": [dataset("0", [1, 1]), dataset("0", [2, 2])]}, r"datasets\[1\]\.path: '0' is listed twice"),
        ({"coordinateTransformations": [{"type": "identity"}]}, r"coordinateTransformations\[0\]\.type: .*'identity'"),
        ({"type": 5}, r"multiscales\[0\]\.type: .*5"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_invalid_metadata(version: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(MetadataError, match=rf"^image\.zarr: .*{said}") as caught:
        read(version, **changes)
    assert "levels=[...]" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, ZigguratError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"multiscales": [multiscale(version="0.3")]}, r"multiscales\[0\]\.version is '0\.3'; 0\.4 and 0\.5 are read"),
        ({"ome": {**attributes("0.5", multiscale())["ome"], "version": "0.6"}}, r"ome\.version is '0\.6'; 0\.4 and"),
        ({"ome": 5}, "ome is 5, not an object"),
        ({"multiscales": []}, r"multiscales has no object at index 0: \[\]"),
        ({"multiscales": [5]}, r"multiscales has no object at index 0: \[5\]"),
        ({"multiscales": None}, "multiscales has no object at index 0: None"),
        ({}, "no OME-Zarr image is described here"),
        ({"ome": {}}, "no OME-Zarr image is described here"),
        ({"lab": 1}, "no OME-Zarr image is described here"),
    ],
)
def test_no_image(broken: dict[str, Any], said: str) -> None:
    with pytest.raises(MetadataError, match=rf"^image\.zarr: {said}.*levels="):
        read_image(broken, "image.zarr")


WELLS = {"wells": [{"path": path, "rowIndex": 0, "columnIndex": 0} for path in ("A/1", "A/2", "B/1", "B/2")]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("where", "group", "said"),
    [
        ("p.zarr", {"plate": WELLS}, "a plate, .*: p.zarr/A/1/0, p.zarr/A/2/0, p.zarr/B/1/0 .the first of 4."),
        ("p.zarr", {"plate": {"wells": 5}}, "a plate, .*it lists none"),
        (
            "p.zarr/A/1/",
            {"well": {"images": [{"path": "0"}, {"path": "1"}]}},
            "a well, .*: p.zarr/A/1/0, p.zarr/A/1/1.",
        ),
        (
            "i.zarr/labels",
            {"labels": ["cells", "nuclei"]},
            "a labels group, .*: i.zarr/labels/cells, i.zarr/labels/nuclei.",
        ),
        ("i.zarr/labels", {"labels": []}, "a labels group, .*it lists none"),
        ("b.zarr", {"bioformats2raw.layout": 3}, "a bioformats2raw collection, .*: b.zarr/0."),
        ("b.zarr/OME", {"series": ["0", "1"]}, "a list of series, .*: b.zarr/0, b.zarr/1."),
    ],
)
def test_other_groups_say_what_they_are(version: str, where: str, group: dict[str, Any], said: str) -> None:
    found = group if version == "0.4" else {"ome": {"version": "0.5", **group}}
    with pytest.raises(MetadataError, match=rf"^{where}: this is {said}"):
        read_image(found, where)


def test_label_names() -> None:
    assert label_names({"labels": ["cells", "nuclei"]}) == ("cells", "nuclei")
    assert label_names({"ome": {"version": "0.5", "labels": ["cells"]}}) == ("cells",)
    assert [label_names(other) for other in ({}, {"ome": {}}, {"ome": 5}, {"labels": None})] == [()] * 4


# --- transforms of new levels


@pytest.mark.parametrize(
    ("level", "scale", "translation"),
    [(1, 1.0, 0.25), (2, 2.0, 0.75), (3, 4.0, 1.75), (4, 8.0, 3.75)],
)
def test_levels_are_placed_by_their_grid(level: int, scale: float, translation: float) -> None:
    moved = level_transform((0.5, 0.5), (10.0, 20.0), (2**level, 2**level))
    assert moved == ((scale, scale), (10 + translation, 20 + translation))


def test_factors_of_stretched_levels_are_exact() -> None:
    assert level_transform((1.0, 3.0), (0.0, 0.0), (Fraction(501, 250), 1)) == ((2.004, 3.0), (0.502, 0.0))
    with pytest.raises(ValueError, match="shorter"):
        level_transform((1.0, 1.0), (0.0, 0.0), (2,))


lengths = st.floats(1e-3, 1e3)
factors = st.one_of(st.integers(1, 64), st.fractions(1, 64, max_denominator=1000))


@given(lengths, st.floats(-1e3, 1e3), factors)
def test_a_level_covers_what_its_base_covers(scale: float, translation: float, factor: int | Fraction) -> None:
    ((coarse,), (origin,)) = level_transform((scale,), (translation,), (factor,))
    assert origin - coarse / 2 == pytest.approx(translation - scale / 2, abs=1e-9)
    assert coarse == pytest.approx(scale * float(factor))
    if isinstance(factor, int):
        assert coarse == scale * factor


@given(st.lists(lengths, min_size=2, max_size=5), st.integers(1, 5), st.sampled_from(VERSIONS), st.data())
def test_written_levels_are_valid_and_come_back(base: list[float], n_levels: int, version: str, data: Any) -> None:
    origin = data.draw(st.lists(st.floats(-1e3, 1e3), min_size=len(base), max_size=len(base)))
    levels = [level_transform(base, origin, [2**k] * len(base)) for k in range(n_levels)]
    entry = multiscale(len(base), datasets=[dataset(str(k), *level) for k, level in enumerate(levels)])
    written = attributes(version, entry)
    (v04.Image if version == "0.4" else v05.OMEAttributes).model_validate(copy.deepcopy(written))
    image = read_image(written, "image.zarr")
    assert [(level.scale, level.translation) for level in image.datasets] == levels
    ratios = [scale_ratio(*pair) for pair in zip(image.datasets, image.datasets[1:], strict=False)]
    assert ratios == [(2.0,) * len(base)] * (n_levels - 1)


@pytest.mark.parametrize(
    ("source", "target", "ratio"),
    [
        ((1.0, 0.5), (2.004, 1.0), (2.004, 2.0)),
        ((0.0, 1.0), (0.0, 2.0), (None, 2.0)),
        ((1.0, -1.0), (0.0, 2.0), (None, None)),
    ],
)
def test_scale_ratio(source: tuple[float, ...], target: tuple[float, ...], ratio: tuple[float | None, ...]) -> None:
    assert scale_ratio(Dataset("0", source, (0.0, 0.0)), Dataset("1", target, (0.0, 0.0))) == ratio


def test_scale_ratio_without_metadata() -> None:
    known, unknown = Dataset("0", (1.0,), (0.0,)), Dataset("1", None, (0.0,))
    assert scale_ratio(known, unknown) is None
    assert scale_ratio(unknown, known) is None
