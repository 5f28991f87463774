"""One image at a URL and its twin on disk."""

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

import ziggurat as zg
from ziggurat.remote import open_url
from ziggurat.testing import tree_hash

BACKENDS = ["fsspec", "obstore"]
LEVELS = ["0", "1", "2"]


class Twin:
    """An image of three levels, of which the first is filled, at a URL and in a local directory."""

    def __init__(self, url, options, backend, local, shards=True):
        self.url = url
        self.backend = backend
        self.options = options
        self.local = local
        self.store = open_url(url, options, backend)
        for store in (LocalStore(local), self.store):
            fill(zarr.create_group(store), shards)

    def open(self):
        return zg.open_pyramid(self.url, LEVELS, storage_options=self.options, backend=self.backend)

    def download(self, place):
        """Copy the chunks to a directory; return their hashes and those of the twin."""
        keys = [key for key in sync(collect(self.store)) if "/c/" in key]
        for key in keys:
            path = place / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(sync(self.store.get(key, default_buffer_prototype())).to_bytes())
        return tree_hash(place), {key: digest for key, digest in tree_hash(self.local).items() if "/c/" in key}


async def collect(store):
    return [key async for key in store.list()]


def pixels():
    found = np.arange(1, 40 * 50 + 1, dtype="uint16").reshape(40, 50)
    found[16:32, :32] = 0  # units that hold only fill
    return found


def fill(group, shards):
    for k, shape in enumerate([(40, 50), (20, 25), (10, 12)]):
        array = group.create_array(
            str(k), shape=shape, chunks=(8, 8) if shards else (16, 16), shards=(16, 16) if shards else None, dtype="u2"
        )
        if k == 0:
            array[...] = pixels()
