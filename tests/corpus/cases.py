"""What a case is made of: a launch, its arguments, and what each buffer must hold afterwards.

A case is a function beside a kernel's source, decorated with the launch. It takes a seeded random generator and gives
the arguments in order: an array is a buffer that the kernel must leave as it is, `Out` one that it fills, `InOut` one
that it changes, a NumPy scalar a value, `Struct` a structure, `TensorMap` a tensor map, `Texture` and `Surface` what
their names say.
"""

from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np

f16, f32, f64 = np.float16, np.float32, np.float64
i8, i16, i32, i64 = np.int8, np.int16, np.int32, np.int64
u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64


@dataclass
class Out:
    """A buffer that holds nothing before the launch, and `expected` after it.

    `within` is relative to the largest magnitude of `expected`; 0 compares bytes. `order` sorts both sides first, for
    results whose order is open."""

    expected: Any
    within: float = 0.0
    order: bool = False


@dataclass
class InOut:
    """A buffer with `initial` before the launch, and `expected` after it; None leaves the result open."""

    initial: Any
    expected: Any
    within: float = 0.0
    order: bool = False


@dataclass
class Struct:
    """A structure passed by value, its members at their natural alignment."""

    members: list


@dataclass
class TensorMap:
    """A tensor map of a matrix, with the rows and columns of its boxes."""

    array: Any
    boxed: tuple
    swizzle: int = 0


@dataclass
class Texture:
    """A texture of an array, whose last axis is channels where there are several. `shape` is `1d` to `3d` by the other
    axes, if it is not given; layers and slices are the first axis."""

    array: Any
    channels: int = 1
    shape: str = ""
    filter: str = "point"
    address: str = "clamp"
    read: str = "element"
    normalized: bool = False


@dataclass
class Surface:
    """A surface over a buffer, as `Texture`."""

    array: Any
    channels: int = 1
    shape: str = ""


@dataclass
class Case:
    """A kernel with a launch."""

    kernel: str
    make: Callable
    grid: Any
    block: Any
    shared: int = 0
    cooperative: bool = False
    cluster: Any = None
    symbols: dict = field(default_factory=dict)
    fuel: int = 1 << 22
    arguments: list = field(default_factory=list)
    arrays: bool = False


def case(grid, block, entry=None, **launch):
    """Makes a case of the function that follows, of the kernel of its name; `entry` is a part of a mangled name."""

    def of(make):
        found = Case(entry or make.__name__, make, grid, block, **launch)
        make.__globals__.setdefault("CASES", {})[make.__name__] = found
        return make

    return of


def chunks(x, n, fill=0):
    """`x` in rows of `n`, the last one filled up."""
    rows = -(-len(x) // n)
    return np.concatenate([x, np.full(rows * n - len(x), fill, x.dtype)]).reshape(rows, n)


def bf16(x):
    """The bits of `x` rounded to bfloat16, ties to even."""
    bits = np.ascontiguousarray(x, f32).view(u32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(u16)


def from_bf16(bits):
    """The values of bfloat16 bits."""
    return (np.asarray(bits).astype(u32) << 16).view(f32)


@dataclass
class Tile(Case):
    """A Triton kernel with the signature and constants that it is compiled with."""

    function: Any = None
    signature: str = ""
    constants: dict = field(default_factory=dict)
    stages: int = 3


def tile(function, signature, grid, warps=4, stages=3, fuel=1 << 22, **constants):
    """Makes a case of the Triton kernel `function`; the arguments that are no constants have the types of `signature`."""

    def of(make):
        name = function.__name__
        found = Tile(name, make, grid, 32 * warps, fuel=fuel, function=function, signature=signature, constants=constants, stages=stages)
        make.__globals__.setdefault("CASES", {})[make.__name__.removesuffix("_case")] = found
        return make

    return of


@dataclass
class Numba(Case):
    """A numba kernel with the types that it is compiled for, and numba's options."""

    function: Any = None
    signature: str = ""
    options: dict = field(default_factory=lambda: {"lineinfo": True})


def numba(function, signature, grid, block, **launch):
    """Makes a case of the numba kernel `function`; an array of the arguments becomes numba's five and more parameters."""

    def of(make):
        found = Numba(function.__name__, make, grid, block, function=function, signature=signature, **launch)
        make.__globals__.setdefault("CASES", {})[make.__name__.removesuffix("_case")] = found
        return make

    return of
