"""The way of one chunk through its codecs, without anything between them and its bytes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import google_crc32c
import numcodecs
import numpy as np
from numcodecs.registry import get_codec
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

from ziggurat.errors import StoreError

if TYPE_CHECKING:
    import zarr

__all__ = ["ChunkCodec", "checked", "checksum"]

CRC_BYTES = 4

_BLOSC_HEADER_BYTES = 16

_SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}


class Coder(Protocol):
    """Turns bytes into others and back; numcodecs' codecs are such."""

    def encode(self, buf: Any) -> Any:
        """Return the encoded bytes."""
        ...

    def decode(self, buf: Any) -> Any:
        """Return the decoded bytes."""
        ...


class ChunkCodec:
    """What stands between the pixels of one chunk and its bytes; use `of`.

    Parameters
    ----------
    shape : tuple of int
        Of each chunk, those at the array's edges included.
    dtype : dtype
        Of the pixels as they are stored, byte order included.
    order : {"C", "F"}
        In which they are stored.
    coders : sequence of Coder
        In the order of encoding.
    pixel_bytes : int, optional
        What blosc takes for the bytes of a pixel; those of `dtype` by default.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        order: Any,
        coders: Sequence[Coder],
        pixel_bytes: int | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.order = order
        self.coders = coders
        self.pixel_bytes = pixel_bytes or dtype.itemsize
        self.n_bytes = int(np.prod(self.shape)) * dtype.itemsize

    @classmethod
    def of(cls, array: "zarr.Array[Any]") -> "ChunkCodec | None":
        """Return the way of the array's (inner) chunks; None where it has a codec that is not known here."""
        if array.filters or array.dtype.kind not in "biufc":
            return None
        coders: list[Coder | None]
        if array.metadata.zarr_format == 2:
            order, dtype = array.metadata.order, array.dtype
            usual = (numcodecs.Blosc, numcodecs.Zstd, numcodecs.GZip)
            # As other processes find them: some settings of numcodecs are not stored.
            coders = [get_codec(c.get_config()) if isinstance(c, usual) else None for c in array.compressors]
        elif isinstance(array.serializer, BytesCodec):
            order, dtype = "C", array.dtype.newbyteorder(array.serializer.endian or "=")
            coders = [_coder(codec) for codec in array.compressors]
        else:
            return None
        known = [coder for coder in coders if coder is not None]
        sizes = [codec.typesize for codec in array.compressors if isinstance(codec, BloscCodec)]
        return cls(array.chunks, dtype, order, known, *sizes[:1]) if len(known) == len(coders) else None

    @property
    def is_plain(self) -> bool:
        """Whether native pixels in C order go through one codec at most: what compiled loops can do."""
        return self.order == "C" and self.dtype.isnative and len(self.coders) < 2

    def decode(self, data: Any, room: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the pixels of a chunk, in `room` (of `n_bytes`) where that saves memory.

        Raises
        ------
        StoreError
            When the chunk was cut short, or holds another number of pixels.
        Exception
            Whatever its codecs find wrong with it.
        """
        for i, coder in reversed(list(enumerate(self.coders))):
            is_blosc = isinstance(coder, numcodecs.Blosc)
            data = _decode_blosc(coder, data, room if i == 0 else None) if is_blosc else coder.decode(data)
        pixels = np.frombuffer(data, np.uint8)
        if pixels.nbytes != self.n_bytes:
            raise StoreError(f"a chunk holds {pixels.nbytes} bytes of pixels instead of {self.n_bytes}: write it again")
        return pixels.view(self.dtype).reshape(self.shape, order=self.order)

    def encode(self, pixels: NDArray[Any]) -> Any:
        """Return the bytes of a whole chunk."""
        data: Any = np.asarray(pixels, self.dtype, order=self.order).ravel(order="K")
        # Codecs of version 2 learn the size of a pixel from what they are given.
        for coder in self.coders:
            data = coder.encode(data)
        return data if self.coders else data.view(np.uint8)


def _coder(codec: Any) -> Coder | None:
    """Return what does the work of a zarr codec; None where it is not known."""
    if isinstance(codec, Crc32cCodec):
        return _Crc32c()
    settings = codec.to_dict().get("configuration", {})
    if isinstance(codec, BloscCodec):
        found: Coder = numcodecs.Blosc(**{**settings, "shuffle": _SHUFFLES[settings["shuffle"]]})
    elif isinstance(codec, ZstdCodec):
        found = numcodecs.Zstd(**settings)
    elif isinstance(codec, GzipCodec):
        found = numcodecs.GZip(**settings)
    else:
        return None
    return found


def _decode_blosc(coder: Any, data: Any, room: NDArray[np.uint8] | None) -> Any:
    """Decode, into `room` if it is given; blosc reads past the end of what was cut short, and gives garbage."""
    # Bytes 4 to 7 of its header are the size of the pixels, 12 to 15 that of all it holds.
    is_header_whole, least = len(data) >= _BLOSC_HEADER_BYTES, (0, 0, _BLOSC_HEADER_BYTES)
    n_bytes, _, n_encoded = np.frombuffer(data, "<u4", 3, 4).tolist() if is_header_whole else least
    if n_encoded != len(data):
        raise StoreError(f"a chunk has {len(data)} bytes instead of {n_encoded}: it was cut short, write it again")
    if room is None:
        return coder.decode(data)
    if n_bytes > room.nbytes:
        raise StoreError(f"a chunk holds {n_bytes} bytes of pixels instead of {room.nbytes}: write it again")
    coder.decode(data, out=room[:n_bytes])
    return room[:n_bytes]


class _Crc32c:
    """Appends a checksum, and takes it off again when it is right."""

    def encode(self, buf: Any) -> Any:
        data = np.frombuffer(buf, np.uint8)
        return np.concatenate([data, np.frombuffer(checksum(data), np.uint8)])

    def decode(self, buf: Any) -> Any:
        return checked(buf)


def checksum(data: NDArray[np.uint8]) -> bytes:
    """Return the four bytes of the CRC32C of `data`."""
    found: int = google_crc32c.value(data)
    return found.to_bytes(CRC_BYTES, "little")


def checked(data: Any) -> NDArray[np.uint8]:
    """Return `data` without the checksum at its end.

    Raises
    ------
    StoreError
        When it is not that of the bytes before it.
    """
    found = np.frombuffer(data, np.uint8)
    if found[-CRC_BYTES:].tobytes() != checksum(found[:-CRC_BYTES]):
        raise StoreError("stored bytes do not match their checksum: they were cut short or changed, write them again")
    return found[:-CRC_BYTES]
