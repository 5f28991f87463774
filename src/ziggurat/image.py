"""New images: a group, its levels' arrays and its metadata, in an order that never lists what is not there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import zarr
from zarr.storage import MemoryStore

from ziggurat.create import Place, consolidated_anew, new_arrays
from ziggurat.errors import StoreError
from ziggurat.layout import Layout
from ziggurat.metadata import image_attributes
from ziggurat.ngff import Axis, Dataset
from ziggurat.opening import open_pyramid
from ziggurat.provenance import check_unread
from ziggurat.pyramid import Pyramid
from ziggurat.store import is_zip

__all__ = ["NewImage", "Version", "is_image"]

type Version = Literal["0.4", "0.5"] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewImage:
    """An image that is to be made.

    Attributes
    ----------
    version : {"0.4", "0.5"} or None
        Of OME-Zarr (0.4 is zarr version 2); None makes a plain group of arrays.
    datasets, layouts : sequence of Dataset and of Layout
        The levels, finest first: path and place, shape and chunks.
    creation : mapping
        How arrays are made, as `ziggurat.create.default_creation` says it.
    method, parameters
        How coarser levels are computed.
    label : mapping, optional
        What ``image-label`` says.
    attributes : mapping, optional
        Other attributes of the group.
    """

    version: Version
    axes: tuple[Axis, ...]
    datasets: Sequence[Dataset]
    layouts: Sequence[Layout]
    creation: Mapping[str, Any]
    name: str
    method: str
    parameters: Mapping[str, Any]
    label: Mapping[str, Any] | None = None
    attributes: Mapping[str, Any] | None = None

    @property
    def level_names(self) -> list[str]:
        """Paths of the arrays."""
        return [d.path for d in self.datasets]

    def create(self, place: Place, overwrite: bool = False, data: Any = None) -> Pyramid:
        """Make the group and the arrays, and open them; they hold no pixels.

        Parameters
        ----------
        overwrite : bool
            Whether what is there is deleted first.
        data
            What the pixels will be read from.

        Raises
        ------
        StoreError
            When there is something already, or `data` is read from what would be deleted.
        """
        kept = dict(self.attributes or {})
        attributes = self._attributes(kept)
        zarr_format: Literal[2, 3] = 2 if self.version == "0.4" else 3
        group = _prepare(place, zarr_format, overwrite, data)
        if group is None:
            at_once = attributes if is_zip(place.store) else None
            group = zarr.create_group(place.store, path=place.path, zarr_format=zarr_format, attributes=at_once)
        else:
            attributes = self._attributes(kept | group.attrs.asdict())
        with consolidated_anew(group), new_arrays(group, self.level_names, self.layouts, self.creation):
            if not is_zip(place.store) and attributes:
                group.update_attributes(attributes)
        return self._open(group, place)

    def rehearse(self) -> Pyramid:
        """Make the image in memory, where nothing of it is to stay: to plan on its levels before there are any."""
        return self.create(Place(MemoryStore()))

    def _attributes(self, before: Mapping[str, Any]) -> dict[str, Any]:
        if self.version is None:
            return dict(before)
        about = (self.name, self.method, self.parameters, self.label)
        return image_attributes(before, self.version, self.axes, self.datasets, *about)

    def _open(self, group: zarr.Group, place: Place) -> Pyramid:
        pyramid = open_pyramid(group, levels=self.level_names if self.version is None else None)
        return replace(pyramid, where=place.name, method=self.method)


def _prepare(place: Place, zarr_format: int, overwrite: bool, data: Any) -> zarr.Group | None:
    """Return the empty group that is there already, if one is; clear the place if asked to."""
    node = place.node()
    if place.is_bare() and (node is None or (isinstance(node, zarr.Group) and not is_image(node))):
        if node is not None and node.metadata.zarr_format != zarr_format:
            raise StoreError(
                f"{place.name} is a group of zarr version {node.metadata.zarr_format}: choose its version="
            )
        return node
    if not overwrite:
        raise StoreError(f"there is something at {place.name} already: name another place, or say overwrite=True")
    check_unread(place, data)
    if node is None:
        raise StoreError(f"{place.name} holds something that is no zarr group or array: delete it yourself")
    place.clear()
    return None


def is_image(group: zarr.Group) -> bool:
    """Say whether the metadata of `group` describes an image."""
    attributes: dict[str, Any] = group.attrs.asdict()
    return "multiscales" in attributes.get("ome", attributes)
