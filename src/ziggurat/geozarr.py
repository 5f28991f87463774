"""Pyramids of the ``multiscales`` zarr convention, as GeoZarr has them: from a plain dict of attributes to levels."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ziggurat.errors import MetadataError
from ziggurat.listing import REMEDY
from ziggurat.ngff import method_of

__all__ = ["Asset", "pick_variable", "read_assets"]


@dataclass(frozen=True, slots=True)
class Asset:
    """One level of a layout.

    Attributes
    ----------
    path : str
        Of its array, or of the group that holds its arrays.
    scale : tuple of float
        Pixels of the level that nothing is derived from, per pixel, along the last axes; empty where nobody says.
    method : str or None
        How it was computed, where that is a method of ours.
    """

    path: str
    scale: tuple[float, ...]
    method: str | None


def read_assets(attributes: Mapping[str, Any], where: str) -> tuple[Asset, ...] | None:
    """Read the layout that a group's attributes describe; None where they have none.

    Raises
    ------
    MetadataError
        When there is a layout that cannot be read.

    Examples
    --------
    >>> layout = [{"asset": "0"}, {"asset": "1", "derived_from": "0", "transform": {"scale": [2, 2]}}]
    >>> [asset.scale for asset in read_assets({"multiscales": {"layout": layout}}, "dem.zarr")]
    [(), (2.0, 2.0)]
    """
    multiscales = attributes.get("multiscales")
    if not isinstance(multiscales, Mapping):
        return None
    layout = multiscales.get("layout")
    if not isinstance(layout, Sequence) or isinstance(layout, str) or not layout:
        raise MetadataError(f"{where}: multiscales.layout is {reprlib.repr(layout)}, not a list of levels. {REMEDY}.")
    entries = {path: entry for i, entry in enumerate(layout) if (path := _path(entry, f"{where}: layout[{i}]"))}
    default = multiscales.get("resampling_method")
    return tuple(
        Asset(path, _scale(path, entries, where), method_of(entry.get("resampling_method", default)))
        for path, entry in entries.items()
    )


def _path(entry: Any, where: str) -> str:
    path = entry.get("asset") if isinstance(entry, Mapping) else None
    if not isinstance(path, str) or not path or path.startswith("/") or ".." in path.split("/"):
        raise MetadataError(f"{where}.asset: {reprlib.repr(path)} is no path in the group. {REMEDY}.")
    return path


def _scale(path: str, entries: Mapping[str, Any], where: str) -> tuple[float, ...]:
    """Multiply the scales on the way down to what the level is derived from in the end."""
    found: tuple[float, ...] = ()
    seen: list[str] = []
    while path in entries:
        if path in seen:
            raise MetadataError(f"{where}: the levels {seen} are derived from one another. {REMEDY}.")
        seen.append(path)
        scale = (entries[path].get("transform") or {}).get("scale", ()) if entries[path].get("derived_from") else ()
        if found and scale and len(found) != len(scale):
            raise MetadataError(f"{where}: {path!r} has {len(scale)} scales, {seen[0]!r} {len(found)}. {REMEDY}.")
        ones = (1.0,) * (len(found) or len(scale))
        found = tuple(float(a * b) for a, b in zip(found or ones, scale or ones, strict=True))
        path = entries[path].get("derived_from", "")
    return found


def pick_variable(groups: Mapping[str, Mapping[str, int]], where: str) -> dict[str, str]:
    """Return the array's path in each group, where all have one image of the same name.

    Parameters
    ----------
    groups : mapping
        Path of each group to its arrays' names and their numbers of axes; coordinates have one at most.

    Raises
    ------
    MetadataError
        When there is none, or more than one.
    """
    names = [{name for name, ndim in arrays.items() if ndim > 1} for arrays in groups.values()]
    shared = sorted(set.intersection(*names)) if names else []
    if len(shared) != 1:
        raise MetadataError(
            f"{where}: the groups of the layout share {len(shared)} images, {shared}: name the arrays of one, finest "
            f"first, as in levels={[f'{path}/{shared[0]}' for path in groups] if shared else '[...]'}"
        )
    return {path: f"{path}/{shared[0]}" for path in groups}
