"""Calls of C functions from compiled loops, and the memory that they share. Importing this module loads numba."""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["GRID", "address_of", "call", "grid_of", "inner", "put_word", "word"]

GRID = 10
"""Numbers that make the grid of a loop; its parameters follow."""


def inner[F: Callable[..., Any]](function: F) -> F:
    """Return a function that compiled code alone calls: what Python calls one through takes half of the compiling."""
    options: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    found: F = numba.njit(nogil=True, **options)(function)
    return found


def _calling(typing: Any, address: Any, words: Any) -> Any:
    """Call the C function at an address with a tuple of integers and pointers.

    numba cannot keep code with such an address in its cache, so the address is a value like any other.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        given = cgutils.unpack_tuple(builder, arguments[1], words.count)
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * words.count).as_pointer())
        return builder.call(function, given)

    return numba.int64(numba.int64, numba.types.UniTuple(numba.int64, words.count)), generate


call: Any = intrinsic(_calling)


def _reading(typing: Any, address: Any) -> Any:
    """Return the 32 bits at an address, without a sign."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = builder.load(builder.inttoptr(arguments[0], ir.IntType(32).as_pointer()), align=1)
        return builder.zext(found, ir.IntType(64))

    return numba.int64(numba.int64), generate


word: Any = intrinsic(_reading)


def _writing(typing: Any, address: Any, value: Any) -> Any:
    """Put the lower 32 bits of a value at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.inttoptr(arguments[0], ir.IntType(32).as_pointer())
        builder.store(builder.trunc(arguments[1], ir.IntType(32)), place, align=1)
        return context.get_dummy_value()

    return numba.void(numba.int64, numba.int64), generate


put_word: Any = intrinsic(_writing)


@inner
def address_of(array: Any) -> Any:
    """Return where an array lies, with a sign: numba adds integers with and without one as floats."""
    return np.int64(array.ctypes.data)


@inner
def grid_of(given: Any) -> Any:
    """Return the grid of a loop, the first of the numbers at an address."""
    targets_and_factors = given[0], given[1], given[2], given[3], given[4], given[5]
    return *targets_and_factors, given[6], given[7], given[8], given[9]
