"""Fitting the pixels that people write to level 0: shape and values, before anything is written."""

from typing import Any

import numpy as np

from ziggurat.errors import DTypeError, RegionError
from ziggurat.grid import Shape

__all__ = ["fit_patch"]


def fit_patch(patch: Any, shape: Shape, dtype: np.dtype[Any]) -> Any:
    """Return `patch` in `shape` and `dtype`; a dask array stays lazy.

    Raises
    ------
    RegionError
        When it has another shape; axes of one pixel may be left out, and a number fills all.
    DTypeError
        When `dtype` cannot hold its values.
    """
    pixels = patch if hasattr(patch, "dask") else np.asarray(patch)
    if pixels.ndim == 0:
        pixels = np.broadcast_to(pixels, shape)
    if tuple(n for n in pixels.shape if n != 1) != tuple(n for n in shape if n != 1):
        raise RegionError(f"the patch has the shape {pixels.shape}, its region {shape}: make them equal")
    return _cast(pixels.reshape(shape), dtype)


def _cast(pixels: Any, dtype: np.dtype[Any]) -> Any:
    if np.can_cast(pixels.dtype, dtype, "same_kind"):
        return pixels.astype(dtype)
    if isinstance(pixels, np.ndarray):
        with np.errstate(all="ignore"):
            cast = pixels.astype(dtype)
        if np.array_equal(cast, pixels):
            return cast
    raise DTypeError(f"level 0 holds {dtype}, the patch {pixels.dtype} with values that it cannot: convert the patch")
