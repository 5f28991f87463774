"""Shows a pyramid in a web browser: what the page is told, and the server that runs while it is looked at."""

import posixpath
from collections.abc import Mapping
from importlib.resources import files
from threading import Thread
from typing import Any, Self

from ziggurat.create import group_of
from ziggurat.errors import StoreError, ViewError, ZigguratError
from ziggurat.grid import Level
from ziggurat.listing import label_names
from ziggurat.opening import Where, open_pyramid
from ziggurat.pyramid import Pyramid
from ziggurat.remote import Backend
from ziggurat.serving import Server, Source
from ziggurat.store import get_group

__all__ = ["View", "describe", "root_of", "view"]


def view(
    target: Where | Pyramid,
    *,
    port: int = 0,
    browser: bool = False,
    storage_options: dict[str, Any] | None = None,
    backend: Backend = "fsspec",
) -> "View":
    """Show a pyramid on a web page, with its labels on top, at an address that this computer alone can reach.

    Parameters
    ----------
    target : str, Path, zarr store, zarr.Group, sequence of zarr.Array or Pyramid
        As in `open_pyramid`.
    port : int
        Of the server; 0 for any that is free.
    browser : bool
        Open the page in the web browser.
    storage_options, backend
        As in `open_pyramid`.

    Returns
    -------
    View
        It has the `url`, and serves it until it is closed. Nothing is ever written.

    Raises
    ------
    ViewError
        When the page is not installed or cannot read the image's chunks, or the port is taken.
    StoreError
        When the levels lie in several stores.

    Examples
    --------
    >>> from ziggurat import build
    >>> import zarr
    >>> with view(build([[1, 2]], zarr.storage.MemoryStore())) as shown:  # doctest: +SKIP
    ...     print(shown.url)
    http://127.0.0.1:49152/
    """
    page = files("ziggurat") / "static"
    if not (page / "index.html").is_file():
        raise ViewError("the viewer's page is not installed: run `make viewer` in the source, it takes node and npm")
    pyramid = target if isinstance(target, Pyramid) else _opened(target, storage_options, backend)
    root = root_of(pyramid)
    shown = View(Server(page, describe(pyramid, root), Source(pyramid[0].store, root), port))
    if browser:
        import webbrowser

        webbrowser.open(shown.url)
    return shown


