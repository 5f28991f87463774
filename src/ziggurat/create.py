"""Makes new groups and arrays, and changes the metadata of groups; never their pixels."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import unquote, urlsplit

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import BloscCodec
from zarr.core.sync import sync
from zarr.storage import FsspecStore, LocalStore, ObjectStore, StorePath, ZipStore

from ziggurat.errors import ReadOnlyError, StoreError
from ziggurat.layout import Layout
from ziggurat.remote import Backend, check_options, is_url, open_url
from ziggurat.store import innermost, is_zip

if TYPE_CHECKING:
    from ziggurat.pyramid import Pyramid

__all__ = ["Place", "consolidated_anew", "creation_of", "default_creation", "group_of", "new_arrays", "real_place"]


_GROUP_FILES = ("zarr.json", ".zgroup", ".zattrs", ".zmetadata")


class Place:
    """Where a new image goes: a path in a store.

    Parameters
    ----------
    where : str, Path, zarr store or zarr.Group
        As in `ziggurat.build`.
    """

    def __init__(
        self,
        where: "str | Path | Store | zarr.Group",
        storage_options: dict[str, Any] | None = None,
        backend: Backend = "fsspec",
        path: str = "",
    ) -> None:
        check_options(where, storage_options, backend)
        self.store, base = _store(where, storage_options, backend)
        self.path = "/".join(part for part in (base, path) if part)
        self.name = f"{where}" if isinstance(where, str | Path) else str(StorePath(self.store, self.path))
        if path and isinstance(where, str | Path):
            self.name = f"{self.name}/{path}"
        if self.store.read_only:
            raise ReadOnlyError(f"{self.name} is opened read-only: open it for writing")

    def node(self) -> "zarr.Group | zarr.Array[Any] | None":
        """Return what zarr finds there."""
        if is_zip(self.store):
            return None
        try:
            return zarr.open(store=self.store, path=self.path, mode="r+", use_consolidated=False)
        except (FileNotFoundError, KeyError):
            return None

    def is_bare(self) -> bool:
        """Say whether nothing is stored there, but for the metadata of a group."""
        return sync(_is_bare(self.store, self.path))

    def clear(self) -> None:
        """Delete everything that is stored there."""
        sync(self.store.delete_dir(self.path))

    @property
    def stem(self) -> str:
        """A name for what lies there."""
        return Path(self.name.rstrip("/")).name.removesuffix(".zarr").removesuffix(".ome") or "image"

    @property
    def real(self) -> str:
        """The place without symbolic links, to tell whether two places are one."""
        return real_place(self.store, self.path)


def _store(where: Any, storage_options: dict[str, Any] | None, backend: Backend) -> tuple[Store, str]:
    if isinstance(where, zarr.Group):
        return where.store, where.path
    if isinstance(where, Store):
        return where, ""
    where = str(where)
    if is_url(where):
        return open_url(where, storage_options, backend), ""
    path = Path(unquote(urlsplit(where).path) if where.startswith("file://") else where).expanduser()
    if path.is_file():
        raise StoreError(f"{where} is a file: name a directory that is to be made, or a zarr store")
    return LocalStore(path.absolute()), ""


async def _is_bare(store: Store, path: str) -> bool:
    start = f"{path}/" if path else ""
    async for key in store.list_prefix(start):
        if key[len(start) :] not in _GROUP_FILES:
            return False
    return True


def real_place(store: Store, path: str) -> str:
    """Return where `path` of `store` lies: without symbolic links on a local file system, a URL elsewhere.

    The same place has one name, whichever kind of store leads there.
    """
    inner = innermost(store)
    match inner:
        case LocalStore():
            return os.path.realpath(inner.root / path)
        case ZipStore():
            return os.path.join(os.path.realpath(inner.path or ""), path)
        case FsspecStore():
            fs = getattr(inner.fs, "sync_fs", inner.fs)
            protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
            where = "/".join(part for part in (inner.path.rstrip("/"), path) if part)
            return os.path.realpath(where) if protocol in ("file", "local") else f"{protocol}://{where}"
        case ObjectStore():
            kind, prefix = type(inner.store).__name__, str(getattr(inner.store, "prefix", None) or "")
            if kind == "LocalStore":
                return os.path.realpath(os.path.join(prefix, path))
            bucket = getattr(inner.store, "config", {}).get("bucket", id(inner.store))
            return f"{kind.removesuffix('Store').lower()}://" + "/".join(p for p in (bucket, prefix, path) if p)
    return f"{type(inner).__name__}://{id(getattr(inner, '_store_dict', inner))}/{path}".rstrip("/")


def default_creation(dtype: np.dtype[Any], version: int, fill_value: Any, axes: Sequence[str]) -> dict[str, Any]:
    """Return how arrays are made where nobody says otherwise: blosc-zstd, keys that nest."""
    shuffle: Literal["shuffle", "bitshuffle"] = "shuffle" if dtype.itemsize > 1 else "bitshuffle"
    if version == 3:
        codec: Any = BloscCodec(cname="zstd", clevel=3, shuffle=shuffle)
        more = {"chunk_key_encoding": {"name": "default", "separator": "/"}, "dimension_names": list(axes)}
    else:
        from numcodecs import Blosc

        codec = Blosc("zstd", clevel=3, shuffle=Blosc.SHUFFLE if dtype.itemsize > 1 else Blosc.BITSHUFFLE)
        more = {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    return {"dtype": dtype, "compressors": codec, "fill_value": fill_value, **more}


def creation_of(array: "zarr.Array[Any]") -> dict[str, Any]:
    """Return how an array like `array` is made: all but its shape, chunks and shards."""
    made: dict[str, Any] = {
        "dtype": array.dtype,
        "filters": array.filters or None,
        "compressors": array.compressors or None,
        "fill_value": array.fill_value,
    }
    metadata: Any = array.metadata
    if metadata.zarr_format == 2:
        keys = {"name": "v2", "separator": metadata.dimension_separator}
        return made | {"order": metadata.order, "chunk_key_encoding": keys}
    made["dtype"] = metadata.data_type
    keys = metadata.chunk_key_encoding
    return made | {
        "serializer": array.serializer,
        "chunk_key_encoding": keys,
        "dimension_names": metadata.dimension_names,
    }


@contextmanager
def new_arrays(
    group: zarr.Group, names: Sequence[str], layouts: Sequence[Layout], creation: Mapping[str, Any]
) -> "Iterator[list[zarr.Array[Any]]]":
    """Create one array per layout, and list them in what follows; where either fails, none is left."""
    made: list[str] = []
    try:
        for name, layout in zip(names, layouts, strict=True):
            made.append(name)
            group.create_array(name, shape=layout.shape, chunks=layout.chunk, shards=layout.shard, **creation)
        yield [array for name in names if isinstance(array := group[name], zarr.Array)]
    except BaseException:
        if not is_zip(group.store):
            for name in made:
                sync((group.store_path / name).delete_dir())
        raise


def group_of(pyramid: "Pyramid") -> zarr.Group:
    """Return the group that holds the levels.

    Raises
    ------
    StoreError
        When the levels lie in no common group.
    """
    array, name = pyramid[0], pyramid.levels[0].name
    base = array.path.removesuffix(name)
    if (base and not base.endswith("/")) or not array.path.endswith(name):
        raise StoreError(f"{pyramid.where}: the levels lie in no common group: open the group that is above them")
    mode: Literal["r", "r+"] = "r" if array.read_only else "r+"
    return zarr.open_group(array.store, path=base.rstrip("/"), mode=mode, use_consolidated=False)


@contextmanager
def consolidated_anew(group: zarr.Group) -> Iterator[None]:
    """Write the consolidated metadata of `group` and the groups above it anew afterwards, where it is there."""
    found = [path for path in _ancestors(group.path) if _is_consolidated(group.store, path)]
    try:
        yield
    finally:
        for path in found:
            with warnings.catch_warnings(action="ignore"):
                zarr.consolidate_metadata(group.store, path=path or None)


def _ancestors(path: str) -> list[str]:
    """Return `path` and all above it, the lowest first."""
    parts = path.split("/") if path else []
    return ["/".join(parts[:n]) for n in range(len(parts), -1, -1)]


def _is_consolidated(store: Store, path: str) -> bool:
    if is_zip(store):
        return False
    try:
        group = zarr.open_group(store, path=path, mode="r" if store.read_only else "r+", use_consolidated=None)
    except (FileNotFoundError, KeyError):
        return False
    return group.metadata.consolidated_metadata is not None
