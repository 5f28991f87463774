"""What xarray holds, written as it is: DataArrays to build from, and whole trees of levels."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ziggurat.building import copy_levels
from ziggurat.create import Place, default_creation
from ziggurat.errors import LevelError
from ziggurat.given import Given, as_given
from ziggurat.image import NewImage, Version
from ziggurat.layout import Layout, default_chunk, lay_out
from ziggurat.ngff import Dataset
from ziggurat.pyramid import Pyramid
from ziggurat.remote import Backend

if TYPE_CHECKING:
    import xarray as xr
    import zarr
    from zarr.abc.store import Store

__all__ = ["from_datatree"]


def from_datatree(
    tree: "xr.DataTree",
    where: "str | Path | Store | zarr.Group",
    *,
    name: str | None = None,
    version: Version = "0.5",
    overwrite: bool = False,
    mode: Literal["auto", "numpy", "dask"] = "auto",
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> Pyramid:
    """Write a tree with one node per level as a new image: each level as it is, none computed from another.

    Parameters
    ----------
    tree : xarray.DataTree
        One child per level, each with one variable; `ziggurat.Pyramid.to_datatree` makes such trees, and
        multiscale-spatial-image does. The level with most pixels is level 0.
    where, name, version, overwrite, mode, storage_options, backend
        As in `ziggurat.build`.

    Returns
    -------
    Pyramid
        The new image, opened.

    Raises
    ------
    LevelError
        When the tree has no levels, or a node has several variables.
    ZigguratError
        As `ziggurat.build`.

    Examples
    --------
    >>> import xarray as xr
    >>> from zarr.storage import MemoryStore
    >>> levels = {str(k): xr.Dataset({"image": (("y", "x"), [[k, k]])}) for k in range(1)}
    >>> from_datatree(xr.DataTree.from_dict(levels), MemoryStore()).levels[0].shape
    (1, 2)
    """
    nodes = _nodes(tree)
    given = {path: as_given(array) for path, array in nodes.items()}
    first = next(iter(given.values()))
    method = str(tree.attrs.get("method") or "mean")
    axes = [a.name for a in first.axes]
    place = Place(where, storage_options, backend)
    new = NewImage(
        version=version,
        axes=first.axes,
        datasets=[Dataset(path, g.scale, g.translation) for path, g in given.items()],
        layouts=[_layout(g, version) for g in given.values()],
        creation=default_creation(first.dtype, 2 if version == "0.4" else 3, 0, axes),
        name=name or tree.name or place.stem,
        method=method,
        parameters={},
        label={} if tree.attrs.get("is_label") else None,
    )
    pyramid = new.create(place, overwrite, list(nodes.values()))
    copy_levels(list(given.values()), pyramid, mode)
    return pyramid


def _nodes(tree: "xr.DataTree") -> "dict[str, xr.DataArray]":
    found = {}
    for path, node in tree.children.items():
        if len(node.data_vars) != 1:
            raise LevelError(f"node {path!r} of the tree has {len(node.data_vars)} variables: a level has one")
        found[path] = next(iter(node.data_vars.values()))
    if not found:
        raise LevelError("the tree has no children: a pyramid has one node per level")
    return dict(sorted(found.items(), key=lambda item: -item[1].size))


def _layout(given: Given, version: Version) -> Layout:
    chunk = given.chunk or default_chunk(given.shape, given.is_space, given.dtype.itemsize)
    return lay_out(given.shape, [], chunk, None if version == "0.4" else given.shard)[0]
