"""OME-Zarr image metadata of new images and new levels, as plain attributes; what others wrote is kept."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version as version_of
from typing import Any

from ziggurat.errors import MetadataError
from ziggurat.layout import Layout
from ziggurat.ngff import Axis, Dataset, level_transform, read_image
from ziggurat.validation import AXIS_TYPES

__all__ = [
    "as_axes",
    "datasets_of",
    "default_axes",
    "image_attributes",
    "labels_attributes",
    "own_transform",
    "with_datasets",
]

_DEFAULT_AXES = "tczyx"


def default_axes(n: int) -> tuple[str, ...]:
    """Return names for `n` axes that nobody named: the last of t, c, z, y, x; but c before y and x is never guessed."""
    names = {3: "zyx", 4: "czyx"}.get(n, _DEFAULT_AXES[-n:])
    return tuple(names) if n <= len(_DEFAULT_AXES) else tuple(f"axis{i}" for i in range(n))


def as_axes(names: Sequence[str], units: Mapping[str, str] | None) -> tuple[Axis, ...]:
    """Return axes with the type that their names imply."""
    if unknown := set(units or ()) - set(names):
        raise MetadataError(f"units are given for {sorted(unknown)}, the axes are {tuple(names)}")
    return tuple(Axis(n, AXIS_TYPES.get(n), (units or {}).get(n)) for n in names)


def datasets_of(
    names: Iterable[str], layouts: Sequence[Layout], scale: Sequence[float], translation: Sequence[float]
) -> tuple[Dataset, ...]:
    """Place the levels: by the centre of their grids."""
    return tuple(
        Dataset(name, *level_transform(scale, translation, layout.factors))
        for name, layout in zip(names, layouts, strict=True)
    )


def image_attributes(
    before: Mapping[str, Any],
    version: str,
    axes: Sequence[Axis],
    datasets: Sequence[Dataset],
    name: str,
    method: str,
    parameters: Mapping[str, Any],
    label: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the attributes of an image group.

    Parameters
    ----------
    before : mapping
        Attributes to keep.
    version : {"0.4", "0.5"}
        Of OME-Zarr.
    method, parameters
        How the coarser levels are computed; recorded for whoever rebuilds them.
    label : mapping, optional
        What ``image-label`` says, for a label image.

    Raises
    ------
    MetadataError
        When OME-Zarr does not allow such an image.
    """
    entry = {
        "name": name,
        "axes": [_axis(a) for a in axes],
        "datasets": [_dataset(d) for d in datasets],
        "type": method,
        "metadata": _how({"method": method, **parameters}),
    }
    stamp = {"version": version} if version == "0.4" else {}
    ome: dict[str, Any] = {"multiscales": [stamp | entry]}
    if label is not None:
        ome["image-label"] = stamp | dict(label)
    merged = _merged(before, version, ome)
    _check(merged, name, version)
    return merged


def with_datasets(
    before: Mapping[str, Any], index: int, datasets: Sequence[Dataset], how: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return attributes `before` whose multiscale number `index` has `datasets` after its first, and no others.

    What is there stays as it is; `how` is recorded where the metadata names no method.
    """
    after = copy.deepcopy(dict(before))
    entry = after.get("ome", after)["multiscales"][index]
    entry["datasets"] = [entry["datasets"][0], *map(_dataset, datasets)]
    if how is not None and "type" not in entry:
        entry |= {"type": how["method"], "metadata": entry.get("metadata") or _how(how)}
    return after


def own_transform(attributes: Mapping[str, Any], where: str, index: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return scale and translation of level 0 alone, without those of the whole pyramid."""
    bare = copy.deepcopy(dict(attributes))
    bare.get("ome", bare)["multiscales"][index].pop("coordinateTransformations", None)
    dataset = read_image(bare, where, index).datasets[0]
    assert dataset.scale is not None
    return dataset.scale, dataset.translation


def carried(before: Mapping[str, Any], version: str | None) -> dict[str, Any]:
    """Return what the attributes of an image say besides its levels, for a copy of it in `version`."""
    levels = ("multiscales", "image-label", "version", "ome")
    ome = {k: v for k, v in before.get("ome", {}).items() if k not in levels}
    others = {k: v for k, v in before.items() if k not in levels}
    if version != "0.5":
        return {**ome, **others}
    return {"ome": ome | ({"omero": others.pop("omero")} if "omero" in others else {}), **others}


def label_of(attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what ``image-label`` says, for a label image."""
    found = attributes.get("ome", attributes).get("image-label")
    return {k: v for k, v in found.items() if k != "version"} if isinstance(found, Mapping) else None


def labels_attributes(before: Mapping[str, Any], version: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the attributes of a ``labels`` group that lists `names`."""
    return _merged(before, version, {"labels": list(names)})


def _merged(before: Mapping[str, Any], version: str, ome: Mapping[str, Any]) -> dict[str, Any]:
    if version == "0.4":
        return {**before, **ome}
    return {**before, "ome": {"version": version, **(before.get("ome") or {}), **ome}}


def _check(attributes: Mapping[str, Any], name: str, version: str) -> None:
    try:
        read_image(attributes, name)
    except MetadataError as e:
        reason = str(e).partition(". levels=[...]")[0]
        raise MetadataError(
            f"OME-Zarr {version} does not allow this image: {reason}. Name 2 to 5 axes, of t, c, z, y, x in this "
            "order, with axes=; or make a plain zarr group, with version=None"
        ) from e


def _how(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Say what computes the coarser levels, in the words that OME-Zarr gives for it."""
    return {
        "description": "Each level is computed from the next finer one.",
        "method": "ziggurat.consolidate",
        "version": version_of("ziggurat"),
        "kwargs": {k: _json(v) for k, v in parameters.items() if v is not None},
    }


def _axis(axis: Axis) -> dict[str, str]:
    values = {"name": axis.name, "type": axis.type, "unit": axis.unit}
    return {k: v for k, v in values.items() if v is not None}


def _dataset(dataset: Dataset) -> dict[str, Any]:
    assert dataset.scale is not None
    steps: list[dict[str, Any]] = [{"type": "scale", "scale": list(dataset.scale)}]
    if any(dataset.translation):
        steps.append({"type": "translation", "translation": list(dataset.translation)})
    return {"path": dataset.path, "coordinateTransformations": steps}


def _json(value: Any) -> Any:
    """Return what JSON can hold: it has no NaN and no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
