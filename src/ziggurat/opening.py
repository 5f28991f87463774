"""Opens pyramids: from a path, a URL, a store, a group or a list of arrays; and all that a plate holds."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ziggurat import ngff
from ziggurat.config import get_config
from ziggurat.errors import LevelError, PyramidNotFoundError
from ziggurat.geozarr import Asset, pick_variable, read_assets
from ziggurat.listing import image_paths, n_multiscales
from ziggurat.pyramid import Pyramid
from ziggurat.remote import Backend, check_options
from ziggurat.runtime import check_pipeline
from ziggurat.settings import RetryConfig
from ziggurat.store import get_arrays, get_group, level_of, open_group, retried
from ziggurat.virtual import Virtual, is_virtual

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

__all__ = ["Where", "open_pyramid", "open_pyramids"]

type Where = str | Path | Store | zarr.Group | Sequence[zarr.Array[Any] | Virtual]


def open_pyramid(
    where: Where,
    levels: Sequence[str] | None = None,
    *,
    index: int = 0,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> Pyramid:
    """Open a pyramid.

    Parameters
    ----------
    where : str, Path, zarr store, zarr.Group or sequence of zarr.Array
        A path is taken literally, whatever characters it holds; a ``file://`` URL is decoded once; ``s3://``,
        ``gs://`` and ``https://`` (read-only) URLs are opened with `backend`. Arrays are listed finest first.
    levels : sequence of str, optional
        Paths of the arrays in the group, finest first, instead of what the metadata lists: OME-Zarr (0.4, 0.5), or
        the ``multiscales`` zarr convention of GeoZarr.
    index : int
        Which of the ``multiscales`` in the metadata.
    storage_options : dict, optional
        Credentials, endpoint and the like: what fsspec's file system, or `obstore.store.from_url`, accepts.
    backend : {"fsspec", "obstore"}
        What makes the requests to a URL.

    Notes
    -----
    The settings ``io_retry`` and ``zarr`` are copied into what is opened; they travel with it to workers.

    Raises
    ------
    PyramidNotFoundError
        When there is no zarr group.
    MetadataError
        When the group has no OME-Zarr metadata that can be read, and `levels` is not given.
    LevelError, DTypeError
        When a level is missing, or the levels do not belong together.

    Examples
    --------
    >>> import zarr
    >>> group = zarr.create_group({})
    >>> for k, n in enumerate((64, 32)):
    ...     _ = group.create_array(str(k), shape=(n, n), chunks=(16, 16), dtype="uint8")
    >>> open_pyramid(group, levels=["0", "1"]).levels[1].shape
    (32, 32)
    """
    config = get_config()
    pyramid = _open(where, levels, index, config.io_retry, storage_options, backend)
    settings = config.zarr.model_copy()
    for array in pyramid.arrays:
        if not is_virtual(array):
            settings = check_pipeline(settings, array)
    return replace(pyramid, settings=settings)


def open_pyramids(
    where: "str | Path | Store | zarr.Group",
    *,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> Iterator[Pyramid]:
    """Open every image in a plate, a well, a labels group or a collection, one after the other.

    Parameters
    ----------
    where, storage_options, backend
        As in `open_pyramid`; an image is opened with each of its ``multiscales``.

    Yields
    ------
    Pyramid

    Raises
    ------
    PyramidNotFoundError, MetadataError, LevelError
        As `open_pyramid`, when the image that is wrong comes up.

    Examples
    --------
    >>> import zarr
    >>> from ziggurat import build
    >>> plate = zarr.create_group({}, attributes={"ome": {"version": "0.5", "well": {"images": [{"path": "0"}]}}})
    >>> _ = build([[1, 2]], plate.create_group("0"))
    >>> [pyramid.levels[0].shape for pyramid in open_pyramids(plate)]
    [(1, 2)]
    """
    config = get_config()
    group = open_group(where, storage_options, policy=config.io_retry, backend=backend)
    yield from _images(group, _place(where, group))


def _images(group: "zarr.Group", place: str) -> Iterator[Pyramid]:
    attributes = group.attrs.asdict()
    paths = image_paths(attributes)
    if paths is None:
        for index in range(n_multiscales(attributes)):
            yield replace(open_pyramid(group, index=index), where=place)
        return
    for path in paths:
        found = get_group(group, path)
        if found is None:
            raise PyramidNotFoundError(
                f"{place} lists {path!r}, but there is no such group: create it, or correct the list"
            )
        yield from _images(found, f"{place.rstrip('/')}/{path}")


def _open(
    where: Where,
    levels: Sequence[str] | None,
    index: int,
    policy: RetryConfig,
    storage_options: dict[str, Any] | None,
    backend: Backend,
) -> Pyramid:
    if isinstance(where, Sequence) and not isinstance(where, str):
        check_options(where, storage_options, backend)
        return _from_arrays([retried(cast("Any", a), policy) if hasattr(a, "store_path") else a for a in where])
    group = open_group(where, storage_options, policy=policy, backend=backend)
    place = _place(where, group)
    if levels is not None:
        arrays = _arrays(group, levels, place)
        return _from_arrays(arrays, place, tuple(levels))
    if (assets := read_assets(group.attrs.asdict(), place)) is not None:
        return _from_assets(group, assets, place)
    return _from_image(group, ngff.read_image(group.attrs.asdict(), place, index), place, index)


def _from_image(group: "zarr.Group", image: ngff.Image, place: str, index: int) -> Pyramid:
    arrays = _arrays(group, [d.path for d in image.datasets], place)
    levels = tuple(level_of(a, d.path, d.scale, d.translation) for a, d in zip(arrays, image.datasets, strict=True))
    axes = tuple(a.name for a in image.axes)
    if any(len(axes) != a.ndim for a in arrays):
        raise LevelError(f"{place}: the metadata names {len(axes)} axes, {axes}, its arrays have {arrays[0].ndim}")
    method = image.method or ("mode" if image.is_label else "mean")
    return Pyramid(place, levels, arrays, axes, method, image.name, image=image, index=index)


def _from_assets(group: "zarr.Group", assets: Sequence[Asset], place: str) -> Pyramid:
    """Open the levels of a layout; they are listed in any order, and a group may stand for the one image in it."""
    groups = {a.path: found for a in assets if (found := get_group(group, a.path)) is not None}
    paths = pick_variable({p: {n: a.ndim for n, a in g.arrays()} for p, g in groups.items()}, place) if groups else {}
    opened = list(zip(_arrays(group, [paths.get(a.path, a.path) for a in assets], place), assets, strict=True))
    opened.sort(key=lambda pair: -pair[0].size)
    pyramid = _from_arrays([array for array, _ in opened], place, [array.path for array, _ in opened])
    scales = [(1.0,) * (a.ndim - len(asset.scale)) + asset.scale for a, asset in opened]
    levels = tuple(
        replace(v, name=_inside(group, v.name), scale=s) for v, s in zip(pyramid.levels, scales, strict=True)
    )
    method = next((asset.method for _, asset in reversed(opened) if asset.method), pyramid.method)
    return replace(pyramid, levels=levels, method=method)


def _inside(group: "zarr.Group", path: str) -> str:
    return path.removeprefix(f"{group.path}/") if group.path else path


def _from_arrays(arrays: Sequence[Any], place: str | None = None, names: Sequence[str] | None = None) -> Pyramid:
    if not arrays:
        raise LevelError("a pyramid has at least one level: list its arrays, finest first")
    stored = arrays[1:] if isinstance(arrays[0], Virtual) else arrays
    if wrong := [type(a).__name__ for a in stored or arrays if not hasattr(a, "store_path")]:
        raise LevelError(f"a pyramid is a list of zarr arrays, finest first; found {wrong[0]}")
    place = place or str(stored[0].store_path)
    named = zip(arrays, names or cycle([None]), strict=False)
    levels = tuple(a.level if isinstance(a, Virtual) else level_of(a, n) for a, n in named)
    dimension_names = getattr(stored[0].metadata, "dimension_names", None) or ()
    axes = tuple(n or f"axis{i}" for i, n in enumerate(dimension_names)) or tuple(
        f"axis{i}" for i in range(arrays[0].ndim)
    )
    is_label = ngff.lies_in_labels(place)
    return Pyramid(place, levels, tuple(arrays), axes, "mode" if is_label else "mean")


def _place(where: Any, node: Any) -> str:
    """Return where the group lies: an absolute path where it is local, so that ``labels`` above it is seen."""
    if isinstance(where, str | Path) and "://" not in str(where):
        return os.path.abspath(os.path.expanduser(where))
    return str(where) if isinstance(where, str) else str(node.store_path)


def _arrays(group: "zarr.Group", paths: Sequence[str], place: str) -> "tuple[zarr.Array[Any], ...]":
    arrays = get_arrays(group, paths)
    for array, path in zip(arrays, paths, strict=True):
        if array is None:
            raise LevelError(
                f"{place}: level {path!r} is listed, but there is no such array: create it, or correct the list"
            )
    return tuple(a for a in arrays if a is not None)
