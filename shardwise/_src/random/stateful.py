"""`stateful_rng`: a generator that counts its draws in a ref, like NumPy's generators.

    rng = stateful_rng(42)
    rng.uniform()
    rng.normal(size=(3,))       # different samples, also inside jit

The n-th draw uses its key with n folded in.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.base.lazy import public
from shardwise._src.core.infer import type_of
from shardwise._src.numpy.creation import zeros
from shardwise._src.random import draws
from shardwise._src.random.continuous import normal as drawn_normal
from shardwise._src.random.generators import Generated
from shardwise._src.random.keys import fold_in, key, split
from shardwise._src.refs.refs import Ref, new_ref
from shardwise._src.tree.registration import register_dataclass
from shardwise._src.types.annotations import Array, ArrayLike, DTypeLike
from shardwise._src.types.dtypes import KeyDType, canonicalize, check_user_dtype
from shardwise._src.values.binary import add, multiply
from shardwise._src.values.convert import cast

Size = int | Sequence[int] | None


def _shape(size: Size, *parameters: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*[type_of(p).shape for p in parameters])
    return tuple(map(operator.index, size)) if np.iterable(size) else (operator.index(size),)


@public("shardwise.experimental.random")
@register_dataclass
@dataclass(frozen=True, slots=True)
class StatefulPRNG:
    """Random samples from a key and a ref that counts draws; created by `stateful_rng`.

    This is a pytree, which may be passed to functions under `jit`; transforms treat its ref like
    any other. Under `checkpoint`, draw a `key` beforehand.
    """

    _base_key: Array
    _counter: Ref

    def __post_init__(self) -> None:
        dtype = getattr(self._base_key, "dtype", None)  # placeholders for leaves have none
        if dtype is not None and not isinstance(dtype, KeyDType):
            raise ValueError(
                "StatefulPRNG takes a typed key; got an array of type "
                f"{type_of(self._base_key).str_short(True)}."
            )

    def key(self, shape: int | Sequence[int] = ()) -> Array:
        """A new key, or an array of them."""
        if type_of(self._base_key).shape:
            raise ValueError(
                "a split StatefulPRNG contains several keys: use it under vmap, or `spawn` to get "
                "a list."
            )
        new = fold_in(self._base_key, self._counter[...])
        self._counter.addupdate(1)
        wanted = _shape(shape)
        return split(new, wanted) if wanted else new

    def random(self, size: Size = None, dtype: DTypeLike = float) -> Array:
        """Uniform floats in [0, 1)."""
        return draws.uniform(self.key(), _shape(size), dtype)

    def uniform(
        self,
        low: ArrayLike = 0,
        high: ArrayLike = 1,
        size: Size = None,
        *,
        dtype: DTypeLike = float,
    ) -> Array:
        """Uniform floats in [low, high)."""
        return draws.uniform(self.key(), _shape(size, low, high), dtype, low, high)

    def normal(
        self,
        loc: ArrayLike = 0,
        scale: ArrayLike = 1,
        size: Size = None,
        *,
        dtype: DTypeLike = float,
    ) -> Array:
        """Normal samples with mean `loc` and standard deviation `scale`."""
        drawn: Any = drawn_normal(self.key(), _shape(size, loc, scale), dtype)
        found = add(loc, multiply(scale, drawn))
        return cast(found, check_user_dtype(dtype, "normal"))

    def integers(
        self,
        low: ArrayLike,
        high: ArrayLike | None = None,
        size: Size = None,
        *,
        dtype: DTypeLike = int,
    ) -> Array:
        """Uniform integers in [low, high), or in [0, low)."""
        if high is None:
            low, high = 0, low
        return draws.randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """Independent generators in one object, for `vmap`."""
        return StatefulPRNG(self.key(num), new_ref(zeros(num, canonicalize(int))))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """Independent generators in a list."""
        keys: Any = self.key(n_children)
        return [StatefulPRNG(keys[i], new_ref(0)) for i in range(n_children)]


def stateful_rng(seed: ArrayLike | None = None, *, impl: Generated = None) -> StatefulPRNG:
    """A random number generator that counts its draws.

    seed: an integer; by default from the operating system, outside of transforms only.
    impl: the generator of the key, as for `random.key`.
    """
    if seed is None:
        if not getattr(current().interpreter, "eager", False):
            raise TypeError(
                "stateful_rng needs a seed inside transforms: a seed drawn at trace time would be "
                "the same in every call."
            )
        entropy = np.random.SeedSequence().entropy
        assert isinstance(entropy, int)
        seed = entropy & (1 << 63) - 1
    return StatefulPRNG(key(seed, impl=impl), new_ref(0))
