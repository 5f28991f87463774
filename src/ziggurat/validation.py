"""Whether one entry of ``multiscales`` is valid OME-Zarr: yaozarrs judges, and the plainest form needs no judge."""

import re
import reprlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ziggurat.errors import MetadataError
from ziggurat.listing import REMEDY

__all__ = ["AXIS_TYPES", "validated"]

AXIS_TYPES = {"t": "time", "c": "channel", "z": "space", "y": "space", "x": "space"}
_UNION_MEMBERS = {"ScaleTransformation", "TranslationTransformation", "custom", "space", "time", "channel"}
_PLAIN_TYPES = {
    (*time, *channel, *["space"] * n) for time in ((), ("time",)) for channel in ((), ("channel",)) for n in (2, 3)
}
# yaozarrs warns about other characters; names of dots alone, and names that begin with two underscores, it refuses.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


def validated(version: str, entry: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return `entry` with its values as numbers and text, once axes without a type have the one their name implies.

    Parameters
    ----------
    version : {"0.4", "0.5"}
    entry : mapping
        One of the ``multiscales``.
    where : str
        What messages call it.

    Raises
    ------
    MetadataError
        When the entry is invalid; the message names the field, what is wrong and what was found.

    Examples
    --------
    >>> datasets = [{"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1, 1]}]}]
    >>> validated("0.5", {"axes": [{"name": "y"}, {"name": "x"}], "datasets": datasets}, "cells.zarr")["axes"][0]
    {'name': 'y', 'type': 'space'}
    """
    if version == "0.4" and entry.get("version", version) != version:
        raise MetadataError(f"{where}.version is {entry['version']!r}; 0.4 and 0.5 are read. {REMEDY}.")
    axes = entry.get("axes")
    if isinstance(axes, list):
        entry = {**entry, "axes": [_typed(axis) for axis in axes]}
    return entry if is_plain(entry) else _judged(version, entry, where)


def is_plain(entry: Mapping[str, Any]) -> bool:
    """Say whether `entry` is in the plainest form, which is valid in each version: as most writers write it.

    It accepts less than yaozarrs, never more. Loading yaozarrs takes as long as rebuilding a small image.
    """
    axes: Any = entry.get("axes")
    outer, metadata = entry.get("coordinateTransformations"), entry.get("metadata")
    return (
        _are_plain_axes(axes)
        and _are_plain_datasets(entry.get("datasets"), [axis["type"] == "space" for axis in axes])
        and (outer is None or _are_plain_transforms(outer, len(axes)))
        and _is_plain_text(entry.get("name"))
        and _is_plain_text(entry.get("type"))
        and (metadata is None or type(metadata) is dict)
    )


def _are_plain_axes(axes: Any) -> bool:
    if type(axes) is not list or not all(type(axis) is dict and type(axis.get("name")) is str for axis in axes):
        return False
    if not all(_is_plain_text(axis.get(key)) for axis in axes for key in ("name", "type", "unit")):
        return False
    is_unique = len({axis["name"] for axis in axes}) == len(axes)
    return is_unique and tuple(axis.get("type") for axis in axes) in _PLAIN_TYPES


def _are_plain_datasets(datasets: Any, is_space: Sequence[bool]) -> bool:
    if type(datasets) is not list or not datasets or not all(type(dataset) is dict for dataset in datasets):
        return False
    paths = [dataset.get("path") for dataset in datasets]
    transforms = [dataset.get("coordinateTransformations") for dataset in datasets]
    if not all(type(path) is str and _PLAIN_PATH.fullmatch(path) for path in paths):
        return False
    if len(set(paths)) < len(paths) or not all(_are_plain_transforms(t, len(is_space)) for t in transforms):
        return False
    scales = [[s for s, is_spatial in zip(t[0]["scale"], is_space, strict=True) if is_spatial] for t in transforms]
    return scales == sorted(scales)


def _are_plain_transforms(transforms: Any, n_axes: int) -> bool:
    """Say whether this is one scale, and at most one translation after it."""
    if type(transforms) is not list or not 1 <= len(transforms) <= 2:
        return False
    kinds = zip(transforms, ("scale", "translation"), strict=False)
    return all(type(t) is dict and t.get("type") == kind and _are_numbers(t.get(kind), n_axes) for t, kind in kinds)


def _are_numbers(values: Any, n: int) -> bool:
    # Integers beyond 2**53 may change when they become floats; nan compares false.
    return type(values) is list and len(values) == n and all(type(v) in (int, float) and abs(v) < 2**53 for v in values)


def _is_plain_text(value: Any) -> bool:
    # JSON can hold halves of surrogate pairs, which no text may.
    return value is None or (type(value) is str and value.isascii())


def _judged(version: str, entry: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    from yaozarrs import v04, v05

    model: type[v04.Multiscale | v05.Multiscale] = v04.Multiscale if version == "0.4" else v05.Multiscale
    with warnings.catch_warnings():
        # Unusual units and names do not matter to a rebuild.
        warnings.filterwarnings("ignore", "(?s).*(SHOULD be one of|potentially risky characters)")
        try:
            return model.model_validate(entry).model_dump()
        except ValidationError as error:
            raise MetadataError(f"{where}{_problem(error)}. {REMEDY}.") from error


def _typed(axis: object) -> object:
    if isinstance(axis, Mapping) and axis.get("type") is None and axis.get("name") in AXIS_TYPES:
        return {**axis, "type": AXIS_TYPES[axis["name"]]}
    return axis


def _problem(error: ValidationError) -> str:
    """Name the field, what is wrong and what was found, of the first thing that is wrong."""
    first = error.errors(include_url=False)[0]
    parts = (part for part in first["loc"] if part not in _UNION_MEMBERS)
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    said = " ".join(first["msg"].removeprefix("Value error, ").split("\n\n")[0].split()).rstrip(".")
    return f"{field}: {said}, found {reprlib.repr(first['input'])}"
