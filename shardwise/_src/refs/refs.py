"""Mutable references: `Ref`, and the conversion of a function's effects on refs to values.

A ref holds a value, and writing replaces it: there are no ops for refs. If a function is traced
(`jit`, `scan`, `cond`, `while_loop`) and uses an outer ref, the stage gets an additional input, the
initial value; the final value is an additional result (`Stage.refs`). The caller of the traced
program passes the first and writes back the second:

    refs = []
    program, captured = stage(f, types, refs=refs)
    outs = call(*captured, *xs, *values_of(refs), program=program)
    outs, last = outs[: len(outs) - len(refs)], outs[len(outs) - len(refs) :]
    write_back(refs, last)

Transforms that call a function directly (`grad`, `vmap`) need none of this. A ref made outside of
them cannot store their tracers, which would outlive them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from shardwise._src.base.context import current
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.core.eval_context import eval_trace
from shardwise._src.core.infer import as_arraylike, is_array, type_of
from shardwise._src.messages.formatting import short_repr
from shardwise._src.messages.source import describe, user_site
from shardwise._src.ops.basis import zeros
from shardwise._src.ops.elementwise import stop_gradient
from shardwise._src.ops.families import add
from shardwise._src.ops.sharded.sharding_ops import reshard_like
from shardwise._src.ops.sharded.varying import everywhere
from shardwise._src.refs.ref_parts import Access, check_kept
from shardwise._src.refs.ref_parts import RefPart as RefPart
from shardwise._src.transforms.stage import Stage
from shardwise._src.transforms.tracer import Tracer, escaped, is_ancestor
from shardwise._src.types.annotations import Array
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import canonicalize
from shardwise._src.values.at import write
from shardwise._src.values.convert import broadcast_to, cast
from shardwise._src.values.index_pattern import parse
from shardwise._src.values.indexing import getitem

# The memory space of refs from outside, in a function that runs on the cores of a device.
DEFAULT_SPACE: ContextVar[Any] = ContextVar("default memory space of refs", default=None)


class Ref(Access):
    """A mutable array. Made by `new_ref`.

        ref[...]            # the value
        ref[0] = 1.0        # writes elements, with any index that arrays accept
        ref[1:] += y

    Shape and dtype do not change, nor does the sharding of a value that was placed: written values
    are broadcast, cast if that is lossless, and moved.
    """

    __slots__ = (
        "type", "kind", "_space", "_value", "_owner", "_ended", "_site", "_lent_to", "__weakref__"
    )  # fmt: skip

    def __init__(self, value: Any, space: Any = None, kind: str | None = None):
        self.type = type_of(value)
        self.kind = kind
        self._space = space
        self._value = value
        self._owner: Any = current().interpreter
        self._ended = ""
        self._lent_to = ""
        self._site = user_site(2)

    shape = property(lambda self: self.type.shape)
    ndim = property(lambda self: self.type.ndim)
    size = property(lambda self: self.type.size)
    sharding = property(lambda self: value_of(self).sharding)

    @property
    def dtype(self) -> Any:
        return self.type.dtype if self._space is None else self._space.dtype_of(self)

    @property
    def space(self) -> Any:
        """The memory space of a ref in a kernel, which reads and writes it; None elsewhere."""
        return self._space or DEFAULT_SPACE.get()

    @property
    def short(self) -> str:
        """`Ref{f32[4]}`, for messages."""
        return f"Ref{{{self.type.str_short(True)}}}"

    def part(self, index: Any) -> RefPart:
        return RefPart(self, index) if self.space is None else self.space.part(self, index)

    def get(self, idx: Any = ...) -> Any:
        """The value, or a part of it."""
        if self.space is not None:
            return self.space.read(self, idx)
        value = value_of(self)
        _check_index(self, idx)
        return value if idx is ... or idx is None else getitem(value, idx)

    def _write(self, method: str, idx: Any, value: Any) -> None:
        value = as_arraylike(value)
        check_kept(self, type_of(value))
        if self.space is not None:
            self.space.write(self, method, idx, value)
            return
        old = value_of(self)
        _check_index(self, idx)
        if idx is None or idx is ...:
            value = _in_shape(self, cast(value, self.dtype, False))
            put(self, value if method == "set" else add(old, _beside(old, value)))
        else:
            put(self, write(method, old, idx, value))

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError(f"len() of {self.short}, which has no dimensions.")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        raise _not_array(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int | float | complex | np.generic | np.ndarray | Tracer):
            raise _not_array(self)
        if is_array(other):
            raise _not_array(self)
        return self is other

    __hash__ = object.__hash__

    def __copy__(self) -> Ref:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ref:
        return new_ref(value_of(self), kind=self.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("Ref", value_of(self))

    def __repr__(self) -> str:
        if self._ended or not self._owner.eager:
            return self.short
        return repr(self._value).replace("Array", "Ref", 1)


def new_ref(
    init_val: Any, *, memory_space: Any = None, kind: str | None = None, pin: bool = False
) -> Ref:
    """A mutable reference with an initial value.

    Args:
      init_val: an array or a scalar. Refs keep its shape and dtype, and its sharding over explicit
        mesh axes. Refs made inside `shard_map` hold per-device values, according to their type.
      kind: "no_grad_no_remat" for a ref whose contents have no derivative, for statistics: it may
        be made outside of functions that are differentiated, and hold values from inside.
        `checkpoint` never repeats writes, whatever the kind.
      memory_space, pin: None and False; they are for kernels.

    Returns:
      The ref: `ref[...]` reads it, `ref[...] = x` writes it.

    Raises:
      TypeError: if the value is not an array, or is a ref itself.
    """
    check_plain("new_ref", memory_space=memory_space, pin=pin or None)
    check_kind("new_ref", kind)
    if init_val.__class__ is Ref:
        raise TypeError(
            f"new_ref: got {init_val.short}, which is a ref already. For a second one with the "
            "same value, pass `ref[...]`."
        )
    x = as_arraylike(init_val)
    value = x._itself() if is_array(x) else eval_trace().new_array(x)
    t = type_of(value)
    value = everywhere(cast(value, t.dtype, False) if t.weak_type else value)
    return Ref(value if kind is None else stop_gradient(value), kind=kind)


read_by("Ref", new_ref)


def freeze(ref: Ref) -> Array:
    """Returns the value of a ref and ends the ref: it cannot be used afterwards.

    Raises:
      ValueError: if the ref has ended, or was made outside of the function being traced.
    """
    check_ref("freeze", ref)
    value = value_of(ref)
    if _stage_of(ref) is not None:
        raise ValueError(
            f"freeze: {ref.short}, made at {describe(ref._site)}, belongs to a function outside of "
            "the one that is being traced, and may be used there later. Freeze it there."
        )
    ref._ended = f"frozen at {describe(user_site(2))}"
    return value


def end_ref(ref: Ref, what: str) -> None:
    """Makes a ref invalid. what: completes "the ref was", for the error of later uses."""
    ref._ended = what


def free_ref(ref: Ref) -> None:
    """Ends a ref and frees its memory: it cannot be used afterwards. Raises as `freeze`."""
    freeze(ref)
    ref._value, ref._ended = None, ref._ended.replace("frozen", "freed", 1)


def empty_ref(ty: Any, memory_space: Any = None, pin: bool = False) -> Ref:
    """A ref with a shape and dtype, whose initial value is unspecified.

    Args:
      ty: an object with a shape and a dtype, such as `ShapeDtypeStruct`.
      memory_space, pin: None and False; they are for kernels.
    """
    check_plain("empty_ref", memory_space=memory_space, pin=pin or None)
    return new_ref(zeros(array_type(tuple(ty.shape), canonicalize(ty.dtype))))


def check_plain(who: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise NotImplementedError(
                f"{who}: {name} applies only to refs in kernels; got {value!r}. Leave it out: "
                "`shardwise.memory.Space` determines where an array is, and its ref stays there."
            )


def check_kind(who: str, kind: str | None) -> None:
    if kind not in (None, "no_grad_no_remat"):
        raise ValueError(f"{who}: kind must be None or 'no_grad_no_remat'; got {kind!r}.")


def check_ref(who: str, ref: Any) -> None:
    """Raises if an object is not a ref."""
    if not isinstance(ref, Ref | RefPart):
        raise TypeError(f"{who}: expected a Ref; got {short_repr(ref)}.")


# -- the value at the current point of the program --


def value_of(ref: Ref) -> Any:
    """The value of a ref in the current interpreter."""
    stage = _stage_of(ref)
    return ref._value if stage is None else _entry(ref, stage)[1]


def values_of(refs: Sequence[Ref]) -> list[Any]:
    return [value_of(r) for r in refs]


def write_back(refs: Sequence[Ref], values: Sequence[Any]) -> None:
    """Replaces values of refs by the values that a program returned."""
    for ref, value in zip(refs, values, strict=True):
        if value is not value_of(ref):
            put(ref, value)


def put(ref: Ref, value: Any) -> None:
    """Replaces the value of a ref."""
    t = ref.type
    value = cast(value, t.dtype, False)
    if ref.kind is not None:
        value = stop_gradient(value)
    if current().interpreter.eager and not is_array(value):
        value = eval_trace().new_array(value)  # not a cached one: users can access it
    value = _beside(value_of(ref), value)
    stage = _stage_of(ref)
    holder = ref._owner if stage is None else stage
    if isinstance(value, Tracer) and not is_ancestor(value.interpreter, holder):
        raise _too_deep(ref, value)
    if stage is None:
        ref._value = value
    else:
        _entry(ref, stage)[1] = value


def _beside(old: Any, value: Any) -> Any:
    """Moves a new value to the old one's sharding; if traced, to the sharding in its type."""
    if not current().interpreter.eager:
        return reshard_like(value, type_of(old))
    value = eval_trace().array(value)
    if not old.committed or (value.committed and value.sharding == old.sharding):
        return value
    return eval_trace().place(value, old.sharding)


