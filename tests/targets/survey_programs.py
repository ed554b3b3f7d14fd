"""The programs of the survey: which library, machine and arguments they are made for.

    Program("dtypes", "sort int4", lambda at: (at.np.sort, [at.arg(X)]))

A program is made for a library, `at.lib`, so that jax can compile the same one. This module makes
those of ops and functions from the samples of other tests; `survey_subjects` has the others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import ml_dtypes
import numpy as np

from benchmarks.arguments import ARRAYS, Operands, arrays_in, bound, calls, find
from benchmarks.libs import Lib

# The machines of a platform: one device, one host of eight, and eight devices of several hosts.
MACHINES = {
    "cpu": {"one": "cpu", "host": "cpu", "hosts": "cpu"},
    "cuda": {"one": "h100", "host": "h100:8", "hosts": "h100:2x4"},
    "tpu": {"one": "tpu-v5e", "host": "tpu-v5e:2x4", "hosts": "tpu-v5e:2x4"},
}


class At:
    """A library and a machine, for which a program is made."""

    def __init__(self, library: str, machine: str):
        self.lib = Lib(library, itertools.count())
        self.root, self.np, self.lax = self.lib.root, self.lib.np, self.lib.lax
        self.sharding = self.lib.sharding
        self.is_ours = library == "shardwise"
        self.devices = devices_of(machine)

    def mesh(self, *sizes: int, names: Sequence[str] = "xyz", explicit: bool = False) -> Any:
        """A mesh over the first devices."""
        sizes = sizes or (len(self.devices),)
        kind = self.sharding.AxisType.Explicit if explicit else self.sharding.AxisType.Auto
        grid = np.array(self.devices[: int(np.prod(sizes))], object).reshape(sizes)
        kinds = (kind,) * len(sizes)
        return self.sharding.Mesh(grid, tuple(names[: len(sizes)]), axis_types=kinds)

    def named(self, mesh: Any, *spec: Any, **memory: str) -> Any:
        return self.sharding.NamedSharding(mesh, self.P(*spec), **memory)

    @property
    def P(self) -> Any:
        return self.sharding.PartitionSpec

    def arg(self, value: Any, *spec: Any, mesh: Any = None) -> Any:
        """An argument like this value: on the first device, or over a mesh."""
        place = (
            self.sharding.SingleDeviceSharding(self.devices[0])
            if mesh is None
            else self.named(mesh, *spec)
        )
        value = value if hasattr(value, "dtype") else np.asarray(value)
        return self.root.ShapeDtypeStruct(np.shape(value), value.dtype, sharding=place)


def devices_of(machine: str) -> list[Any]:
    """The devices of a machine by name; "cpu" is this one."""
    import shardwise as sw

    return sw.devices("cpu") if machine == "cpu" else sw.targets.devices(machine)


@dataclass(frozen=True)
class Program:
    """make: returns a function and its arguments, or `(function, arguments, options of jit)`.

    where:  "one" device, all of a "host", or several "hosts".
    x64:    whether it needs 64-bit types.
    ours:   whether it is made of names that jax does not have.
    """

    group: str
    name: str
    make: Callable[[At], tuple]
    where: str = "one"
    x64: bool = False
    ours: bool = False

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}"


def total(at: At, leaves: Sequence[Any]) -> Any:
    """A real number that depends on all inexact results."""
    found: Any = 0.0
    for leaf in leaves:
        if at.np.issubdtype(leaf.dtype, np.inexact):
            wide = at.np.float64 if leaf.dtype in (np.float64, np.complex128) else at.np.float32
            found = found + at.np.sum(at.np.real(leaf).astype(wide))
            found = found + at.np.sum(at.np.imag(leaf).astype(wide))
    return found


# -- ops, from the samples that check their rules --


def _op(name: str, sample: Any, how: str) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        from shardwise._src.core.op import every_op

        op = every_op()[name]
        run = lambda *args: sample.apply(op, *args)  # noqa: E731
        args = [np.asarray(a) if not hasattr(a, "dtype") else a for a in sample.args]
        if how == "grad":
            moving = tuple([i for i, a in enumerate(args) if a.dtype.kind == "f"])
            return at.root.grad(lambda *a: total(at, run(*a)), moving), [at.arg(a) for a in args]
        if how == "vmap":
            wide = [np.broadcast_to(a, (2, *a.shape)) for a in args]
            return at.root.vmap(run), [at.arg(a) for a in wide]
        if how == "sharded":
            return run, [at.arg(a, *_split(a), mesh=at.mesh()) for a in args]
        return run, [at.arg(a) for a in args]

    return make


def _split(x: Any) -> tuple:
    """Shards the longest dimension, perhaps unevenly."""
    if not np.ndim(x) or not np.size(x):
        return ()
    longest = int(np.argmax(np.shape(x)))
    return (*(None,) * longest, "x")


def ops() -> Iterator[Program]:
    """Samples of every op: alone, under grad and vmap, and over eight devices.

    None without jax, which these samples import.
    """
    if find_spec("jax") is None:
        return
    from tests.ops.samples import SAMPLES

    for name, samples in sorted(SAMPLES.items()):
        if name in ("sharding_constraint", "reshard"):  # with shardings over CPU devices
            continue
        for i, sample in enumerate(samples):

            def program(
                how: str, where: str = "one", n: str = name, i: int = i, s: Any = sample
            ) -> Program:
                group = "ops" if how == "value" else f"ops {how}"
                return Program(group, f"{n} {i}", _op(n, s, how), where, s.x64, True)

            yield program("value")
            moving = [a for a in sample.args if np.asarray(a).dtype.kind == "f"]
            if moving and sample.order and not sample.keys:
                yield program("grad")
            if sample.batched:
                yield program("vmap")
            if any([np.ndim(a) for a in sample.args]):
                yield program("sharded", "host")


# -- functions, from the calls that benchmarks time --

SIZE = 64
FIXED = ("few", "sorted", "positive")  # operands that keep their dtype
OTHER_DTYPES = {
    "int32": np.int32,
    "uint8": np.uint8,
    "bool": np.bool_,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float64": np.float64,
    "complex64": np.complex64,
    "complex128": np.complex128,
}
TRANSFORMS = ("value", "grad", "vmap", "even", "uneven")


def _operand(name: str, dtype: Any) -> np.ndarray:
    value = ARRAYS[name][0](SIZE)
    kind = np.dtype(dtype).kind
    if value.dtype == np.float32 and not (name in FIXED and kind not in "fcV"):
        return value.astype(dtype)
    wide = np.dtype(dtype).itemsize >= 8 and kind in "fc"
    return value.astype(np.complex128) if value.dtype == np.complex64 and wide else value


def _function(name: str, call: Any, how: str, dtype: Any = np.float32) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        operands = Operands(at.lib, SIZE)
        names = arrays_in(call.cached)
        for n in names:
            if n != "key":
                operands.kept[n] = _operand(n, dtype)
        run, args = bound(call.cached, find(at.lib, name), operands)
        leaves = lambda *a: at.root.tree.leaves(run(*a))  # noqa: E731
        if how == "grad":
            moving = tuple([i for i, a in enumerate(args) if a.dtype == np.float32])
            return at.root.grad(lambda *a: total(at, leaves(*a)), moving), list(map(at.arg, args))
        if how == "vmap":
            fixed = ("key", "sorted", "positive")
            axes = tuple([None if n in fixed else 0 for n in names])
            args = [
                a if d is None else np.broadcast_to(a, (2, *a.shape))
                for a, d in zip(args, axes, strict=True)
            ]
            return at.root.vmap(leaves, axes), list(map(at.arg, args))
        if how in ("even", "uneven"):
            mesh = at.mesh(8 if how == "even" else 5)
            specs = [() if n == "key" else _split(a) for n, a in zip(names, args, strict=True)]
            return leaves, [at.arg(a, *s, mesh=mesh) for a, s in zip(args, specs, strict=True)]
        return leaves, list(map(at.arg, args))

    return make


def functions() -> Iterator[Program]:
    """Every function with a call in the benchmarks' tables."""
    for name, call in calls().items():
        if call.cached is None:
            continue
        arrays = {*arrays_in(call.cached)} - {"key"}
        real = [n for n in arrays if ARRAYS[n][0](SIZE).dtype == np.float32]
        space = name.rpartition(".")[0]
        for how in TRANSFORMS:
            if how == "value" or (arrays and (real or how != "grad")):
                where = "host" if how in ("even", "uneven") else "one"
                group = space if how == "value" else f"{space} {how}"
                yield Program(group, name, _function(name, call, how), where)
        for dtype, kind in OTHER_DTYPES.items() if real else ():
            make = _function(name, call, "value", kind)
            yield Program(f"{space} {dtype}", name, make, x64=dtype in ("float64", "complex128"))
