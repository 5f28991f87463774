"""What groups of OME-Zarr list that are no image themselves: plates, wells, labels, collections."""

from collections.abc import Mapping
from typing import Any

__all__ = ["REMEDY", "image_paths", "label_names", "n_multiscales", "not_an_image"]

REMEDY = "levels=[...] with the arrays' paths opens them all the same"


def label_names(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the label images that the attributes of a ``labels`` group list; empty for any other group.

    Examples
    --------
    >>> label_names({"ome": {"version": "0.5", "labels": ["cells"]}})
    ('cells',)
    """
    match attributes.get("ome", attributes):
        case {"labels": [*names]}:
            return tuple(name for name in names if isinstance(name, str))
    return ()


def image_paths(attributes: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the groups that a plate, a well, a labels group or a collection lists; None for any other group.

    A plate lists its wells, which list their images in turn.

    Examples
    --------
    >>> image_paths({"well": {"images": [{"path": "0"}]}})
    ('0',)
    """
    match attributes.get("ome", attributes):
        case {"plate": plate}:
            return tuple(_paths(plate, "wells"))
        case {"well": well}:
            return tuple(_paths(well, "images"))
        case {"labels": _}:
            return label_names(attributes)
        case {"series": [*paths]}:
            return tuple(map(str, paths))
    return None


def n_multiscales(attributes: Mapping[str, Any]) -> int:
    """Return how many pyramids an image group lists; one where it does not say: opening that tells what is wrong."""
    match attributes.get("ome", attributes):
        case {"multiscales": [*entries]}:
            return max(1, len(entries))
    return 1


def not_an_image(ome: Mapping[str, Any], where: str) -> str:
    """Say what the group is instead, and what to open."""
    match ome:
        case {"plate": plate}:
            kind, paths = "a plate", [f"{path}/0" for path in _paths(plate, "wells")]
        case {"well": well}:
            kind, paths = "a well", _paths(well, "images")
        case {"labels": _}:
            kind, paths = "a labels group", list(label_names(ome))
        case {"series": [*paths]}:
            kind = "a list of series"
            where = where.rstrip("/\\").removesuffix("OME")
        case {"bioformats2raw.layout": _}:
            kind, paths = "a bioformats2raw collection", ["0"]
        case _:
            return f"no OME-Zarr image is described here (no multiscales). {REMEDY}."
    shown = ", ".join(f"{where.rstrip('/')}/{path}" for path in paths[:3])
    more = f" (the first of {len(paths)})" if len(paths) > 3 else ""
    return f"this is {kind}, not an image. Open one of its images: {shown or 'it lists none'}{more}."


def _paths(parent: object, key: str) -> list[str]:
    items = parent.get(key) if isinstance(parent, Mapping) else None
    items = items if isinstance(items, list) else []
    return [str(item["path"]) for item in items if isinstance(item, Mapping) and "path" in item]