def _stage_of(ref: Ref) -> Stage | None:
    """The innermost stage inside which the ref is an outer one; None if it is read directly."""
    if ref._ended:
        raise ValueError(f"{ref.short} was {ref._ended}, and can no longer be used.")
    owner = ref._owner
    tag = getattr(owner, "tag", owner)
    inner: Stage | None = None
    at: Any = current().interpreter
    while at is not owner and getattr(at, "tag", at) is not tag:
        if inner is None and at.__class__ is Stage:
            inner = at
        at = at.parent
        if at is None:
            raise _escaped(ref)
    if not owner.alive:
        raise _escaped(ref)
    if ref._lent_to:
        raise ValueError(
            f"{ref.short}, made at {describe(ref._site)}, is an argument of {ref._lent_to}, and "
            "that function also uses it from outside. A function that gets a ref must not access "
            "it in another way: use the argument."
        )
    return inner


def _entry(ref: Ref, stage: Stage) -> list[Any]:
    """A stage's record of an outer ref: its initial value and its current value."""
    found = stage.refs.get(ref)
    if found is None:
        if stage.ref_type is None:
            raise _not_threaded(ref, stage)
        outer = _stage_around(ref, stage)
        t = stage.ref_type(ref.type if outer is None else type_of(_entry(ref, outer)[1]))
        start = stage.new_input(t)
        found = stage.refs[ref] = [start, start]
    return found


