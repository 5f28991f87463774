"""Label images of an image: where they lie, and the list that names them."""

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ziggurat.changes import locked
from ziggurat.create import Place, consolidated_anew, default_creation, group_of
from ziggurat.errors import GeometryError, MetadataError, StoreError
from ziggurat.given import Given
from ziggurat.grid import Level
from ziggurat.image import NewImage, Version
from ziggurat.layout import Layout
from ziggurat.listing import label_names
from ziggurat.metadata import labels_attributes
from ziggurat.ngff import Axis, Dataset
from ziggurat.opening import Where, open_pyramid
from ziggurat.pyramid import Pyramid
from ziggurat.remote import Backend
from ziggurat.store import get_group

__all__ = ["create_label", "label_given", "label_place", "register_label"]

# Threads that share a store in memory, or a remote one, have no file to lock.
_here = Lock()

_LOCK = "labels.lock"


def label_place(
    image: Where | Pyramid, name: Any, storage_options: dict[str, Any] | None = None, backend: Backend = "fsspec"
) -> tuple[Pyramid, Place, Version]:
    """Return the image, where its label image `name` goes, and the version of OME-Zarr that it has.

    Raises
    ------
    MetadataError
        When the name is none, or the image is no OME-Zarr image.
    """
    if not isinstance(name, str) or not name.strip("/."):
        raise MetadataError(f"the name of a label image is a text like 'nuclei', not {name!r}")
    if not isinstance(image, Pyramid):
        image = open_pyramid(image, storage_options=storage_options, backend=backend)
    if image.image is None:
        raise MetadataError(f"{image.where} has no OME-Zarr metadata, and so no labels: build it as an image first")
    place = Place(group_of(image), path=f"labels/{name.strip('/')}")
    place.name = f"{image.where.rstrip('/')}/labels/{name}"
    return image, place, "0.4" if image.image.version == "0.4" else "0.5"


def label_given(given: Given, image: Pyramid, *, named: bool, scaled: bool) -> Given:
    """Return label pixels with the axes and the scale of the image that they label.

    Raises
    ------
    MetadataError, GeometryError
        When the axes are others than the image's, or of other sizes without a scale of their own.
    """
    assert image.image is not None
    sizes = dict(zip(image.axes, image.levels[0].shape, strict=True))
    axes = given.axes if named else _matching(image.image.axes, given)
    known = {a.name: i for i, a in enumerate(image.image.axes)}
    if unknown := [a.name for a in axes if a.name not in known]:
        raise MetadataError(f"labels have axes {unknown}, which {image.where} has not: {image.axes}")
    given = replace(given, axes=tuple(image.image.axes[known[a.name]] for a in axes))
    if scaled:
        return given
    if wrong := [a.name for a, n in zip(axes, given.shape, strict=True) if n not in (1, sizes[a.name])]:
        raise GeometryError(
            f"labels of shape {given.shape} have other sizes along {wrong} than {image.where}, "
            f"{image.levels[0].shape}: say their scale="
        )
    level = image.levels[0]
    assert level.scale is not None and level.translation is not None
    return replace(
        given,
        scale=tuple(level.scale[known[a.name]] for a in axes),
        translation=tuple(level.translation[known[a.name]] for a in axes),
    )


def _matching(axes: Sequence[Axis], given: Given) -> Sequence[Axis]:
    """Return the image's axes for labels whose axes nobody named: all of them, or all but the channels."""
    if {a.name for a in given.axes} <= {a.name for a in axes}:
        return given.axes
    for found in (axes, [a for a in axes if a.type != "channel"]):
        if len(found) == len(given.shape):
            return found
    return given.axes


def register_label(image: Pyramid, name: str, timeout_s: float = 60.0) -> None:
    """Add `name` to the image's list of labels; parallel callers on a local file system lose nothing.

    Raises
    ------
    LockError
        When another process changes the list for too long.
    StoreError
        When another writer took the name off again: stores that are not local have no lock between processes.
    """
    with _here, locked(image[0], timeout_s, _LOCK):
        group = group_of(image)
        version = image.image.version if image.image else "0.5"
        with consolidated_anew(group):
            labels = get_group(group, "labels") or group.create_group("labels")
            before = labels.attrs.asdict()
            names = label_names(before)
            if name not in names:
                labels.update_attributes(labels_attributes(before, version, [*names, name]))
        listed = get_group(group, "labels")
        if listed is None or name not in label_names(listed.attrs.asdict()):
            raise StoreError(
                f"{image.where}: label {name!r} was taken off the list by another writer: register it again"
            )


def create_label(image: Pyramid, name: str, dtype: DTypeLike = "uint32", *, overwrite: bool = False) -> Pyramid:
    """Make an empty label image; see `ziggurat.Pyramid.create_label`."""
    image, place, version = label_place(image, name)
    assert image.image is not None
    keep = [i for i, a in enumerate(image.image.axes) if a.type != "channel"]
    axes = tuple(image.image.axes[i] for i in keep)
    label = NewImage(
        version=version,
        axes=axes,
        datasets=[_dataset(level, keep) for level in image.levels],
        layouts=[_layout(level, keep) for level in image.levels],
        creation=default_creation(np.dtype(dtype), 2 if version == "0.4" else 3, 0, [a.name for a in axes]),
        name=name,
        method="mode",
        parameters={},
        label={"source": {"image": "../../"}},
    ).create(place, overwrite)
    register_label(image, name)
    return label


def _dataset(level: Level, keep: Sequence[int]) -> Dataset:
    assert level.scale is not None and level.translation is not None
    return Dataset(level.name, _of(level.scale, keep), _of(level.translation, keep))


def _layout(level: Level, keep: Sequence[int]) -> Layout:
    return Layout(_of(level.shape, keep), _of(level.chunk, keep), _of(level.unit, keep) if level.is_sharded else None)


def _of[T](values: Sequence[T], keep: Sequence[int]) -> tuple[T, ...]:
    return tuple(values[i] for i in keep)
