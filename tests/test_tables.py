"""Regions from tables and in physical units, with ngio as the oracle for its own."""

import contextlib
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import ziggurat as zg
from ziggurat import tabular
from ziggurat.cli import main
from ziggurat.config import Config
from ziggurat.errors import MetadataError, RegionError, StoreError
from ziggurat.pyramid import Pyramid
from ziggurat.roi import box_of_roi, settle
from ziggurat.tables import read_regions

pa = pytest.importorskip("pyarrow")
pytest.importorskip("anndata")
with warnings.catch_warnings():
    # What they warn about when they are imported is theirs.
    warnings.simplefilter("ignore")
    import anndata
    import ngio
    import pandas as pd
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet
    from ngio import Roi
    from ngio.tables import RoiTable
    from scipy.sparse import csr_matrix


@contextlib.contextmanager
def others_warn() -> Iterator[None]:
    """Let those who write the tables warn; nothing of ours runs inside."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


LENGTHS = {"micrometer": 1.0, "nanometer": 1e3, "millimeter": 1e-3}


def make_pyramid(
    where: Any = None,
    axes: str = "zyx",
    shape: tuple[int, ...] = (4, 100, 80),
    scale: Any = None,
    unit: Any = "micrometer",
) -> Pyramid:
    """Make a pyramid of two levels; `unit` is that of its spatial axes."""
    scale = [2.0, 0.5, 0.25][-len(axes) :] if scale is None else scale
    space = {"type": "space", **({"unit": unit} if unit else {})}
    entries = [{"name": a, **(space if a in "zyx" else {"type": "time", "unit": "second"})} for a in axes]
    datasets = [
        {"path": str(k), "coordinateTransformations": [{"type": "scale", "scale": [s * 2**k for s in scale]}]}
        for k in (0, 1)
    ]
    group = where if isinstance(where, zarr.Group) else zarr.create_group({} if where is None else where)
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": entries, "datasets": datasets}]}
    for k in (0, 1):
        level = tuple(max(1, n >> k) for n in shape)
        group.create_array(str(k), shape=level, chunks=tuple(min(16, n) for n in level), dtype="uint8")
    return zg.open_pyramid(group if where is None else where)


PLAIN = make_pyramid()


def write_anndata(columns: pd.DataFrame, where: Any, obs: pd.DataFrame | None = None, sparse: bool = False) -> None:
    """Write `columns` as variables; `where` is a path, or a zarr group and a name in it."""
    matrix = columns.to_numpy("float64")
    obs = pd.DataFrame(index=columns.index.astype(str)) if obs is None else obs
    with others_warn():
        made = anndata.AnnData(X=csr_matrix(matrix) if sparse else matrix, obs=obs)
        made.var_names = list(columns.columns)
        if str(where).endswith(".h5ad"):
            made.write_h5ad(where)
        else:
            group, name = (zarr.open_group(where.parent), where.name) if isinstance(where, Path) else where
            anndata.io.write_elem(group, name, made)


def write_table(table: pd.DataFrame, path: Path) -> Path:
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    match path.suffix:
        case ".csv":
            pyarrow.csv.write_csv(arrow, path)
        case ".parquet":
            pyarrow.parquet.write_table(arrow, path)
        case ".feather":
            with others_warn():
                pyarrow.feather.write_feather(arrow, path)
        case _:
            write_anndata(table, path)
    return path


SCHEMES = {
    "physical": {
        "x_micrometer": [1.0, 2.6],
        "len_x_micrometer": [0.5, 2.0],
        "y_micrometer": [0.0, 49.5],
        "len_y_micrometer": [50.0, 0.5],
    },
    "pixels": {"x": [4, 10.4], "len_x": [2, 8], "y": [0, 99], "len_y": [100, 1]},
    "named pixels": {"x_pixel": [4, 10.4], "len_x_pixel": [2, 8], "y_pixel": [0, 99], "len_y_pixel": [100, 1]},
    "start and stop": {"x_start": [4, 10.4], "x_stop": [6, 18.4], "y_start": [0, 99], "y_stop": [100, 100]},
}
BOXES = [((0, 4), (0, 100), (4, 6)), ((0, 4), (99, 100), (10, 19))]


@pytest.mark.parametrize("columns", SCHEMES.values(), ids=list(SCHEMES))
@pytest.mark.parametrize(
    "name", ["t.csv", "t.CSV", "t.parquet", "t.feather", "t.h5ad", "my table.zarr", "50%20 #1.csv"]
)
def test_every_format_and_every_scheme(tmp_path: Path, name: str, columns: dict[str, list[float]]) -> None:
    path = tmp_path / name
    written = write_table(pd.DataFrame(columns), path.with_suffix(path.suffix.lower()))
    if written.name != name:
        shutil.move(written, path)
    assert read_regions(path, make_pyramid()) == BOXES
    assert read_regions(path.as_uri(), make_pyramid()) == BOXES


def test_other_columns_do_not_matter(tmp_path: Path) -> None:
    columns = {
        "name": ["a", "b"],
        "x_micrometer_original": [1.0, 2.0],
        "area_micrometer": [1, 2],
        "len_major": [3, 3],
        "row": [0, 0],
    }
    path = write_table(pd.DataFrame(SCHEMES["pixels"] | columns), tmp_path / "t.csv")
    assert read_regions(path, make_pyramid()) == BOXES


@pytest.mark.parametrize("name", ["t.h5ad", "t.zarr"])
@pytest.mark.parametrize("sparse", [False, True])
def test_anndata_may_be_sparse_and_its_observations_are_columns_too(tmp_path: Path, name: str, sparse: bool) -> None:
    obs = pd.DataFrame({"y": [4, 10], "len_y": [2, 8], "cell": ["p", "q"]}, index=["a", "b"])
    write_anndata(pd.DataFrame({"x": [0, 1], "len_x": [3, 3]}), tmp_path / name, obs, sparse)
    assert read_regions(tmp_path / name, PLAIN) == [((0, 4), (4, 6), (0, 3)), ((0, 4), (10, 18), (1, 4))]


def test_no_rows_are_no_regions(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,len_x\n")
    assert read_regions(tmp_path / "t.csv", make_pyramid()) == []


@pytest.mark.parametrize("image_unit", LENGTHS)
@pytest.mark.parametrize("table_unit", LENGTHS)
def test_lengths_are_converted(tmp_path: Path, image_unit: str, table_unit: str) -> None:
    scale = np.array([2.0, 0.5, 0.25]) * LENGTHS[image_unit]
    k = LENGTHS[table_unit]
    table = pd.DataFrame({f"x_{table_unit}": [1.0 * k, 0.1 * k], f"len_x_{table_unit}": [0.5 * k, 0.2 * k]})
    pyramid = make_pyramid(scale=scale.tolist(), unit=image_unit)
    assert [b[2] for b in read_regions(write_table(table, tmp_path / "t.csv"), pyramid)] == [(4, 6), (0, 2)]


def test_an_axis_without_a_unit_is_in_the_tables(tmp_path: Path) -> None:
    path = write_table(pd.DataFrame(SCHEMES["physical"]), tmp_path / "t.csv")
    assert read_regions(path, make_pyramid(unit=None)) == BOXES


def test_time_and_units_of_ones_own(tmp_path: Path) -> None:
    pyramid = make_pyramid(axes="tyx", shape=(10, 9, 50), scale=[2.0, 1.0, 1.0], unit="parsec")
    table = pd.DataFrame({"t_millisecond": [4000], "len_t_millisecond": [2000], "x_parsec": [7], "len_x_parsec": [3]})
    assert read_regions(write_table(table, tmp_path / "t.csv"), pyramid) == [((2, 3), (0, 9), (7, 10))]


def test_single_precision_is_as_good_as_double(tmp_path: Path) -> None:
    edges = np.arange(0, 20_001, 2160) * 0.1625
    table = pd.DataFrame({"x_micrometer": edges[:-1], "len_x_micrometer": np.diff(edges)}).astype("float32")
    pyramid = make_pyramid(axes="yx", shape=(1, 19440), scale=[1.0, 0.1625])
    boxes = read_regions(write_table(table, tmp_path / "t.parquet"), pyramid)
    assert boxes == [((0, 1), (k * 2160, (k + 1) * 2160)) for k in range(9)]


@given(start=st.floats(0, 70), length=st.floats(1e-4, 10))
def test_a_region_covers_what_it_touches_and_no_more(start: float, length: float) -> None:
    first, last = box_of_roi({"x": (start * 0.25, (start + length) * 0.25)}, PLAIN)[2]
    assert first - 1e-5 <= start < first + 1
    assert last - 1 < start + length <= last + 1e-5


def test_settle_leaves_what_is_not_whole() -> None:
    given_pixels = np.array([2.9999995, 3.0000005, 3.00001, 2.5, 80_000.005, np.inf])
    assert settle(given_pixels).tolist() == [3, 3, 3.00001, 2.5, 80_000, np.inf]


# --- what is refused


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("x\n1\n", MetadataError, ["'x'", "'len_x'"]),
        ("len_y_micrometer\n1\n", MetadataError, ["'len_y_micrometer'", "'y_micrometer'"]),
        ("x_stop\n1\n", MetadataError, ["'x_stop'", "'x_start'"]),
        ("x,len_x,q_micrometer,len_q_micrometer\n1,1,1,1\n", MetadataError, ["'q_micrometer'", "z, y, x"]),
        ("x,len_x,w_start,w_stop\n1,1,1,1\n", MetadataError, ["'w_start'", "'w_stop'", "z, y, x"]),
        ("area,cell\n1,1\n", MetadataError, ["'area'", "x_micrometer", "x_start", "z, y, x"]),
        ("x,len_x,x_start,x_stop\n1,1,1,1\n", MetadataError, ["len_x", "x_stop", "drop"]),
        ("x_second,len_x_second\n1,1\n", MetadataError, ["'x_second'", "micrometer"]),
        ("x,len_x\n1,1\n75,6\n", RegionError, ["row 1", "'x'", "75 to 81", "0 to 79"]),
        ("x_micrometer,len_x_micrometer\n-0.01,1\n", RegionError, ["row 0", "'x'"]),
        ("y_start,y_stop\n0,101\n", RegionError, ["row 0", "'y'", "0 to 99"]),
        ("x,len_x\n1,-1\n", RegionError, ["row 0", "'x'", "before"]),
        ("x,len_x\n1,1\n1,nan\n", RegionError, ["row 1", "'x'", "number"]),
        ("x,len_x\n1,1\n,1\n", RegionError, ["row 1", "'x'", "number"]),
        ("x,len_x\n1,inf\n", RegionError, ["row 0", "'x'", "number"]),
        ("x,len_x\n1,wide\n", RegionError, ["'len_x'", "number"]),
        ("x,len_x\n1,1,1\n", MetadataError, [".csv"]),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, error: type[Exception], words: list[str]) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(error) as caught:
        read_regions(path, PLAIN)
    assert all(word in str(caught.value) for word in [str(path), *words]), caught.value


@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.h5ad"])
def test_a_broken_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no such thing")
    with pytest.raises(MetadataError, match=name):
        read_regions(tmp_path / name, PLAIN)


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "t.xlsx").write_bytes(b"")
    with pytest.raises(MetadataError, match=r"\.parquet"):
        read_regions(tmp_path / "t.xlsx", PLAIN)


@pytest.mark.parametrize("name", ["FOV_ROI_table", "nowhere/t.csv", "0"])
def test_no_such_table(name: str) -> None:
    with pytest.raises(StoreError, match=name):
        read_regions(name, PLAIN)


def test_a_group_that_is_no_table(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "t.zarr")
    with pytest.raises(MetadataError, match="AnnData"):
        read_regions(tmp_path / "t.zarr", PLAIN)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="empty"):
        read_regions(tmp_path / "empty", PLAIN)


def test_physical_units_need_a_scale(tmp_path: Path) -> None:
    path = write_table(pd.DataFrame(SCHEMES["physical"]), tmp_path / "t.csv")
    array = zarr.create_array({}, shape=(100, 80), chunks=(16, 16), dtype="u1", dimension_names=("y", "x"))
    with pytest.raises(MetadataError, match="scale"):
        read_regions(path, zg.open_pyramid([array]))


@pytest.mark.parametrize("name", ["t.parquet", "t.h5ad", "t.zarr"])
def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = write_table(pd.DataFrame(SCHEMES["pixels"]), tmp_path / name)

    def fail(module: str) -> None:
        raise ModuleNotFoundError(module)

    monkeypatch.setattr(tabular, "import_module", fail)
    with pytest.raises(ImportError, match=r"pip install 'ziggurat\[tables\]'"):
        read_regions(path, PLAIN)


def test_reading_is_tried_again_as_the_settings_say_at_that_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_table(pd.DataFrame(SCHEMES["pixels"]), tmp_path / "t.csv")
    failures = [OSError("the wire is loose")] * 3
    content = tabular._content

    def flaky(place: str) -> bytes:
        if failures:
            raise failures.pop()
        return content(place)

    monkeypatch.setattr(tabular, "_content", flaky)
    with pytest.raises(OSError, match="loose"):
        read_regions(path, PLAIN)
    settings = {"max_retries": 2, "retry_on": ["the wire"], "backoff": {"delay_s": 0.0}}
    monkeypatch.setattr(tabular, "get_config", lambda: Config(io_retry=settings))  # type: ignore[arg-type]
    assert read_regions(path, PLAIN) == BOXES
    assert len(caplog.records) == 2


def test_a_url() -> None:
    with fsspec.open("memory://tables/t.csv", "w") as file:
        file.write("x,len_x\n4,2\n")
    assert read_regions("memory://tables/t.csv", PLAIN) == [((0, 4), (0, 100), (4, 6))]


# --- ngio


@pytest.fixture
def container(tmp_path: Path) -> Callable[..., Any]:
    def make(
        shape: tuple[int, ...] = (3, 40, 60), axes: str = "zyx", version: str = "0.5", pixelsize: float = 0.325
    ) -> Any:
        return ngio.create_empty_ome_zarr(
            tmp_path / "image.zarr",
            shape=shape,
            pixelsize=pixelsize,
            z_spacing=1.0,
            axes_names=axes,
            levels=2,
            ngff_version=version,
        )

    return make


FIELDS = [
    Roi.from_values(name=f"FOV_{k}", slices={"x": (k * 9.75, 9.75), "y": (6.5, 6.5), "z": (0.0, 3.0)}) for k in range(2)
]
FIELD_BOXES = [((0, 3), (20, 40), (0, 30)), ((0, 3), (20, 40), (30, 60))]


@pytest.mark.parametrize("version", ["0.4", "0.5"])
@pytest.mark.parametrize("backend", ["anndata", "csv", "parquet", "json"])
def test_ngio_tables(container: Callable[..., Any], tmp_path: Path, version: str, backend: str) -> None:
    with others_warn():
        container(version=version).add_table("FOV_ROI_table", RoiTable(rois=FIELDS), backend=backend)
    pyramid = zg.open_pyramid(tmp_path / "image.zarr")
    assert read_regions("FOV_ROI_table", pyramid) == FIELD_BOXES
    assert read_regions(tmp_path / "image.zarr/tables/FOV_ROI_table", pyramid) == FIELD_BOXES


def test_a_plane_with_a_z_of_one(container: Callable[..., Any], tmp_path: Path) -> None:
    with others_warn():
        plane = container(shape=(40, 60), axes="yx")
        plane.add_table("wells", plane.build_image_roi_table())
    pyramid = zg.open_pyramid(tmp_path / "image.zarr")
    assert read_regions("wells", pyramid) == [((0, 40), (0, 60))]
    with others_warn():
        plane.add_table("thick", RoiTable(rois=FIELDS))
    with pytest.raises(MetadataError, match="len_z_micrometer"):
        read_regions("thick", pyramid)


def test_the_rows_of_a_refused_table_have_names(container: Callable[..., Any], tmp_path: Path) -> None:
    far = Roi.from_values(name="far", slices={"x": (15.0, 9.75), "y": (0.0, 1.0), "z": (0.0, 1.0)})
    with others_warn():
        container().add_table("t", RoiTable(rois=[*FIELDS, far]))
    with pytest.raises(RegionError, match=r"row 'far' leaves the image.*'x'"):
        read_regions("t", zg.open_pyramid(tmp_path / "image.zarr"))


def test_a_table_in_memory_and_below_a_group() -> None:
    image = zarr.create_group({}).create_group("plate/A/1")
    pyramid = make_pyramid(image)
    write_anndata(pd.DataFrame({"x": [4], "len_x": [2]}), (image.create_group("tables"), "t"))
    assert read_regions("t", pyramid) == [((0, 4), (0, 100), (4, 6))]


@given(x=st.tuples(st.floats(0, 9), st.floats(0.01, 10)), y=st.tuples(st.floats(0, 6), st.floats(0.01, 6)))
def test_a_roi_is_what_ngio_reads(x: tuple[float, float], y: tuple[float, float]) -> None:
    roi = Roi.from_values(name=None, slices={"x": x, "y": y})
    pyramid = make_pyramid(shape=(3, 40, 60), scale=[1.0, 0.325, 0.325])
    with others_warn():
        image = ngio.open_image(pyramid[0].store)
        shape = image.get_roi(roi).shape
    box = box_of_roi(roi, pyramid)
    assert tuple(b - a for a, b in box) == shape


def test_rois_in_pixels_and_with_open_ends() -> None:
    assert box_of_roi(Roi.from_values(name=None, slices={"x": (3.004, 2), "y": (None, 4.0)}, space="pixel"), PLAIN) == (
        (0, 4),
        (0, 100),
        (3, 6),
    )
    assert box_of_roi(Roi.from_values(name=None, slices={"x": (1.0, None), "y": (0.0, 1.0)}), PLAIN)[1:] == (
        (0, 2),
        (4, 80),
    )


def test_mappings() -> None:
    assert box_of_roi({}, PLAIN) == PLAIN.levels[0].box
    assert box_of_roi({"z": (2.0, 4.0), "x": slice(19.9, None)}, PLAIN) == ((1, 2), (0, 100), (79, 80))
    assert box_of_roi({"x": (1.0, 1.0)}, PLAIN)[2] == (4, 4)


@pytest.mark.parametrize(
    ("roi", "word"),
    [
        ({"q": (0, 1)}, "'q'"),
        ({"x": (0, 20.5)}, "leaves"),
        ({"x": (2, 1)}, "before"),
        ({"x": 3}, "start, stop"),
        ({"x": ("a", "b")}, "start, stop"),
        ({"x": (float("nan"), 1)}, "number"),
        ([(0, 1)], "mapping"),
        (Roi.from_values(name="far", slices={"x": (-1, 3), "y": (0, 1)}), "leaves"),
        (Roi.from_values(name="odd", slices={"q": (0, 3), "y": (0, 1)}), "'q'"),
    ],
)
def test_rois_that_are_refused(roi: Any, word: str) -> None:
    with pytest.raises(RegionError, match=word):
        box_of_roi(roi, PLAIN)


# --- the command line


def test_the_command_line_takes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyramid = make_pyramid(tmp_path / "image.zarr", axes="yx", shape=(64, 64), scale=[1.0, 1.0])
    pyramid[0][:] = 8
    table = tmp_path / "regions.csv"
    table.write_text("x,len_x,y_start,y_stop\n0,16,0,16\n")
    assert main(["plan", str(tmp_path / "image.zarr"), "--regions", str(table)]) == 0
    assert not pyramid[1][:].any()
    assert (
        main(["consolidate", str(tmp_path / "image.zarr"), "--regions", str(table), "--level", "0", "--level", "1"])
        == 1
    )
    assert main(["consolidate", str(tmp_path / "image.zarr"), "--regions", str(table), "-q"]) == 0
    assert pyramid[1][:8, :8].all()
    assert not pyramid[1][16:].any()
    assert main(["consolidate", str(tmp_path / "image.zarr"), "--regions", "nowhere"]) == 1
    assert "nowhere" in capsys.readouterr().err
