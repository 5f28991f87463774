"""What the command line builds from: OME-Zarr images, zarr arrays, TIFF and NumPy files."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree
from zipfile import is_zipfile

import numpy as np

from ziggurat.create import Place
from ziggurat.errors import MetadataError, StoreError
from ziggurat.given import Given, as_given
from ziggurat.opening import open_pyramid

__all__ = ["opened"]

_ORDER = "tczyx"

# OME-XML writes symbols, OME-Zarr names.
_UNITS = {
    **{"m": "meter", "cm": "centimeter", "mm": "millimeter", "µm": "micrometer", "um": "micrometer"},
    **{"nm": "nanometer", "pm": "picometer", "Å": "angstrom", "in.": "inch"},
}


@contextmanager
def opened(where: str) -> Iterator[Any]:
    """Open what lies at `where` for `ziggurat.build`, for a while; no pixel is read.

    Raises
    ------
    ModuleNotFoundError
        When it is a TIFF file and tifffile is not installed.
    MetadataError
        When the axes of a TIFF file are no axes of an image.
    StoreError
        When it is a file of another kind.
    ZigguratError
        As `ziggurat.open_pyramid`.
    """
    suffix = Path(where).suffix.lower()
    if suffix == ".npy":
        yield np.load(where, mmap_mode="r")
    elif suffix in (".tif", ".tiff"):
        with _tiff(where) as given:
            yield given
    elif Path(where).is_file() and not is_zipfile(where):
        raise StoreError(
            f"{where} is none of what is read: OME-Zarr, a zarr array, .npy, .tif; convert it, or use Python"
        )
    else:
        node = Place(where).node() if Path(where).is_dir() else None
        yield node if hasattr(node, "chunks") else open_pyramid(where)


@contextmanager
def _tiff(where: str) -> Iterator[Given]:
    """Read the first series, lazily: its axes, and the voxel size of OME-TIFF."""
    try:
        import tifffile
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("TIFF files are read by tifffile: pip install 'ziggurat[tiff]'") from error
    import dask.array as da
    import zarr

    with tifffile.TiffFile(where) as file:
        axes, description = file.series[0].axes, file.ome_metadata
    axes = axes.lower() if "C" in axes else axes.lower().replace("s", "c")
    if unknown := sorted(set(axes) - set(_ORDER)):
        raise MetadataError(f"{where} has axes {axes!r}; {unknown} are none of {', '.join(_ORDER)}: convert it first")
    names = "".join(a for a in _ORDER if a in axes)
    scale, units = _voxels(description, names)
    with closing(cast("Any", tifffile.imread(where, aszarr=True, series=0, level=0))) as store:
        pixels = da.from_zarr(zarr.open_array(store, mode="r")).transpose([axes.index(a) for a in names])
        yield as_given(pixels, names, scale, None, units)


def _voxels(description: str | None, names: str) -> tuple[dict[str, float], dict[str, str]]:
    """Return scale and unit of each spatial axis that OME-XML tells the voxel size of."""
    root = ElementTree.fromstring(description) if description else None
    pixels = root.find(".//{*}Pixels") if root is not None else None
    found = dict(pixels.items()) if pixels is not None else {}
    sizes = {a: float(size) for a in "zyx" if a in names and (size := found.get(f"PhysicalSize{a.upper()}"))}
    symbols = {a: found.get(f"PhysicalSize{a.upper()}Unit", "µm") for a in sizes}
    return sizes, {a: _UNITS[symbol] for a, symbol in symbols.items() if symbol in _UNITS}
