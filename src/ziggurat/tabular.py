"""Tables as columns: CSV, Parquet, Feather, AnnData in zarr or h5ad, and the tables that OME-Zarr images carry."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

import numpy as np
from numpy.typing import NDArray

from ziggurat.config import get_config
from ziggurat.errors import MetadataError, PyramidNotFoundError, RegionError, StoreError
from ziggurat.policy import retrying
from ziggurat.store import get_object, open_group

if TYPE_CHECKING:
    import zarr

    from ziggurat.pyramid import Pyramid

__all__ = ["Table", "group_of", "read_table"]


@dataclass(frozen=True)
class Table:
    """One table.

    Attributes
    ----------
    where : str
        Where it lies, for people.
    columns : mapping of str to array-like
        What numpy can read, by name.
    rows : sequence
        The rows' names, or numbers.
    """

    where: str
    columns: Mapping[str, Any]
    rows: Sequence[Any]

    def floats(self, column: str) -> NDArray[np.float64]:
        """Return a column as numbers; what is missing is NaN."""
        try:
            return np.asarray(self.columns[column], np.float64)
        except (TypeError, ValueError) as e:
            raise RegionError(f"{self.where}: column {column!r} holds what is no number: {e}") from None

    def name(self, row: int) -> str:
        """Return what messages call a row."""
        return f"{self.where}: row {self.rows[row]!r}"


def group_of(pyramid: "Pyramid") -> "zarr.Group":
    """Return the group that level 0 lies in, as the metadata name it.

    Raises
    ------
    PyramidNotFoundError
        When level 0 lies in no group.
    """
    array, name = pyramid.arrays[0], pyramid.levels[0].name
    above = array.path.removesuffix(name).strip("/")
    root = open_group(array.store)
    return cast("zarr.Group", root[above]) if above else root


@retrying(lambda: get_config().io_retry)
def read_table(table: str, pyramid: "Pyramid") -> Table:
    """Read the table at a path or URL, or the one of that name among the image's own.

    Raises
    ------
    StoreError
        When there is none.
    MetadataError
        When it cannot be read.
    """
    place = os.path.expanduser(unquote(urlsplit(table).path) if table.startswith("file://") else table)
    if "://" not in place and not os.path.exists(place):
        return _read_group(_own_table(table, pyramid), f"{pyramid.where}/tables/{table}")
    suffix = Path(place).suffix.lower()
    if suffix in _FORMATS:
        return _parse(place, suffix, _content(place))
    if os.path.isfile(place) and suffix != ".zip":
        raise MetadataError(f"{place}: no known kind of table: name it {', '.join(_FORMATS)}, or give a zarr group")
    try:
        return _read_group(open_group(place), place)
    except PyramidNotFoundError:
        raise StoreError(f"{place} is no zarr group that holds a table: check the path") from None


def _own_table(name: str, pyramid: "Pyramid") -> "zarr.Group":
    """Return the group of the image's own table `name`."""
    try:
        group = None if "/" in name or os.sep in name else group_of(pyramid).get(f"tables/{name}")
    except (PyramidNotFoundError, KeyError):
        group = None
    if group is None or not hasattr(group, "members"):
        raise StoreError(f"there is no table {name}: no such file, and none of that name in {pyramid.where}/tables")
    return cast("zarr.Group", group)


def _read_group(group: "zarr.Group", where: str) -> Table:
    """Read AnnData, or what ngio keeps in a group instead: a file, or columns among the attributes."""
    if "obs" in group and "var" in group:
        return _anndata(group, where)
    for suffix in (".csv", ".parquet"):
        content = _object(group, f"table{suffix}")
        if content is not None:
            return _parse(where, suffix, content)
    if "table" in group:
        columns: Any = group["table"].attrs.asdict()
        return Table(where, columns, range(len(next(iter(columns.values()), ()))))
    raise MetadataError(f"{where} holds no AnnData and no other table: it has no 'obs' and 'var'")


def _object(group: "zarr.Group", name: str) -> bytes | None:
    return get_object(group.store, f"{group.path}/{name}".lstrip("/"))


def _content(place: str) -> bytes:
    if "://" not in place:
        return Path(place).read_bytes()
    with _load("fsspec").open(place, "rb") as file:
        content: bytes = file.read()
    return content


def _parse(where: str, suffix: str, content: bytes) -> Table:
    parse = _FORMATS[suffix]
    try:
        return parse(BytesIO(content), where)
    except MetadataError:
        raise
    except ValueError as e:
        raise MetadataError(f"{where} cannot be read as {suffix}: {e}") from e


def _arrow(module: str, function: str) -> Callable[[BytesIO, str], Table]:
    def parse(file: BytesIO, where: str) -> Table:
        read = getattr(_load(module), function)(file)
        columns = {name: read[name].to_numpy() for name in read.column_names}
        return Table(where, columns, range(read.num_rows))

    return parse


def _h5ad(file: BytesIO, where: str) -> Table:
    try:
        with _load("h5py").File(file, "r") as root:
            return _anndata(root, where)
    except OSError as e:
        raise MetadataError(f"{where} cannot be read as .h5ad: {e}") from e


def _anndata(group: Any, where: str) -> Table:
    """Read what is named by AnnData's variables, and the columns of its observations."""
    read = _load("anndata.io").read_elem
    obs, variables = read(group["obs"]), read(group["var"])
    columns = {str(name): obs[name] for name in obs.columns}
    matrix = read(group["X"]) if "X" in group else None
    if matrix is not None:
        dense = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
        columns |= {str(name): dense[:, k] for k, name in enumerate(variables.index)}
    return Table(where, columns, [str(name) for name in obs.index])


_FORMATS: dict[str, Callable[[BytesIO, str], Table]] = {
    ".csv": _arrow("pyarrow.csv", "read_csv"),
    ".parquet": _arrow("pyarrow.parquet", "read_table"),
    ".feather": _arrow("pyarrow.feather", "read_table"),
    ".h5ad": _h5ad,
}


def _load(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(
            f"regions are read from tables by {module.partition('.')[0]}, which is not installed: "
            "pip install 'ziggurat[tables]'"
        ) from e
