"""`Tracer`: what a function receives instead of an array while it is transformed."""

from __future__ import annotations

from collections.abc import Iterator
from threading import current_thread, get_ident
from typing import Any

from shardwise._src.base.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.messages.source import Site, describe, user_site
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_inexact, is_integer
from shardwise._src.values.value import Value


class Tracer(Value):
    """A value of `interpreter`. Subclasses define what it represents."""

    __slots__ = ("interpreter", "aval", "__weakref__")
    interpreter: Any
    aval: ArrayType

    _trace = property(lambda self: self.interpreter)  # JAX's name

    def __init__(self, interpreter: Any, aval: ArrayType):
        self.interpreter = interpreter
        self.aval = aval

    def made_at(self) -> Site | None:
        """The user's source line that made this value."""
        return None

    def origin(self) -> str:
        """Which arguments the value depends on, if known."""
        return ""

    def concrete(self) -> Any:
        """A concrete array with this tracer's primal value, if there is one; else None."""
        return None

    def hider(self) -> Tracer:
        """The tracer that makes the value unknown: this one, or one that it wraps."""
        return self

    def not_concrete(self) -> str:
        """Why the value is not known, for messages: the end of a sentence, and one more."""
        hider = self.hider()
        origin, made = hider.origin(), hider.made_at()
        if not origin and made is not None:
            origin = f" The value was made at {describe(made)}."
        return f"which is not known while tracing ({hider.interpreter.describe()}).{origin}"

    def known_argument(self) -> str:
        """How an argument can still be known, for messages: the end of a sentence."""
        return _KNOWN_ARGUMENTS.get(self.hider().interpreter.transform, ".")

    def needed_for_shape(
        self, what: str, kind: type[Exception] = ConcretizationTypeError
    ) -> Exception:
        """The error if the shape of a result would depend on this value."""
        if not self.interpreter.alive:
            return escaped(self)
        return kind(
            f"{what} must be concrete, since the size of the result depends on it; got a traced "
            f"{self.aval.str_short(True)}, {self.not_concrete()} Pass a Python number"
            f"{self.known_argument()}"
        )

    def _concrete_or(self, kind: type[Exception], what: str, instead: str) -> Any:
        if not self.interpreter.alive:
            raise escaped(self)
        value = self.concrete()
        if value is None:
            raise kind(
                f"{what} at {describe(user_site(2))} needs the value of a traced array of type "
                f"{self.aval.str_short(True)}, {self.not_concrete()} {instead}"
                f"{self.known_argument()}"
            )
        return value

    def _constant_or(self, kind: type[Exception], what: str, instead: str) -> Any:
        """The concrete value as a constant: rejected if that would silently drop a derivative."""
        value = self._concrete_or(kind, what, instead)
        if is_inexact(self.aval.dtype):
            raise kind(
                f"{what} at {describe(user_site(2))} would make a constant of a value of type "
                f"{self.aval.str_short(True)} that is being differentiated "
                f"({self.interpreter.describe()}), and its derivative would be lost. {instead}, or "
                "mark it as a constant with `shardwise.lax.stop_gradient`."
            )
        return value

    def _reject_elements(self, what: str) -> None:
        """Raises if a scalar is needed and this is not one."""
        if self.shape and self.interpreter.alive:
            raise TypeError(
                f"{what} at {describe(user_site(2))} takes a 0-d array; got a "
                f"traced {self.aval.str_short(True)} ({self.interpreter.describe()})."
            )

    def __bool__(self) -> bool:
        if self.size != 1 and self.interpreter.alive:
            raise ValueError(
                f"the truth value at {describe(user_site())} of a traced array of type "
                f"{self.aval.str_short(True)}, with {self.size} elements, is ambiguous "
                f"({self.interpreter.describe()}). Select elementwise with "
                "`shardwise.numpy.where`, or by one value with `shardwise.lax.cond(x.any(), ...)` "
                "or `x.all()`."
            )
        in_kernel = self.hider().interpreter.transform == "kernels.call"
        advice = _CHOOSE_IN_KERNEL if in_kernel else _CHOOSE
        return bool(self._concrete_or(TracerBoolConversionError, "bool()", advice))

    def __int__(self) -> int:
        self._reject_elements("int()")
        return int(self._concrete_or(ConcretizationTypeError, "int()", _KEEP))

    def __float__(self) -> float:
        self._reject_elements("float()")
        return float(self._constant_or(ConcretizationTypeError, "float()", _KEEP))

    def __complex__(self) -> complex:
        self._reject_elements("complex()")
        return complex(self._constant_or(ConcretizationTypeError, "complex()", _KEEP))

    def __index__(self) -> int:
        if self.interpreter.alive and (self.shape or not is_integer(self.aval.dtype)):
            raise TypeError(
                f"use as a Python integer at {describe(user_site())} takes a 0-d integer "
                f"array; got a traced {self.aval.str_short(True)} "
                f"({self.interpreter.describe()})."
            )
        value = self._concrete_or(TracerIntegerConversionError, "use as a Python integer", _INDEX)
        return value.__index__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        value = self._constant_or(TracerArrayConversionError, "numpy.asarray()", _ARRAY)
        return value.__array__(dtype)

    def item(self, *args: int) -> Any:
        return self._constant_or(ConcretizationTypeError, "item()", _KEEP).item(*args)

    def tolist(self) -> Any:
        return self._constant_or(ConcretizationTypeError, "tolist()", _KEEP).tolist()

    def tobytes(self, order: str | None = "C") -> bytes:
        return self._constant_or(ConcretizationTypeError, "tobytes()", _KEEP).tobytes(order)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict) -> Any:
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        value = self._constant_or(ConcretizationTypeError, "pickling", _PICKLE)
        return value.__reduce_ex__(protocol)

    def __hash__(self) -> int:
        raise TypeError(
            f"a traced value of type {self.aval.str_short(True)} cannot be hashed "
            f"({self.interpreter.describe()}): it cannot be a key of a dict, a member of a set, or "
            "an argument of a function with functools.cache. Use a static key, such as a "
            "name or a position."
        )

    def __iter__(self) -> Iterator[Any]:
        if not self.interpreter.alive:
            raise escaped(self)
        if self.shape:
            return super().__iter__()
        raise TypeError(
            f"iteration at {describe(user_site())} over a traced 0-d array, of type "
            f"{self.aval.str_short(True)} ({self.interpreter.describe()}). To iterate over a range "
            "of traced length, use `shardwise.lax.fori_loop` or `shardwise.lax.while_loop`."
        )

    def __getattr__(self, name: str) -> Any:
        message = f"a traced value of type {self.aval.str_short(True)} has no attribute {name!r}."
        if name in _OF_ARRAYS:
            message = (
                f"a traced value has no {name!r}, since it has no data and no device: it is of "
                f"type {self.aval.str_short(True)} ({self.interpreter.describe()}). Query the "
                "arrays outside of the function; `typeof(x)` gives the type, with the sharding "
                "over explicit mesh axes."
            )
            raise _MissingData(message)
        raise AttributeError(message, name=name, obj=self)

    def __repr__(self) -> str:
        return f"{self.interpreter.transform} tracer {self.aval.str_short(True)}"

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        return format(self._concrete_or(ConcretizationTypeError, f"format {spec!r}", _KEEP), spec)


