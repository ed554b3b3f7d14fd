"""Parts and images of refs, which are read and written like refs.

    ref.at[1:].at[0][...] = x       # ref[1] = x
    ref.reshape(4, 2)[0] = x        # the first two of eight elements

A part is an index into its parent. An image is a bijective function of its parent's value: a write
through it replaces the parent's value. Both are pytrees with the ref as a leaf, so functions that
take refs take them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from shardwise._src.base.errors import DtypeError
from shardwise._src.core.infer import as_arraylike, type_of
from shardwise._src.ops.basis import reshape, transpose
from shardwise._src.ops.cast import bitcast_convert_type
from shardwise._src.runtime.pytree import register_node
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import canonicalize, itemsize_bits
from shardwise._src.types.promotion import lattice_join
from shardwise._src.values.at import write
from shardwise._src.values.indexing import getitem


class Access:
    """The methods of refs, their parts and images to read and write elements."""

    __slots__ = ()

    def get(self, idx: Any = ...) -> Any:
        """The value, or a part of it."""
        raise NotImplementedError

    def _write(self, method: str, idx: Any, value: Any) -> None:
        raise NotImplementedError

    def _reject(self, *others: Any, **options: Any) -> NoReturn:
        raise TypeError(
            f"{getattr(self, 'short', 'a part of a ref')} is a ref, not an array: read its value "
            "with `ref[...]`."
        )

    __add__ = __sub__ = __mul__ = __matmul__ = __truediv__ = __floordiv__ = __mod__ = _reject
    __radd__ = __rsub__ = __rmul__ = __rmatmul__ = __rtruediv__ = __rfloordiv__ = _reject
    __pow__ = __rpow__ = __rmod__ = __divmod__ = __and__ = __or__ = __xor__ = __rand__ = _reject
    __ror__ = __rxor__ = __lshift__ = __rshift__ = __invert__ = __neg__ = __pos__ = _reject
    __lt__ = __le__ = __gt__ = __ge__ = __abs__ = __round__ = __float__ = __int__ = _reject
    __bool__ = __array_ufunc__ = _reject

    def set(self, value: Any, idx: Any = ...) -> None:
        """Writes to the elements `idx`."""
        self._write("set", idx, value)

    def swap(self, value: Any, idx: Any = ...) -> Any:
        """Writes to the elements `idx`; returns their previous values."""
        old = self.get(idx)
        self.set(value, idx)
        return old

    def addupdate(self, value: Any, idx: Any = ...) -> None:
        """Adds to the elements `idx`; repeated indices add repeatedly."""
        self._write("add", idx, value)

    def __getitem__(self, idx: Any) -> Any:
        return self.get(idx)

    def __setitem__(self, idx: Any, value: Any) -> None:
        self.set(value, idx)

    @property
    def at(self) -> RefAt:
        """`ref.at[idx]`: a part of the ref, which is read and written like a ref."""
        return RefAt(self)

    def part(self, index: Any) -> RefPart:
        return RefPart(self, index)

    def reshape(self, *shape: Any) -> RefImage:
        """The ref with another shape; one size may be -1."""
        sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape
        return reshaped(self, tuple(sizes))

    def transpose(self, *permutation: Any) -> RefImage:
        """The ref with its dimensions in another order; in reverse order by default."""
        one = len(permutation) == 1 and isinstance(permutation[0], tuple | list)
        return transposed(self, tuple(permutation[0] if one else permutation))

    @property
    def T(self) -> RefImage:
        """`transpose()`."""
        return transposed(self, ())

    def bitcast(self, dtype: Any) -> RefImage:
        """The ref's bits as elements of another dtype. If these are narrower, each row becomes
        several, of which the first has the lowest bits; if wider, several rows become one."""
        return bitcast(self, dtype)


class RefAt:
    """The type of `ref.at`: index it to select a part."""

    __slots__ = ("ref",)

    def __init__(self, ref: Access):
        self.ref = ref

    def __getitem__(self, index: Any) -> RefPart:
        return self.ref.part(index)


class RefPart(Access):
    """A part of a ref that can be read and written: `ref.at[1:][0] = x` is `ref[1] = x`."""

    __slots__ = ("ref", "index")

    def __init__(self, ref: Any, index: Any):
        self.ref = ref
        self.index = index

    type: Any = property(lambda self: type_of(self.get()))
    space: Any = property(lambda self: self.ref.space)
    shape = property(lambda self: self.type.shape)
    dtype = property(lambda self: self.ref.dtype)
    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: self.type.size)

    @property
    def short(self) -> str:
        return f"Ref{{{self.type.str_short(True)}}}"

    def __repr__(self) -> str:
        return f"RefPart({self.ref!r}, {self.index!r})"

    def get(self, idx: Any = ...) -> Any:
        """The part, or a part of it."""
        part = self.ref.get(self.index)
        return part if idx is ... or idx is None else getitem(part, idx)

    def _write(self, method: str, idx: Any, value: Any) -> None:
        value = as_arraylike(value)
        check_kept(self, type_of(value))
        part = write(method, self.get(), ... if idx is None else idx, value)
        self.ref.set(part, self.index)


class RefImage(RefPart):
    """A ref's value by a bijective function. forward, backward: the function and its inverse."""

    __slots__ = ("forward", "backward")

    def __init__(self, ref: Any, forward: Callable[[Any], Any], backward: Callable[[Any], Any]):
        super().__init__(ref, ...)
        self.forward, self.backward = forward, backward

    dtype = property(lambda self: self.type.dtype)

    def __repr__(self) -> str:
        return self.short

    def get(self, idx: Any = ...) -> Any:
        """The value, or a part of it."""
        value = self.forward(self.ref.get())
        return value if idx is ... or idx is None else getitem(value, idx)

    def _write(self, method: str, idx: Any, value: Any) -> None:
        value = as_arraylike(value)
        check_kept(self, type_of(value))
        new = write(method, self.get(), ... if idx is None else idx, value)
        self.ref.set(self.backward(new))


