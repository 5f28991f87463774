"""Regions from tables: which columns say where a region lies, and the pixels that they mean."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ziggurat.boxes import Box
from ziggurat.errors import MetadataError
from ziggurat.ngff import read_image
from ziggurat.roi import Floats, boxes_of, scale_of, settle
from ziggurat.tabular import Table, group_of, read_table

if TYPE_CHECKING:
    from ziggurat.pyramid import Pyramid

__all__ = ["read_regions"]

_LENGTHS = {
    "angstrom": 1e-10,
    "nanometer": 1e-9,
    "micrometer": 1e-6,
    "millimeter": 1e-3,
    "centimeter": 1e-2,
    "meter": 1.0,
}
_TIMES = {"nanosecond": 1e-9, "microsecond": 1e-6, "millisecond": 1e-3, "second": 1.0, "minute": 60.0, "hour": 3600.0}

type Columns = tuple[str, str, str | None]
"""Start, and length or stop, and the unit of both; None is pixels."""

_EXPECTED = "x_micrometer and len_x_micrometer, x and len_x (pixels), or x_start and x_stop (pixels), for each axis"


def read_regions(table: str | Path, pyramid: "Pyramid") -> list[Box]:
    r"""Read regions of a pyramid's level 0, for ``consolidate(regions=...)``, from a table with one region per row.

    Parameters
    ----------
    table : str or Path
        Path or URL of a ``.csv``, ``.parquet``, ``.feather`` or ``.h5ad`` file, or of a zarr group that holds AnnData;
        or the bare name of a table in the image's own ``tables`` group, as in ``"FOV_ROI_table"``.
    pyramid : Pyramid
        What the regions are of.

    Returns
    -------
    list of Box
        ``(start, stop)`` in level-0 pixels along each axis: every pixel that the region touches.

    Raises
    ------
    MetadataError
        When the columns name no region, half of one, or an axis that the image has not, or the file cannot be read.
    RegionError
        When a row leaves the image, or holds what is no number.
    StoreError
        When there is no such table.
    ImportError
        When the library that reads the format is missing: ``pip install 'ziggurat[tables]'``.

    Notes
    -----
    Columns of axis ``x``, likewise of all others: ``x_micrometer`` and ``len_x_micrometer`` (or another unit, or the
    axis's own), from the first pixel's edge; ``x`` and ``len_x``, or ``x_pixel`` and ``len_x_pixel``, in pixels; or
    ``x_start`` and ``x_stop``, in pixels. Axes without columns are whole. Other columns do not matter.

    Examples
    --------
    >>> import tempfile, zarr
    >>> from ziggurat import open_pyramid
    >>> pyramid = open_pyramid([zarr.create_array({}, shape=(64, 64), chunks=(8, 8), dtype="u1", dimension_names="yx")])
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("cell,x_start,x_stop\na,3,9\n")
    ...     file.flush()
    ...     read_regions(file.name, pyramid)
    [((0, 64), (3, 9))]
    """
    read = read_table(str(table), pyramid)
    units = _units(pyramid)
    columns = {axis: _columns_of(axis, units[axis], read) for axis in pyramid.axes}
    found = {axis: names for axis, names in columns.items() if names is not None}
    _check_others(read, found, pyramid)
    if not found:
        raise MetadataError(
            f"{read.where}: none of the columns {', '.join(map(repr, read.columns))} says where a region of "
            f"{pyramid.where} lies: expected {_EXPECTED} ({', '.join(pyramid.axes)})"
        )
    intervals = {axis: _interval(axis, *names, units[axis], read, pyramid) for axis, names in found.items()}
    return boxes_of(intervals, len(read.rows), pyramid.axes, pyramid.levels[0].shape, read.name)


def _schemes(axis: str, unit: str | None) -> dict[tuple[str, str], str | None]:
    """Return the pairs of columns that may say where regions lie along `axis`, with their unit; None is pixels."""
    units = dict.fromkeys((*_LENGTHS, *_TIMES, *([unit] if unit else [])))
    physical: dict[tuple[str, str], str | None] = {(f"{axis}_{u}", f"len_{axis}_{u}"): u for u in units}
    pixels = ((axis, f"len_{axis}"), (f"{axis}_pixel", f"len_{axis}_pixel"), (f"{axis}_start", f"{axis}_stop"))
    return {**physical, **dict.fromkeys(pixels)}


def _columns_of(axis: str, unit: str | None, table: Table) -> Columns | None:
    """Return the two columns of `axis` and their unit; None where there are none."""
    schemes = _schemes(axis, unit)
    found = [pair for pair in schemes if all(name in table.columns for name in pair)]
    if len(found) > 1:
        raise MetadataError(f"{table.where}: {found[0]} and {found[1]} both say where {axis!r} lies: drop one pair")
    if found:
        return *found[0], schemes[found[0]]
    for pair in schemes:
        for here, partner in (pair, pair[::-1]):
            if here in table.columns:
                raise MetadataError(f"{table.where}: column {here!r} needs {partner!r} beside it: add it")
    return None


def _check_others(table: Table, found: Mapping[str, Columns], pyramid: "Pyramid") -> None:
    """Refuse pairs of columns that speak of an axis which the image has not."""
    known = {(start, other) for start, other, _ in found.values()}
    for pair in _pairs(table):
        if pair not in known and not _is_flat(table, *pair, pyramid):
            raise MetadataError(
                f"{table.where}: columns {pair[0]!r} and {pair[1]!r} are of an axis that {pyramid.where} has not: "
                f"its axes are {', '.join(pyramid.axes)}"
            )


def _pairs(table: Table) -> Iterator[tuple[str, str]]:
    """Yield each two columns that look like a region's along an axis of any name."""
    for name in table.columns:
        if name.startswith("len_") and name[4:] in table.columns:
            yield name[4:], name
        if name.endswith("_stop") and (start := name.removesuffix("_stop") + "_start") in table.columns:
            yield start, name


def _is_flat(table: Table, start: str, length: str, pyramid: "Pyramid") -> bool:
    """Say whether the columns are the z that Fractal's tables have for planes too: from 0, one long."""
    if "z" in pyramid.axes or not start.startswith("z_") or not length.startswith("len_z_"):
        return False
    return not table.floats(start).any() and bool((table.floats(length) <= 1).all())


def _interval(
    axis: str, start: str, other: str, unit: str | None, own: str | None, table: Table, pyramid: "Pyramid"
) -> tuple[Floats, Floats]:
    """Return where the table's regions start and stop along `axis`, in pixels."""
    a, b = table.floats(start), table.floats(other)
    stop = b if other.endswith("_stop") else a + b
    if unit is None:
        return settle(a), settle(stop)
    pixels = _factor(unit, own, f"{table.where}: column {start!r}") / scale_of(axis, pyramid)
    return settle(a * pixels), settle(stop * pixels)


def _factor(unit: str, own: str | None, what: str) -> float:
    """Return how many of the axis's `own` unit make one `unit`; an axis that names none is in the table's."""
    if own in (None, unit):
        return 1.0
    for units in (_LENGTHS, _TIMES):
        if unit in units and own in units:
            return units[unit] / units[own]
    raise MetadataError(f"{what} is in {unit}, the image's axis in {own}, and one cannot be had from the other")


def _units(pyramid: "Pyramid") -> dict[str, str | None]:
    """Return the unit of each axis; None where it has none."""
    if pyramid.levels[0].scale is None:
        return dict.fromkeys(pyramid.axes)
    return {axis.name: axis.unit for axis in read_image(group_of(pyramid).attrs.asdict(), pyramid.where).axes}