_CHOOSE = (
    "Use `shardwise.numpy.where` or `shardwise.lax.cond` to choose by value, "
    "`shardwise.lax.while_loop` to repeat"
)
_CHOOSE_IN_KERNEL = (
    "Use `shardwise.kernels.when` to run a part of the kernel for some programs only, "
    "`shardwise.numpy.where` to choose by value, `shardwise.lax.while_loop` to repeat"
)
_KEEP = "Keep it an array"
_PICKLE = (
    "Pickle what the function returns, or use `shardwise.debug.callback` to write values while "
    "it runs"
)
_INDEX = (
    "Use arrays and `shardwise.lax.scan` instead of lists, `range` and shapes that depend on values"
)
_ARRAY = "Use shardwise.numpy instead of numpy inside transformed functions"
# By transform: how an argument's value can still be known.
_KNOWN_ARGUMENTS = {
    "jit": ", or mark the argument static with `static_argnums`.",
    "checkpoint": ", or mark the argument static with `static_argnums`.",
    "vmap": ", or do not map the argument, with None in `in_axes`.",
}
# By transform: how a value leaves a function.
_INSTEAD = {
    "jit": "Return the value from the function",
    "kernels.call": "Write the value to a result of the kernel",
}
# Attributes that arrays have and tracers do not.
_OF_ARRAYS = frozenset(
    "addressable_data addressable_shards block_until_ready committed copy_to_host_async"
    " delete device devices format global_shards is_deleted is_fully_addressable"
    " is_fully_replicated is_ready on_device_size_in_bytes sharding traceback"
    " unsafe_buffer_pointer".split()
)


class _MissingData(ConcretizationTypeError, AttributeError):
    """The error for an attribute of `_OF_ARRAYS`: as in JAX, and `hasattr` is False."""

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("error of a traced value", *self.args)


_MissingData.__name__ = _MissingData.__qualname__ = ConcretizationTypeError.__name__
read_by("error of a traced value", _MissingData)


def escaped(tracer: Tracer) -> UnexpectedTracerError:
    """The error for a tracer that is used outside the function it belongs to."""
    what = f"a traced value of type {tracer.aval.str_short(True)} was used"
    interpreter = tracer.interpreter
    whose = interpreter.describe()
    if not interpreter.alive:
        made = tracer.made_at()
        line = f" The value was made at {describe(made)}." if made is not None else ""
        return UnexpectedTracerError(
            f"{what} outside the function that it belongs to: {whose}, which has ended.{line} "
            f"{_INSTEAD.get(interpreter.transform, _INSTEAD['jit'])} instead of storing it in a "
            "variable or object outside."
        )
    if interpreter.thread != get_ident():
        return UnexpectedTracerError(
            f"{what} in thread {current_thread().name!r}, but it belongs to a function that is "
            f"being traced in another one: {whose}. Start threads outside of transformed "
            "functions, or pass them arrays."
        )
    return UnexpectedTracerError(
        f"{what} where the transform that it belongs to does not reach: {whose}. A function with "
        "its own derivative rule, and that rule, may not take such a value from outside: pass it "
        "as an argument."
    )


def is_ancestor(interpreter: Any, of: Any) -> bool:
    """Whether `interpreter`, or one that represents it, is an ancestor of `of`."""
    tag = getattr(interpreter, "tag", interpreter)
    while of is not None:
        if of is interpreter or getattr(of, "tag", of) is tag:
            return True
        of = of.parent
    return False
