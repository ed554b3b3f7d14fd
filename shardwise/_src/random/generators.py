"""Random bit generators: their names, and custom definitions.

    counting = define_prng_impl(
        key_shape=(1,), seed=…, split=…, random_bits=…, fold_in=…, name="counting", tag="cnt"
    )
    key = random.key(0, impl=counting)      # key<cnt>[]

The functions of a definition take one key; they are mapped over arrays of keys.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NewType

import numpy as np

from shardwise._src.base.config import threefry_partitionable
from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.maps.vmap import vmap
from shardwise._src.numpy.creation import asarray
from shardwise._src.ops.random import hashes
from shardwise._src.ops.random.bits import GENERATORS, default_dtype, generator, random_seed
from shardwise._src.ops.shape import concatenate, slice_in_dim
from shardwise._src.random import core_generator
from shardwise._src.types.annotations import Array, ArrayLike
from shardwise._src.types.dtypes import KeyDType

Key = NewType("Key", Array)


class PRNGImpl(NamedTuple):
    """A generator, as functions of one key, which is a uint32 array of shape `key_shape`.

    seed(integer) → key;  split(key, shape) → keys;  fold_in(key, integer) → key;
    random_bits(key, bit_width, shape) → unsigned integers.
    """

    key_shape: tuple[int, ...]
    seed: Callable[..., Any]
    split: Callable[..., Any]
    random_bits: Callable[..., Any]
    fold_in: Callable[..., Any]
    name: str = "<unnamed>"
    tag: str = "?"

    def __str__(self) -> str:
        return self.tag


@public("shardwise.extend.random")
@dataclass(frozen=True, repr=False)
class PRNGSpec:
    """A custom generator, to be passed as `impl=`."""

    _impl: PRNGImpl

    def __repr__(self) -> str:
        return f"PRNGSpec({self._impl.name!r})"

    def __str__(self) -> str:
        return self._impl.tag


TPU_KEYS = PRNGImpl(
    core_generator.KEY_SHAPE,
    core_generator.seed_of,
    core_generator.split,
    core_generator.bits,
    core_generator.fold_in,
    core_generator.NAME,
    core_generator.TAG,
)
NAMED = {TPU_KEYS.name: TPU_KEYS}  # definitions that are also found by their names
Generated = str | KeyDType | PRNGSpec | PRNGImpl | None


def define_prng_impl(
    *,
    key_shape: tuple[int, ...],
    seed: Callable[..., Any],
    split: Callable[..., Any],
    random_bits: Callable[..., Any],
    fold_in: Callable[..., Any],
    name: str = "<unnamed>",
    tag: str = "?",
) -> PRNGSpec:
    """Defines a custom generator, for `impl=` of `random.key`.

    key_shape: shape of the uint32 array of a key.
    seed(integer) → key;  split(key, shape) → keys;  fold_in(key, integer) → key;
    random_bits(key, bit_width, shape) → unsigned integers of that width. All are traced.
    tag: shown in dtypes, `key<tag>`.
    """
    impl = PRNGImpl(tuple(key_shape), seed, split, random_bits, fold_in, name, tag)
    for part, function in zip(impl._fields[1:5], impl[1:5], strict=True):
        if not callable(function):
            raise TypeError(f"define_prng_impl: {part} must be a function; got {function!r}.")
    return PRNGSpec(impl)


def key_dtype(impl_spec: Generated = None) -> KeyDType:
    """The dtype of typed keys of a generator, by its name or by the result of `define_prng_impl`;
    None for the generator of the flag `default_prng_impl`."""
    if impl_spec is None:
        return default_dtype()
    if isinstance(impl_spec, KeyDType):
        return impl_spec
    if isinstance(impl_spec, PRNGSpec):
        impl_spec = impl_spec._impl
    if isinstance(impl_spec, str):
        impl_spec = NAMED.get(impl_spec, impl_spec)
    if isinstance(impl_spec, PRNGImpl):
        if impl_spec in _OURS:
            return key_dtype(impl_spec.name)
        return KeyDType(impl_spec.name, impl_spec.key_shape, Defined(impl_spec))
    if not isinstance(impl_spec, str):
        raise TypeError(
            "a PRNG implementation must be a name, a key dtype, or a result of `define_prng_impl`; "
            f"got {impl_spec!r} of type {type(impl_spec).__name__}."
        )
    if impl_spec in GENERATORS:
        return KeyDType(impl_spec, GENERATORS[impl_spec].key_shape)
    known = ", ".join(map(repr, (*GENERATORS, *NAMED)))
    raise ValueError(f"unknown PRNG implementation {impl_spec!r}. The known ones are: {known}.")


# -- a definition in the library's interface (ops/random/bits.py): over arrays of keys --


@dataclass(frozen=True)
class Defined:
    """The generator of a definition. Its functions may draw from other generators, which behave
    differently for arrays of keys; these process keys one by one where that matters."""

    impl: PRNGImpl
    each: bool = False

    @property
    def tag(self) -> str:
        return self.impl.tag

    def seed(self, value: Any) -> Any:
        return self._over(self.impl.seed, type_of(value).shape)(asarray(value))

    def split(self, key: Any, shape: tuple[int, ...], partitionable: bool) -> Any:
        with threefry_partitionable(partitionable):
            return self._over(partial(_split, self.impl.split, shape), self._lead(key))(key)

    def fold_in(self, key: Any, data: Any) -> Any:
        fun, mine, other = self.impl.fold_in, self._lead(key), type_of(data).shape
        for n, m in reversed(list(zip(mine, other, strict=False))):
            fun = vmap(fun) if n == m else _alone(fun, int(m == 1))
        for _ in mine[len(other) :]:
            fun = vmap(fun, in_axes=(0, None))
        for _ in other[len(mine) :]:
            fun = vmap(fun, in_axes=(None, 0))
        return fun(key, asarray(data))

    def bits(self, key: Any, shape: tuple[int, ...], width: int, partitionable: bool) -> Any:
        with threefry_partitionable(partitionable):
            fun = partial(_bits, self.impl.random_bits, width, shape)
            return self._over(fun, self._lead(key))(key)

    def _lead(self, key: Any) -> tuple[int, ...]:
        shape = type_of(key).shape
        return shape[: len(shape) - len(self.impl.key_shape)]

    def _over(self, fun: Callable[..., Any], lead: tuple[int, ...]) -> Callable[..., Any]:
        for _ in lead:
            fun = vmap(fun)
        return fun


def _split(fun: Callable[..., Any], shape: tuple[int, ...], key: Any) -> Any:
    return fun(key, shape)


def _bits(fun: Callable[..., Any], width: int, shape: tuple[int, ...], key: Any) -> Any:
    return fun(key, width, shape)


def _alone(fun: Callable[..., Any], at: int) -> Callable[..., Any]:
    """`fun`, mapped over the other operand; the operand of size 1 is shared."""

    def mapped(*xs: Any) -> Any:
        one = xs[at][0]
        return vmap(fun, in_axes=(0, None) if at else (None, 0))(
            *((xs[0], one) if at else (one, xs[1]))
        )

    return mapped


# -- built-in generators as definitions --


@dataclass(frozen=True)
class _Function:
    """A function of a generator."""

    dtype: KeyDType


class _Seed(_Function):
    def __call__(self, seed: ArrayLike) -> Array:
        return generator(self.dtype).seed(asarray(seed))


class _Split(_Function):
    def __call__(self, key: ArrayLike, shape: tuple[int, ...]) -> Array:
        return generator(self.dtype).split(key, tuple(shape), threefry_partitionable.value)


class _FoldIn(_Function):
    def __call__(self, key: ArrayLike, data: ArrayLike) -> Array:
        return generator(self.dtype).fold_in(key, asarray(data, np.uint32))


class _Bits(_Function):
    def __call__(self, key: ArrayLike, bit_width: int, shape: tuple[int, ...]) -> Array:
        on = threefry_partitionable.value
        return generator(self.dtype).bits(key, tuple(shape), bit_width, on)


def _definition(name: str) -> PRNGImpl:
    dtype = key_dtype(name)
    functions = _Seed(dtype), _Split(dtype), _Bits(dtype), _FoldIn(dtype)
    return PRNGImpl(dtype.physical_shape, *functions, name, dtype.name[4:-1])


threefry_prng_impl = _definition("threefry2x32")
rbg_prng_impl = _definition("rbg")
unsafe_rbg_prng_impl = _definition("unsafe_rbg")
_OURS = (threefry_prng_impl, rbg_prng_impl, unsafe_rbg_prng_impl)


def seed_with_impl(impl: PRNGImpl, seed: ArrayLike) -> Array:
    """Typed keys of a generator, from integer seeds of any shape."""
    return seeded(seed, impl)


def seeded(seeds: ArrayLike, impl: PRNGImpl) -> Array:
    """Typed keys of a generator, from integer seeds of any shape."""
    return random_seed(asarray(seeds), dtype=key_dtype(impl))


def threefry_2x32(keypair: Any, count: ArrayLike) -> Array:
    """The hashes of the uint32 array `count` under the two words of `keypair`.

    The first half of its elements is paired with the second; for an odd size, the last with 0.
    """
    first, second = keypair[0], keypair[1]
    count = asarray(count)
    if not (
        count.dtype == np.uint32 and all(type_of(k).dtype == np.uint32 for k in (first, second))
    ):
        raise TypeError(
            f"threefry_2x32 takes uint32 words; got {type_of(first).str_short(True)}, "
            f"{type_of(second).str_short(True)} and {type_of(count).str_short(True)}."
        )
    flat, size = count.reshape(-1), count.size
    if size % 2:
        flat = concatenate(flat, asarray(np.zeros(1, np.uint32)), dimension=0)
    half = flat.size // 2
    parts = [slice_in_dim(flat, i * half, (i + 1) * half, 0) for i in range(2)]
    both = concatenate(*hashes.threefry2x32(first, second, *parts), dimension=0)
    return slice_in_dim(both, 0, size, 0).reshape(count.shape)
