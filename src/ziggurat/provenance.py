"""Tells whether lazy data still reads from a place, so that it is not deleted first."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import zarr
from zarr.abc.store import Store

from ziggurat.create import Place, real_place
from ziggurat.errors import StoreError
from ziggurat.virtual import Virtual

__all__ = ["check_unread"]


def check_unread(place: Place, data: Any) -> None:
    """Refuse to clear `place` where `data` reads from it, or where that cannot be told.

    Raises
    ------
    StoreError
        When it does: by whatever symbolic link, and however deep in a dask graph.
    """
    remedy = "write to another place, or load the data into memory first"

    def look(found: str) -> None:
        if _lies_in(found, place.real):
            raise StoreError(f"{place.name} cannot be overwritten: the data is read from {found} in it; {remedy}")

    try:
        _Finder(look).dump(data.origins if isinstance(data, Virtual) else data)
    except StoreError:
        raise
    except Exception as e:
        raise StoreError(
            f"{place.name} cannot be overwritten: what the data reads from cannot be told ({e}); {remedy}"
        ) from e


def _lies_in(found: str, place: str) -> bool:
    return found == place or found.startswith(place.rstrip("/" + os.sep) + ("/" if "://" in place else os.sep))


class _Finder(cloudpickle.Pickler):  # type: ignore[misc]
    """Walks all that `data` refers to, as pickling does, and looks at what names a place; nothing is kept."""

    def __init__(self, look: Callable[[str], None]) -> None:
        super().__init__(_Nowhere())
        self.look = look

    def persistent_id(self, obj: Any) -> str | None:
        """Look at `obj`; what is returned for it stands for it, so that it is not walked."""
        if isinstance(obj, zarr.Array | zarr.Group):
            self.look(real_place(obj.store, obj.path))
        elif isinstance(obj, Store):
            self.look(real_place(obj, ""))
        elif isinstance(obj, np.ndarray):
            if isinstance(obj, np.memmap) and obj.filename:
                self.look(os.path.realpath(obj.filename))
            if obj.base is None or obj.dtype.hasobject:
                return "array" if not obj.dtype.hasobject else None
            self.persistent_id(obj.base)
        elif isinstance(obj, str | Path) and (os.sep in str(obj) or "/" in str(obj)):
            self.look(os.path.realpath(obj) if "://" not in str(obj) else str(obj).removeprefix("file://"))
            return None
        else:
            return None
        return "seen"


class _Nowhere(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        return len(content)
