"""Reads the files of a local store without going through it, into memory that is there already."""

import math
from collections.abc import Callable, Iterator, Sequence
from io import FileIO
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ziggurat.counted import Requests, is_missing
from ziggurat.grid import Shape

__all__ = ["Files"]


class Files:
    """Reads files as zarr's local store does, but into the same memory each time.

    Parameters
    ----------
    root : str
        The directory of the store.
    requests : Requests
        Where reads are counted.
    room : array of uint8
        Where they are read to; what is larger is given more.
    """

    def __init__(self, root: str, requests: Requests, room: NDArray[np.uint8]) -> None:
        self.root = root
        self.requests = requests
        self.room = room

    def __call__(self, key: str) -> NDArray[np.uint8] | None:
        """Return the bytes of the object at `key`, None where there is none; the next call overwrites them."""
        self.requests.add(gets=1)
        try:
            file = FileIO(f"{self.root}/{key}")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        with file:
            done = 0
            while read := file.readinto(memoryview(self.room)[done:]):
                done += read
                if done == len(self.room):
                    self.room = np.concatenate([self.room, np.empty_like(self.room)])
        return self.room[:done]

    def lacks(self, key: Callable[[Shape], str], ranges: Sequence[range]) -> bool:
        """Say whether surely none of several objects is there: those at the `key` of each index in `ranges`.

        Then they count as if each had been asked for. Most of a sparse image lies in directories that are not there:
        one look at those is all that a row of objects takes. Where anything is there, they are yet to be read.
        """
        n = math.prod(map(len, ranges))
        if n < 2:
            return False
        there = ""
        for row in product(*ranges[:-1]):
            directory = f"{self.root}/{key((*row, ranges[-1][0]))}".rpartition("/")[0]
            if directory == there or not is_missing(directory):
                there = directory
                if not all(is_missing(f"{self.root}/{key((*row, i))}") for i in ranges[-1]):
                    return False
        self.requests.add(gets=n)
        return True

    def stretch(self, key: str, batch: Sequence[tuple[int, int, Shape]]) -> Iterator[tuple[Shape, NDArray[np.uint8]]]:
        """Yield the bytes of chunks of a shard, from all that lies between the first and the last of them."""
        self.requests.add(gets=1)
        first, n = batch[0][0], batch[-1][0] + batch[-1][1] - batch[0][0]
        if n > len(self.room):
            self.room = np.empty(n, np.uint8)
        with FileIO(f"{self.root}/{key}") as file:
            file.seek(first)
            done = 0
            while done < n and (read := file.readinto(memoryview(self.room)[done:n])):
                done += read
        for start, size, cell in batch:
            yield cell, self.room[start - first : min(start - first + size, done)]
