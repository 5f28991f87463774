"""OME-Zarr image metadata, 0.4 and 0.5: from a plain dict of attributes to a frozen value; transforms of new levels."""

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any

from ziggurat.errors import MetadataError
from ziggurat.listing import REMEDY, not_an_image
from ziggurat.validation import validated

__all__ = [
    "Axis",
    "Dataset",
    "Image",
    "level_transform",
    "lies_in_labels",
    "method_of",
    "read_image",
    "scale_ratio",
]

_NAMES = ("nearest", "stride", "linear", "cubic", "gaussian", "mean", "median", "mode", "min", "max")
_METHODS = {
    **dict(zip(_NAMES, _NAMES, strict=True)),
    **dict.fromkeys(("nearestneighbor", "nearestneighbour"), "nearest"),
    **dict.fromkeys(("bilinear", "trilinear"), "linear"),
    **dict.fromkeys(("bicubic", "tricubic"), "cubic"),
    **dict.fromkeys(("average", "localmean"), "mean"),
    "majority": "mode",
    "med": "median",
    "gauss": "gaussian",
    "minimum": "min",
    "maximum": "max",
}


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its name, its type ("space", "time", "channel", another or None) and its unit."""

    name: str
    type: str | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """One level: the path of its array, and where pixel i lies: ``scale * i + translation`` in the axes' units.

    `scale` is None for a level that no metadata describes.
    """

    path: str
    scale: tuple[float, ...] | None
    translation: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Image:
    """What the metadata says about one pyramid, finest level first; `method` is None where it names none of ours.

    `nodata` is the value of pixels that do not count, where the one who recorded the method recorded it.
    """

    axes: tuple[Axis, ...]
    datasets: tuple[Dataset, ...]
    method: str | None
    is_label: bool
    name: str | None
    version: str
    nodata: float | int | None = None


def read_image(attributes: Mapping[str, Any], where: str, index: int = 0) -> Image:
    """Read the pyramid that a group's attributes describe.

    Parameters
    ----------
    attributes : mapping
        The group's attributes: ``multiscales`` in them is 0.4, ``ome`` in them is 0.5.
    where : str
        Path or URL of the group: for messages, and because an image under ``labels/`` is a label image.
    index : int
        Which of the ``multiscales`` to read.

    Raises
    ------
    MetadataError
        When there is no image, or its metadata is invalid.

    Examples
    --------
    >>> scale = {"type": "scale", "scale": [0.5, 0.5]}
    >>> axes = [{"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    >>> datasets = [{"path": "0", "coordinateTransformations": [scale]}]
    >>> image = read_image({"multiscales": [{"axes": axes, "datasets": datasets, "type": "Gaussian"}]}, "cells.zarr")
    >>> image.datasets[0].scale, image.method
    ((0.5, 0.5), 'gaussian')
    """
    version, ome = _versioned(attributes, where)
    multiscale = validated(version, _entry(ome, where, index), f"{where}: multiscales[{index}]")
    method = method_of(multiscale.get("type"))
    return Image(
        axes=tuple(Axis(axis["name"], axis.get("type"), axis.get("unit")) for axis in multiscale["axes"]),
        datasets=_datasets(multiscale, f"{where}: multiscales[{index}]"),
        method=method,
        is_label="image-label" in ome or lies_in_labels(where),
        name=multiscale.get("name"),
        version=version,
        nodata=_nodata(multiscale.get("metadata"), method),
    )


def level_transform(
    base_scale: Sequence[float], base_translation: Sequence[float], factors: Sequence[int | Fraction]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return scale and translation of a level whose pixels cover `factors` pixels of the base level.

    The level is placed by the centre of its grid, whatever the method samples, so that images and labels overlay. Each
    number is exact until it is rounded once, to float.

    Examples
    --------
    >>> level_transform((0.5, 0.5), (10.0, 20.0), (1, 4))
    ((0.5, 2.0), (10.0, 20.75))
    """
    exact = [Fraction(base) * factor for base, factor in zip(base_scale, factors, strict=True)]
    shifts = ((scale - Fraction(base)) / 2 for scale, base in zip(exact, base_scale, strict=True))
    origins = (Fraction(base) + shift for base, shift in zip(base_translation, shifts, strict=True))
    return tuple(map(float, exact)), tuple(map(float, origins))


def scale_ratio(source: Dataset, target: Dataset) -> tuple[float | None, ...] | None:
    """Return the scale of `target` over that of `source` per axis; None where the metadata does not say.

    A scale of 0, as some writers give an axis of unknown spacing, says nothing.

    Examples
    --------
    >>> scale_ratio(Dataset("0", (0.0, 0.5), (0.0, 0.0)), Dataset("1", (0.0, 1.0), (0.0, 0.0)))
    (None, 2.0)
    """
    if source.scale is None or target.scale is None:
        return None
    pairs = zip(source.scale, target.scale, strict=True)
    return tuple(coarse / fine if fine and coarse / fine > 0 else None for fine, coarse in pairs)


def _versioned(attributes: Mapping[str, Any], where: str) -> tuple[str, Mapping[str, Any]]:
    """Return the version and the mapping that holds ``multiscales``."""
    ome = attributes.get("ome")
    if ome is None:
        return "0.4", attributes
    if not isinstance(ome, Mapping):
        raise MetadataError(f"{where}: ome is {reprlib.repr(ome)}, not an object. {REMEDY}.")
    if (version := ome.get("version", "0.5")) != "0.5":
        raise MetadataError(f"{where}: ome.version is {version!r}; 0.4 and 0.5 are read. {REMEDY}.")
    return "0.5", ome


def _entry(ome: Mapping[str, Any], where: str, index: int) -> Mapping[str, Any]:
    if "multiscales" not in ome:
        raise MetadataError(f"{where}: {not_an_image(ome, where)}")
    match ome["multiscales"]:
        case [*entries] if 0 <= index < len(entries) and isinstance(entries[index], Mapping):
            return dict(entries[index])
        case found:
            raise MetadataError(
                f"{where}: multiscales has no object at index {index}: {reprlib.repr(found)}. {REMEDY}."
            )


def _datasets(multiscale: Mapping[str, Any], where: str) -> tuple[Dataset, ...]:
    datasets = tuple(_dataset(dataset, multiscale) for dataset in multiscale["datasets"])
    paths = [dataset.path for dataset in datasets]
    for level, dataset in enumerate(datasets):
        if paths.index(dataset.path) != level:
            raise MetadataError(f"{where}.datasets[{level}].path: {dataset.path!r} is listed twice. {REMEDY}.")
        if not all(map(isfinite, (*(dataset.scale or ()), *dataset.translation))):
            raise MetadataError(f"{where}.datasets[{level}]: a transformation is not finite: {dataset}. {REMEDY}.")
    return datasets


def _dataset(dataset: Mapping[str, Any], multiscale: Mapping[str, Any]) -> Dataset:
    """Combine the level's own transforms with those of the whole pyramid, which are applied after them."""
    scale, translation = _affine(dataset["coordinateTransformations"])
    if multiscale.get("coordinateTransformations"):
        outer, shift = _affine(multiscale["coordinateTransformations"])
        scale = tuple(a * b for a, b in zip(scale, outer, strict=True))
        translation = tuple(t * a + b for t, a, b in zip(translation, outer, shift, strict=True))
    return Dataset(dataset["path"], scale, translation)


def _affine(transforms: Sequence[Mapping[str, Any]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return scale and translation; validation saw to it that there is one scale, then at most one translation."""
    scale = tuple(map(float, transforms[0]["scale"]))
    return scale, tuple(map(float, transforms[1]["translation"])) if len(transforms) > 1 else (0.0,) * len(scale)


def method_of(word: str | None) -> str | None:
    """Return the method that a word of some metadata means; None where it means none of ours."""
    return _METHODS.get(re.sub(r"[\W_]", "", word or "").lower())


def _nodata(metadata: Any, method: str | None) -> float | int | None:
    """Return ``nodata`` as `ziggurat.build` records it beside the method; None where it is another's."""
    match metadata:
        case {"method": "ziggurat.consolidate", "kwargs": {"method": str(word), "nodata": value}}:
            pass
        case _:
            return None
    if method is None or method_of(word) != method or isinstance(value, bool):
        return None
    try:
        # JSON has no NaN and no infinity: these are words.
        return value if isinstance(value, int | float) else float(value)
    except (TypeError, ValueError):
        return None


def lies_in_labels(where: str) -> bool:
    """Say whether a directory above `where` is called ``labels``; a URL's host is none."""
    _, scheme, rest = where.rpartition("://")
    directories = re.split(r"[/\\]", rest.rstrip("/\\"))[:-1]
    return "labels" in (directories[1:] if scheme else directories)
