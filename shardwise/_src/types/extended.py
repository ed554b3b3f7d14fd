"""Extended dtypes: elements that are not numbers, stored as small arrays of numbers.

An array of typed PRNG keys has the dtype `key<fry>`: each element is one key, stored as a
`uint32[2]` that only the key code accesses. NumPy cannot represent such a dtype; the rest of the
library treats it as opaque: it has a size and equality, but no arithmetic and no promotion.

    dtype = KeyDType("threefry2x32", (2,))
    issubdtype(dtype, prng_key)          # True, and `extended` too; np.number: False
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from shardwise._src.base.pickles import read_by, reduced


class extended(np.generic):
    """Scalar class of every extended dtype, for `issubdtype`; has no instances."""


class prng_key(extended):
    """Scalar class of the dtypes of typed PRNG keys, for `issubdtype`; has no instances."""


@dataclass(frozen=True, repr=False)
class ExtendedDType:
    """A dtype whose element is stored as an array of a NumPy dtype.

    name:           the name it prints as.
    physical_shape: shape of the array that stores one element.
    physical_dtype: NumPy dtype of that array.
    """

    name: str
    physical_shape: tuple[int, ...]
    physical_dtype: np.dtype[Any]
    type: ClassVar[type[np.generic[Any]]] = extended

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return math.prod(self.physical_shape) * self.physical_dtype.itemsize

    @property
    def short_name(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


# Names of the built-in generators inside `key<...>`; others provide their own.
_KEY_TAGS = {
    "threefry2x32": "fry",
    "threefry4x32": "fry4",
    "philox2x32": "phx2",
    "philox4x32": "phx4",
    "rbg": "rbg",
    "unsafe_rbg": "urbg",
}


@dataclass(frozen=True, init=False, eq=False, repr=False)
class KeyDType(ExtendedDType):
    """The dtype of typed PRNG keys. Equal ones are the same object.

    impl_name:      name of the generator, such as "threefry2x32".
    physical_shape: shape of the uint32 array that stores one key.
    own:            the generator itself, if it is not built in: hashable, with a `tag`.
    """

    impl_name: str
    own: Any
    type: ClassVar[type[np.generic[Any]]] = prng_key
    # By generator; there are only a few.
    _interned: ClassVar[dict[tuple[Any, ...], KeyDType]] = {}

    def __new__(cls, impl_name: str, physical_shape: tuple[int, ...], own: Any = None) -> KeyDType:
        key = impl_name, tuple(physical_shape), own
        found = cls._interned.get(key)
        if found is not None:
            return found
        new = object.__new__(cls)
        fields = {
            "name": f"key<{_KEY_TAGS.get(impl_name, impl_name) if own is None else own.tag}>",
            "impl_name": impl_name,
            "physical_shape": key[1],
            "physical_dtype": np.dtype(np.uint32),
            "own": own,
        }
        for field, value in fields.items():
            object.__setattr__(new, field, value)  # frozen: ordinary assignment raises
        return cls._interned.setdefault(key, new)

    def __init__(self, impl_name: str, physical_shape: tuple[int, ...], own: Any = None) -> None:
        """Does nothing: `__new__` has set the fields, or returned an existing object."""

    def __eq__(self, other: object) -> bool:
        return self is other  # interned

    __hash__ = object.__hash__

    def __reduce__(self) -> tuple[Any, ...]:
        own = () if self.own is None else (self.own,)
        return reduced("key dtype", self.impl_name, self.physical_shape, *own)


read_by("key dtype", KeyDType)
