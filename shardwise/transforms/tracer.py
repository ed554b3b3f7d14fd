"""`Tracer`: what a function sees in place of an array while it is transformed."""

from __future__ import annotations

from typing import Any, NoReturn

from shardwise.base.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from shardwise.core.source import Site, describe, user_site
from shardwise.numpy.value import Value
from shardwise.types.array_type import ArrayType
from shardwise.types.dtypes import is_inexact


class Tracer(Value):
    """A value of `interpreter`. Subclasses say what stands behind it."""

    __slots__ = ("interpreter", "aval")
    interpreter: Any
    aval: ArrayType

    def made_at(self) -> Site | None:
        """The user's line that made this value."""
        return None

    def origin(self) -> str:
        """Says which arguments the value depends on, where that is known."""
        return ""

    def concrete(self) -> Any:
        """A concrete array with this tracer's primal value, where there is one; else None."""
        return None

    def needed_for_shape(
        self, what: str, kind: type[Exception] = ConcretizationTypeError
    ) -> Exception:
        """The error where the shape of a result would depend on this value."""
        known = _KNOWN_ARGUMENTS.get(self.interpreter.transform, "")
        return kind(
            f"{what} must be concrete, since the size of the result depends on it; got a traced "
            f"{self.aval.str_short(True)}, which is not known while tracing "
            f"({self.interpreter.describe()}).{self.origin()} Pass a Python number{known}."
        )

    def _needs_value(self, kind: type[Exception], what: str, instead: str) -> NoReturn:
        origin = self.origin()
        made = self.made_at()
        if not origin and made is not None:
            origin = f" The value was made at {describe(made)}."
        raise kind(
            f"{what} at {describe(user_site(2))} needs the value of a traced array of type "
            f"{self.aval.str_short(True)}, which is not known while tracing "
            f"({self.interpreter.describe()}).{origin} {instead}"
        )

    def _concrete_or(self, kind: type[Exception], what: str, instead: str) -> Any:
        if not self.interpreter.alive:
            raise escaped(self)
        value = self.concrete()
        if value is None:
            known = _KNOWN_ARGUMENTS.get(self.interpreter.transform, "")
            self._needs_value(kind, what, instead + known + ".")
        return value

    def _constant_or(self, kind: type[Exception], what: str, instead: str) -> Any:
        """The concrete value as a constant: refused where that would silently drop a derivative."""
        value = self._concrete_or(kind, what, instead)
        if is_inexact(self.aval.dtype):
            raise kind(
                f"{what} at {describe(user_site(2))} would make a constant of a value of type "
                f"{self.aval.str_short(True)} that is being differentiated "
                f"({self.interpreter.describe()}), and its derivative would be lost. {instead}, or "
                "say that it is a constant with `lax.stop_gradient`."
            )
        return value

    def __bool__(self) -> bool:
        return bool(self._concrete_or(TracerBoolConversionError, "bool()", _CHOOSE))

    def __int__(self) -> int:
        return int(self._concrete_or(ConcretizationTypeError, "int()", _KEEP))

    def __float__(self) -> float:
        return float(self._constant_or(ConcretizationTypeError, "float()", _KEEP))

    def __complex__(self) -> complex:
        return complex(self._constant_or(ConcretizationTypeError, "complex()", _KEEP))

    def __index__(self) -> int:
        value = self._concrete_or(TracerIntegerConversionError, "use as a Python integer", _INDEX)
        return value.__index__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        value = self._constant_or(TracerArrayConversionError, "numpy.asarray()", _ARRAY)
        return value.__array__(dtype)

    def item(self, *args: int) -> Any:
        value = self._concrete_or(ConcretizationTypeError, "item()", _KEEP)
        return value.item(*args)

    def tolist(self) -> Any:
        return self._constant_or(ConcretizationTypeError, "tolist()", _KEEP).tolist()

    def __repr__(self) -> str:
        return f"{self.interpreter.transform} tracer {self.aval.str_short(True)}"

    def __format__(self, spec: str) -> str:
        if not spec:
            return repr(self)
        return format(self._concrete_or(ConcretizationTypeError, f"format {spec!r}", _KEEP), spec)


_CHOOSE = "Use `numpy.where` or `lax.select` to choose by value"
_KEEP = "Keep it an array"
_INDEX = "Use arrays and `lax.scan` instead of lists, `range` and shapes that depend on values"
_ARRAY = "Use shardwise.numpy instead of numpy inside transformed functions"
# By transform: how an argument's value can be known all the same.
_KNOWN_ARGUMENTS = {
    "jit": ", or mark the argument static with `static_argnums`",
    "vmap": ", or do not map the argument, with None in `in_axes`",
}


def escaped(tracer: Tracer) -> UnexpectedTracerError:
    """The error for a tracer that outlived its function."""
    if tracer.interpreter.alive:
        return UnexpectedTracerError(
            f"a traced value of type {tracer.aval.str_short(True)} was used where the transform "
            f"that it belongs to does not reach: {tracer.interpreter.describe()}. A function "
            "with its own derivative rule, and that rule, may not take such a value from outside: "
            "pass it as an argument."
        )
    made = tracer.made_at()
    line = f" The value was made at {describe(made)}." if made is not None else ""
    return UnexpectedTracerError(
        f"a traced value of type {tracer.aval.str_short(True)} was used outside the function that "
        f"it belongs to: {tracer.interpreter.describe()}, which has ended.{line} Return the value "
        "from the function instead of storing it in a variable or object outside."
    )


def is_ancestor(interpreter: Any, of: Any) -> bool:
    """Whether `interpreter`, or one that stands in for it, is on the chain of parents of `of`."""
    tag = getattr(interpreter, "tag", interpreter)
    while of is not None:
        if of is interpreter or getattr(of, "tag", of) is tag:
            return True
        of = of.parent
    return False