def _not_threaded(ref: Ref, stage: Stage) -> NotImplementedError:
    return NotImplementedError(
        f"{ref.short} from outside is used in a function that is staged by "
        f"{stage.describe()}, which does not support refs. Read the ref beforehand and pass "
        "the value; `jit`, `checkpoint`, `checkify`, `scan`, `map`, `associative_scan`, "
        "`cond`, `switch`, `while_loop`, `fori_loop`, `shard_map` and `pmap` support refs."
    )


def _stage_around(ref: Ref, stage: Stage) -> Stage | None:
    """The next stage around one that has the ref as an outer one, too."""
    tag, at = getattr(ref._owner, "tag", ref._owner), stage.parent
    while at is not ref._owner and getattr(at, "tag", at) is not tag:
        if at.__class__ is Stage:
            return at
        at = at.parent
    return None


def keepable(refs: Sequence[Ref]) -> bool:
    """Whether programs that use these refs may be cached for later calls."""
    return all(ref._owner.eager for ref in refs)


def _check_index(ref: Ref, idx: Any) -> None:
    """Raises if a static integer of an index is out of bounds, which arrays ignore."""
    if idx.__class__ not in (int, tuple):
        return
    if parse(idx, ref.shape, moving=True, clip=False, trusted=False).outside:
        parts = idx if idx.__class__ is tuple else (idx,)
        text = ", ".join(str(i) if isinstance(i, int | np.integer) else ":" for i in parts)
        raise IndexError(
            f"{ref.short} has no element [{text}]: an integer of the index is out of bounds."
        )


def _in_shape(ref: Ref, value: Any) -> Any:
    """A value broadcast to the shape of a ref."""
    shape = type_of(value).shape
    pairs = zip(reversed(shape), reversed(ref.shape), strict=False)
    if len(shape) > ref.ndim or any(n not in (1, m) for n, m in pairs):
        raise ValueError(
            f"{ref.short} cannot hold {type_of(value).str_short(True)}: it cannot be broadcast to "
            "the ref's shape."
        )
    return broadcast_to(value, ref.shape)


def _not_array(ref: Ref) -> TypeError:
    return TypeError(f"{ref.short} is a ref, not an array: read its value with `ref[...]`.")


def _escaped(ref: Ref) -> Exception:
    whose = ref._owner.describe() if not ref._owner.eager else "no transform"
    advice = "Return `freeze(ref)`"
    if ref._space is not None:
        advice = "Use the array that the launch returns"
    return ValueError(
        f"{ref.short}, made at {describe(ref._site)}, is used where it cannot be reached: it "
        f"belongs to {whose}. {advice} instead of storing the ref outside."
    )


def _too_deep(ref: Ref, value: Any) -> Exception:
    interpreter = value.interpreter
    if not interpreter.alive:
        return escaped(value)
    kind = "a mapped value" if hasattr(interpreter, "tag") else "a value that is differentiated"
    return ValueError(
        f"{ref.short}, made at {describe(ref._site)}, cannot hold {kind}: it was made outside of "
        f"{interpreter.describe()}. Make the ref inside of that function, or "
        + (
            "pass it as a mapped argument."
            if hasattr(interpreter, "tag")
            else "write `shardwise.lax.stop_gradient(x)`."
        )
    )


# -- refs as arguments --


def is_ref(x: Any) -> bool:
    return x.__class__ is Ref


def reject_returned(who: str, leaves: Sequence[Any]) -> None:
    """Raises if a ref is among the results of a traced function."""
    found = next((x for x in leaves if x.__class__ is Ref), None)
    if found is not None:
        raise ValueError(
            f"{who} returned {found.short}, made at {describe(found._site)}. A ref cannot "
            "leave a staged function: return its value, `ref[...]` or `freeze(ref)`."
        )