class View:
    """A page that is being served; close it, or leave its ``with`` block, to end that.

    Attributes
    ----------
    url : str
        The page's address.
    """

    def __init__(self, server: Server) -> None:
        self._server, self.url = server, server.url
        self._thread = Thread(target=server.serve_forever, args=(0.1,), name="ziggurat-view", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"View({self.url})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def wait(self) -> None:
        """Return when the view is closed, or raise KeyboardInterrupt."""
        self._thread.join()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _opened(where: Where, storage_options: dict[str, Any] | None, backend: Backend) -> Pyramid:
    return open_pyramid(where, storage_options=storage_options, backend=backend)


def root_of(pyramid: Pyramid) -> str:
    """Return the path in the store of the group above all levels.

    Raises
    ------
    StoreError
        When the levels lie in several stores.
    """
    if any(array.store != pyramid[0].store for array in pyramid.arrays):
        raise StoreError(f"{pyramid.where}: the levels lie in several stores; `view` shows those in one group")
    if pyramid.image is not None:
        return group_of(pyramid).path
    return posixpath.commonpath([posixpath.dirname(f"/{a.path}") for a in pyramid.arrays]).strip("/")


def describe(pyramid: Pyramid, root: str) -> dict[str, Any]:
    """Return what the page is told: the image, its label images, and where their pixels are under `root`."""
    about: dict[str, Any] = {"where": pyramid.where, "image": _layer(pyramid, root), "labels": [], "problems": []}
    if pyramid.image is None:
        return about
    group = group_of(pyramid)
    attributes = group.attrs.asdict()
    about["channels"] = _channels(attributes.get("ome", attributes))
    labels = get_group(group, "labels")
    for name in label_names(labels.attrs.asdict()) if labels is not None else ():
        found = get_group(group, f"labels/{name}")
        try:
            if found is None:
                raise StoreError(f"label {name!r} is listed and is not there")
            about["labels"].append(_layer(open_pyramid(found), root) | {"name": name, "is_label": True})
        except ZigguratError as error:
            # One label image that is broken leaves the others, and the image, to be seen.
            about["problems"].append(str(error))
    return about


def _check_readable(pyramid: Pyramid) -> None:
    """Refuse what the reader in the page would take for something else.

    Raises
    ------
    ViewError
        When chunks are of unequal sizes, the index of a shard is at its start, or there is no plane.
    """
    if len(pyramid.axes) < 2:
        raise ViewError(f"{pyramid.where} has one axis, {pyramid.axes[0]!r}; the page shows images of two and more")
    for level, array in zip(pyramid.levels, pyramid.arrays, strict=True):
        ends = (getattr(codec, "index_location", None) for codec in getattr(array.metadata, "codecs", ()))
        is_first = any(getattr(end, "value", end) == "start" for end in ends)
        if level.cuts is not None or is_first:
            what = "shards with their index at the start" if is_first else "chunks of unequal sizes"
            raise ViewError(f"{pyramid.where}: level {level.name!r} has {what}, which the page cannot read; copy it")


def _layer(pyramid: Pyramid, root: str) -> dict[str, Any]:
    _check_readable(pyramid)
    units = {a.name: a.unit for a in pyramid.image.axes} if pyramid.image else {}
    paths = [a.path.removeprefix(root).strip("/") for a in pyramid.arrays]
    return {
        "name": pyramid.name,
        "version": pyramid.image.version if pyramid.image else None,
        "is_label": pyramid.image.is_label if pyramid.image else False,
        "method": pyramid.method,
        "zarr_format": pyramid[0].metadata.zarr_format,
        "axes": [{"name": a, "unit": units.get(a)} for a in pyramid.axes],
        "levels": [
            _level(level, path) | place
            for level, path, place in zip(pyramid.levels, paths, _places(pyramid), strict=True)
        ],
    }


def _level(level: Level, path: str) -> dict[str, Any]:
    return {
        "name": level.name,
        "path": path,
        "shape": level.shape,
        "dtype": str(level.dtype),
        "chunk": level.chunk,
        "shard": level.unit if level.is_sharded else None,
        "scale": level.scale,
        "translation": level.translation,
        "bytes": level.nbytes,
    }


def _places(pyramid: Pyramid) -> list[dict[str, Any]]:
    """Return where each level lies: the ``step`` between its pixels and the ``start`` of the first one's outer edge.

    Levels without a scale cover the same place as level 0. So do, at its first edge, levels that all have one
    translation: then the metadata leave out what a coarser grid is shifted by.
    """
    levels, first = pyramid.levels, pyramid.levels[0]
    known = all(level.scale is not None and min(level.scale) > 0 for level in levels)
    steps = [
        level.scale
        if known and level.scale
        else tuple(n / max(1, m) for n, m in zip(first.shape, level.shape, strict=True))
        for level in levels
    ]
    shifts = [level.translation or (0.0,) * len(level.shape) for level in levels]
    starts = [
        tuple(t - s / 2 for t, s in zip(shift, step, strict=True)) for shift, step in zip(shifts, steps, strict=True)
    ]
    if not known or len(set(shifts)) == 1:
        starts = [starts[0]] * len(levels)
    return [{"step": step, "start": start} for step, start in zip(steps, starts, strict=True)]


def _channels(ome: Any) -> list[dict[str, Any]]:
    """Return what the metadata says of the channels' names, colours and contrast, as far as it makes sense."""
    match ome:
        case {"omero": {"channels": [*channels]}}:
            return [_channel(c if isinstance(c, Mapping) else {}) for c in channels]
    return []


def _channel(channel: Mapping[str, Any]) -> dict[str, Any]:
    color, label = channel.get("color"), channel.get("label")
    window: list[float] | None = None
    match channel.get("window"):
        case {"start": int() | float() as start, "end": int() | float() as end} if start < end:
            window = [start, end]
    return {
        "label": None if label is None else str(label),
        "color": color.lstrip("#").lower()[:6] if isinstance(color, str) else None,
        "active": channel.get("active") is not False,
        "window": window,
    }
