"""What CPUs do where the behavior of a kernel is not specified: `Simulation`.

Memory that was not written has a value that is unlikely to go unnoticed; reads and blocks outside
of arrays are errors, or give that value; parallel programs run in another order. For tests of
kernels: JAX's `interpret=True` and `InterpretParams`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.config import pallas_poison_buffers
from shardwise._src.base.errors import KernelError
from shardwise._src.control.call import described_call
from shardwise._src.control.cond_api import cond
from shardwise._src.core.infer import type_of
from shardwise._src.debug.host_callbacks import debug_function
from shardwise._src.effects.callback import host_context
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import broadcast_in_dim, reshape, zeros
from shardwise._src.ops.create import iota
from shardwise._src.ops.families import BOOL
from shardwise._src.random.discrete import permutation
from shardwise._src.random.keys import key, split
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import finfo, is_inexact, is_integer, max_value, min_value
from shardwise._src.values.indexing import get, getitem

INT32 = np.dtype("int32")
OUTSIDE = "moved", "filled", "raised"
Rows = Sequence[Any]


@dataclass(frozen=True)
class Simulation:
    """fill: the value of memory that was not written: a number; or "least" or "greatest", which is
      NaN, and of integers the least or greatest one.
    outside: what reads and blocks outside of arrays do: "moved" inside, as slices of arrays are,
      "filled" with that value, or "raised", an error. Blocks of results outside are errors in both
      of the latter.
    seed: of the order in which programs along parallel axes run; None: ascending.
    recorder: called with None, the indices of each program, and the number of its core, in the
      order in which programs run. cores: among which the programs along parallel axes are divided.
    skips_floats: whether floats that are read and written are infinite.
    is_tpu: whether refs in HBM can only be copied, as on TPUs; allocates: whether kernels allocate
      memory there.
    """

    fill: Any = 0
    outside: str = "moved"
    seed: int | None = None
    recorder: Callable[..., Any] | None = None
    cores: int = 1
    skips_floats: bool = False
    is_tpu: bool = False
    allocates: bool = False

    def __post_init__(self) -> None:
        if self.outside not in OUTSIDE:
            raise ValueError(
                f"Simulation: outside is one of {', '.join(map(repr, OUTSIDE))}; got "
                f"{short_repr(self.outside)}."
            )
        if isinstance(self.fill, str) and self.fill not in ("least", "greatest", POISON):
            raise ValueError(
                f"Simulation: fill is a number, 'least' or 'greatest'; got {short_repr(self.fill)}."
            )

    @property
    def is_compiled(self) -> bool:
        """Whether it changes at most what memory begins with: then launches are kernels on GPUs and
        TPUs, and their derivatives are launches."""
        return self in (PLAIN, POISONED)


POISON = "poison"  # the fill "least", on TPUs too
PLAIN, POISONED = Simulation(), Simulation(fill=POISON)


def chosen(simulation: Simulation | None) -> Simulation:
    """That of a launch, for what its user passed."""
    if simulation not in (None, PLAIN):
        return simulation
    return POISONED if pallas_poison_buffers.value else PLAIN


def value(fill: Any, t: ArrayType) -> Any:
    """A fill as a scalar of a dtype: of small integers the lower bits, of small floats their
    largest or smallest number."""
    if isinstance(fill, str):
        end = max_value if fill == "greatest" else min_value
        found: Any = np.nan if is_inexact(t.dtype) else end(t.dtype)
    elif t.dtype == BOOL:
        found = fill < 0
    elif is_integer(t.dtype):
        found = int(fill)
    else:
        found = np.clip(fill, float(finfo(t.dtype).min), float(finfo(t.dtype).max))
    return np.asarray(found).astype(t.dtype)[()]


def filled(t: ArrayType, fill: Any) -> Any:
    return broadcast_in_dim(value(fill, t), shape=t.shape, dims=()) if fill else zeros(t)


def infinite(t: ArrayType) -> Any:
    return broadcast_in_dim(np.asarray(np.inf).astype(t.dtype)[()], shape=t.shape, dims=())


# -- reads outside --

kernel_check = described_call("kernel_check")  # (failed, values…): raises, when the program runs


def fail_if(failed: Any, message: Callable[..., str], *values: Any, text: str = "") -> None:
    """Raises a `KernelError` when the program runs, if a condition holds.

    message: from the values, as NumPy arrays. text: that of TPUs, which raise it, too.
    """

    def fail(*found: Any) -> None:
        raise KernelError(message(*[np.asarray(x) for x in found]))

    def run(failed: Any, *values: Any) -> list[Any]:
        cond(failed, lambda: debug_function(fail, *values), lambda: None)
        return []

    types = tuple(map(type_of, (failed, *values)))
    kernel_check(failed, *values, program=program_of(run, types, "kernel_check"), text=text)


def read(x: Any, starts: Rows, sizes: Rows, strides: Rows, simulation: Simulation) -> Any:
    """Along each dimension `sizes` elements, `strides` apart, of which some may be outside of x."""
    if simulation.outside == "raised":
        check_region("read", x, starts, sizes, strides)
    index, rank = [], type_of(x).ndim
    for d, (start, n, stride) in enumerate(zip(starts, sizes, strides, strict=True)):
        at = ew.add(ew.mul(iota(shape=(n,), dtype=INT32, dimension=0), np.int32(stride)), start)
        index.append(reshape(at, shape=tuple([n if i == d else 1 for i in range(rank)])))
    fill = value(simulation.fill, type_of(x))
    return get(x, tuple(index), mode="fill", fill_value=fill, wrap=False) if index else x


def check_region(what: str, x: Any, starts: Rows, sizes: Rows, strides: Rows) -> None:
    """Raises, when the program runs, if some of these elements are outside of x."""
    t = type_of(x)
    if 0 in sizes:
        return
    spans = [(n - 1) * step + 1 for n, step in zip(sizes, strides, strict=True)]
    last = [n - span for n, span in zip(t.shape, spans, strict=True)]

    def message(*starts: Any) -> str:
        at = ", ".join([f"{s}:{s + span}" for s, span in zip(starts, spans, strict=True)])
        return f"Out-of-bounds {what}: elements [{at}] of {t.str_short(True)}."

    fail_if(_outside(starts, [0] * t.ndim, last), message, *starts)


def _outside(places: Rows, low: Rows, high: Rows) -> Any:
    """Whether some of these are not between their bounds."""
    found: Any = np.bool_(False)
    for i, least, most in zip(places, low, high, strict=False):
        beyond = ew.bitwise_or(ew.lt(i, np.int32(least)), ew.gt(i, np.int32(most)))
        found = ew.bitwise_or(found, beyond)
    return found


# -- the grid --


def record(ids: Rows, launch: Any) -> None:
    recorder = launch.simulation.recorder
    if recorder is None:
        return
    orders = _orders(launch)
    sizes = [len(order) for order in orders if order is not None]
    share = max(-(-math.prod(sizes) // launch.simulation.cores), 1)

    def recorded(*ids: Any) -> None:
        pairs = zip(orders, ids, strict=True)
        at = [int(np.flatnonzero(order == i)[0]) for order, i in pairs if order is not None]
        core = int(np.ravel_multi_index(at, sizes)) // share if at else 0
        recorder(None, tuple([np.int32(i) for i in ids]), np.int32(core))

    debug_function(recorded, *ids, ordered=True)


def simulated_order(ids: list[Any], first: int, launch: Any) -> list[Any]:
    """Indices of a program along the axes from `first` on, in another order along parallel ones."""
    if launch.simulation.seed is None:
        return ids
    orders = _orders(launch)[first : first + len(ids)]
    return [i if o is None else getitem(o, i) for o, i in zip(orders, ids, strict=True)]


def _orders(launch: Any) -> list[np.ndarray | None]:
    """For each axis the order of its indices; None for those that are not parallel."""
    seed = launch.simulation.seed
    with host_context().entered():
        state, found = key(seed or 0), []
        for n, p in zip(launch.grid, launch.parallel, strict=True):
            found.append(None)
            if p and n is not None:
                state, own = split(state)
                found[-1] = np.asarray(np.arange(n) if seed is None else permutation(own, n), INT32)
    return found


def check_inside(at: Sequence[Rows | None], launch: Any) -> None:
    """Raises, when the program runs, for blocks outside of their arrays.

    at: their indices; None for those that are not known yet.
    """
    outside = launch.simulation.outside
    if outside == "moved":
        return
    for number, (tile, index) in enumerate(zip((*launch.ins, *launch.outs), at, strict=True)):
        is_in = number < len(launch.ins)
        if index is None or not tile.sizes or (is_in and outside == "filled"):
            continue
        label = launch.ref_names[launch.prefetch + number].removeprefix("argument ")
        name = f"{'input' if is_in else 'output'} {label}"

        def message(*index: Any, name: str = name, tile: Any = tile) -> str:
            block = ", ".join(str(i) for i in index)
            return (
                f"kernel {launch.name}: Out-of-bounds block index ({block}) for {name}, "
                f"{tile.type.str_short(True)} in blocks of {tuple(tile.sizes)}."
            )

        fail_if(_outside(index, *tile.bounds), message, *index)
