"""New coarser levels for an image that is there already."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import zarr

from ziggurat import kernels
from ziggurat.api import Factors, consolidate
from ziggurat.changes import locked
from ziggurat.cluster import check_client
from ziggurat.create import consolidated_anew, creation_of, group_of, new_arrays
from ziggurat.errors import LevelError, StoreError
from ziggurat.events import OnProgress
from ziggurat.given import as_given, lay_out_given
from ziggurat.layout import Layout
from ziggurat.metadata import datasets_of, own_transform, with_datasets
from ziggurat.opening import Where, open_pyramid
from ziggurat.pyramid import Pyramid

__all__ = ["add_levels"]


def add_levels(
    target: Where | Pyramid,
    *,
    n_levels: int | None = None,
    factors: Factors = None,
    method: str = "auto",
    nodata: float | int | None = None,
    overwrite: bool = False,
    mode: Literal["auto", "numpy", "dask"] = "auto",
    progress: OnProgress = None,
    lock_timeout_s: float = 600.0,
    client: Any = None,
) -> Pyramid:
    """Give an image that has level 0 alone its coarser levels, and build them.

    Chunks, shards, codecs, fill value, key encoding and dimension names are those of level 0. What the metadata says
    already stays as it is; the levels are listed once they are there.

    Parameters
    ----------
    target : path, URL, zarr store, zarr.Group, or Pyramid
        The image; or a plain group of arrays, opened with ``levels=[...]``.
    n_levels, factors, method, nodata
        As in `ziggurat.build`.
    overwrite : bool
        Take coarser levels that are there off the list and delete them first.
    mode, progress, lock_timeout_s, client
        As in `ziggurat.consolidate`.

    Returns
    -------
    Pyramid
        The image with its new levels, opened.

    Raises
    ------
    LevelError
        When there are coarser levels already.
    StoreError
        When there is something else where a level would go.
    ZigguratError
        What cannot be done is refused before anything changes, as by `ziggurat.build`.

    Examples
    --------
    >>> import zarr
    >>> array = zarr.create_group({}).create_array("0", shape=(600, 600), chunks=(64, 64), dtype="uint8")
    >>> [level.shape for level in add_levels([array]).levels]
    [(600, 600), (300, 300), (150, 150)]
    """
    if client is not None:
        check_client(client)
    pyramid = target if isinstance(target, Pyramid) else open_pyramid(target)
    if len(pyramid) > 1 and not overwrite:
        raise LevelError(
            f"{pyramid.where} has coarser levels, {[level.name for level in pyramid.levels[1:]]}: rebuild them with "
            "consolidate, or say overwrite=True to make others"
        )
    chosen = pyramid.method if method == "auto" else method
    nodata = pyramid.nodata if method == "auto" and nodata is None else nodata
    kernels.check(chosen, pyramid.levels[0].native, nodata)
    layouts = lay_out_given(as_given(pyramid), n_levels=n_levels, factors=factors)
    names = _names(pyramid.levels[0].name, len(layouts))
    group = group_of(pyramid)
    with locked(pyramid[0], lock_timeout_s, "levels.lock"), consolidated_anew(group):
        _remove(pyramid, group, names[1:], overwrite)
        with new_arrays(group, names[1:], layouts[1:], creation_of(pyramid[0])) as arrays:
            if pyramid.image is not None:
                _list(group, pyramid, names, layouts, {"method": chosen, "nodata": nodata})
    made = open_pyramid(group, index=pyramid.index) if pyramid.image else open_pyramid([pyramid[0], *arrays])
    made = replace(made, where=pyramid.where)
    steps = [layout.step for layout in layouts[1:]]
    options: dict[str, Any] = {"factors": steps, "nodata": nodata, "progress": progress, "client": client}
    consolidate(made, method=chosen, mode=mode, **options)
    return made


def _names(first: str, n: int) -> list[str]:
    """Return the names of the levels, counted on from that of level 0: "0", "1"; "s0", "s1"; "full", "full_1"."""
    found = re.fullmatch(r"(.*?)(\d+)", first)
    if found is None:
        return [first, *(f"{first}_{k}" for k in range(1, n))]
    return [first, *(f"{found[1]}{int(found[2]) + k}" for k in range(1, n))]


def _remove(pyramid: Pyramid, group: zarr.Group, names: Sequence[str], overwrite: bool) -> None:
    """Take the coarser levels off the list, then delete them and whatever else is in the way."""
    if taken := [name for name in names if name in group and not overwrite]:
        raise StoreError(f"{pyramid.where}: there is something at {taken} already; say overwrite=True to delete it")
    if pyramid.image is not None and len(pyramid) > 1:
        group.attrs.put(with_datasets(group.attrs.asdict(), pyramid.index, []))
    for name in dict.fromkeys([*(level.name for level in pyramid.levels[1:]), *names]):
        if name in group:
            del group[name]


def _list(
    group: zarr.Group, pyramid: Pyramid, names: Sequence[str], layouts: Sequence[Layout], how: Mapping[str, Any]
) -> None:
    attributes = group.attrs.asdict()
    scale, translation = own_transform(attributes, pyramid.where, pyramid.index)
    datasets = datasets_of(names, layouts, scale, translation)
    group.attrs.put(with_datasets(attributes, pyramid.index, datasets[1:], how))