def reshaped(ref: Any, shape: tuple[int, ...]) -> RefImage:
    known, size = int(np.prod([n for n in shape if n != -1])), ref.size
    filled = tuple([size // known if n == -1 and known else n for n in shape])
    if int(np.prod(filled)) != size or min(filled, default=0) < 0:
        raise ValueError(f"reshape: {ref.short} has {size} elements, which is not a {list(shape)}.")
    old = ref.shape
    return RefImage(ref, lambda x: reshape(x, shape=filled), lambda x: reshape(x, shape=old))


def transposed(ref: Any, permutation: tuple[int, ...]) -> RefImage:
    order = permutation or tuple(reversed(range(ref.ndim)))
    if sorted(order) != list(range(ref.ndim)):
        raise ValueError(
            f"transpose: expected the numbers of the {ref.ndim} dimensions of {ref.short} in some "
            f"order; got {permutation}."
        )
    inverse = tuple(np.argsort(order).tolist())
    return RefImage(ref, lambda x: transpose(x, perm=order), lambda x: transpose(x, perm=inverse))


def bitcast(ref: Any, dtype: Any) -> RefImage:
    new, old, shape = canonicalize(dtype), ref.dtype, ref.shape
    a, b = itemsize_bits(old), itemsize_bits(new)
    if a != b and len(shape) < 2:
        raise ValueError(
            f"bitcast: elements of {new} have another size than those of {ref.short}, which needs "
            "rows to split or combine: a last dimension but one."
        )
    if a != b and shape[-2] * a % b:
        raise ValueError(
            f"bitcast: {b // a} rows become one of {new}, but {ref.short} has {shape[-2]} rows."
        )
    return RefImage(ref, lambda x: bits_as(x, new), lambda x: bits_as(x, old))


def bits_as(x: Any, dtype: Any) -> Any:
    t: ArrayType = type_of(x)
    a, b = itemsize_bits(t.dtype), itemsize_bits(dtype)
    if a == b:
        return bitcast_convert_type(x, dtype=dtype)
    *outer, rows, columns = t.shape
    n = len(outer)
    order = (*range(n + 1), n + 2, n + 1)
    if a < b:
        split = reshape(x, shape=(*outer, rows * a // b, b // a, columns))
        return bitcast_convert_type(transpose(split, perm=order), dtype=dtype)
    parts = transpose(bitcast_convert_type(x, dtype=dtype), perm=order)
    return reshape(parts, shape=(*outer, rows * a // b, columns))


def check_kept(ref: Any, t: ArrayType) -> None:
    """Raises if a ref cannot hold values of a type."""
    if lattice_join((ref.dtype, False), (t.dtype, t.weak_type))[0] != ref.dtype:
        raise DtypeError(
            f"{ref.short} cannot hold {t.str_short(True)}: its dtype cannot change. Cast the "
            "value with `.astype(ref.dtype)`."
        )


# -- as pytrees --


def _form_of(index: Any, moving: list[Any]) -> Any:
    """An index without its arrays, which are appended to `moving`."""
    if isinstance(index, tuple):
        return (tuple, *[_form_of(i, moving) for i in index])
    if isinstance(index, slice):
        return (slice, *[_form_of(i, moving) for i in (index.start, index.stop, index.step)])
    if index is None or index is ... or isinstance(index, int | np.integer):
        return index
    moving.append(index)
    return slice  # represents an array


def _index_from(form: Any, moving: Any) -> Any:
    if form is slice:
        return next(moving)
    if not isinstance(form, tuple):
        return form
    kind, *inner = form
    found = [_index_from(i, moving) for i in inner]
    return tuple(found) if kind is tuple else slice(*found)


def _parts_of(part: RefPart) -> tuple[Any, Any]:
    moving: list[Any] = []
    form = _form_of(part.index, moving)
    return (part.ref, *moving), form


register_node(
    RefPart,
    _parts_of,
    lambda form, children: RefPart(children[0], _index_from(form, iter(children[1:]))),
)
register_node(
    RefImage,
    lambda image: ((image.ref,), (image.forward, image.backward)),
    lambda functions, children: RefImage(children[0], *functions),
)
