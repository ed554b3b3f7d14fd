"""Finds the library function that the user's code called, for messages raised deep inside.

    jnp.median(keys)    # median: keys are not numbers …

It is found on the stack: the outermost library frame belongs to that function. It is not found for
errors that pass through a transform (`grad`, `vmap`).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from shardwise._src.base.interrupts import import_module
from shardwise._src.base.lazy import defining_module, public_name
from shardwise._src.base.warn import PACKAGE
from shardwise._src.messages.argument_names import argument_names, parameters_of
from shardwise._src.messages.tree_paths import path_text
from shardwise._src.runtime.pytree import flatten, flatten_with_path

_NAMESPACES = tuple([
    f"shardwise._src.{package}." for package in (
        "image", "lax", "linalg", "nn", "numpy", "random", "scipy", "signal", "special", "values",
    )
])  # fmt: skip
_ELEMENTWISE = tuple(  # packages with element-wise functions
    [f"shardwise._src.{package}." for package in ("nn", "numpy", "scipy", "special", "values")]
)
_TRANSFORMS = tuple([  # packages with functions that call functions of users
    f"shardwise._src.{package}." for package in (
        "arguments", "autodiff", "base", "control", "core", "custom", "debug", "jit", "maps",
        "messages", "refs", "running", "runtime", "transforms", "tree",
    )
])  # fmt: skip
_WRAPPERS = (
    "shardwise._src.core.fused",
    "shardwise._src.messages.tracebacks",
    "shardwise._src.maps.ufuncs",
)
_AT = "shardwise._src.values.at"
_UNARY = {  # operators: module and name of the function
    "__neg__": ("shardwise._src.numpy.unary", "negative"),
    "__abs__": ("shardwise._src.numpy.unary", "absolute"),
    "__invert__": ("shardwise._src.values.binary", "bitwise_not"),
}


def by_name(text: str) -> str:
    """A message, prefixed with the name of the public function that was called."""
    name = public_call()
    return f"{name}: {text}" if name else text


def public_call() -> str:
    """The name of the public function that the user's code called, or ''."""
    found = called()
    if found is None or found.name == "__getitem__":
        return ""
    return f".at[...].{found.name}" if found.is_at else found.name


@dataclass(frozen=True, slots=True)
class Called:
    """A public function, as the user's code called it.

    owner: the object that it was called on as a method or operator; else None.
    leaves: the leaves of its arguments, by name: `a`, `arrays[1]`.
    """

    module: str
    name: str
    owner: Any
    leaves: dict[str, Any]

    @property
    def is_at(self) -> bool:
        """Whether it is a method of `x.at[idx]`."""
        return self.module == _AT and self.owner is not None

    def taking(self, keyword: str, value: str) -> str:
        """How to call it with a keyword; '' if it has no such parameter."""
        if self.name == "__getitem__":
            return f"x.at[idx].get({keyword}={value})"
        for path, fun in self._ways():
            found = inspect.signature(fun).parameters.values()
            if any(p.name == keyword for p in found):
                needed = [str(p).partition(":")[0] for p in found if _is_needed(p)]
                if self.owner is not None and not path.startswith("x."):  # x @ y
                    needed = ["x", "y"] if "y" in self.leaves else ["x", *needed[1:]]
                return f"{path}({', '.join([*needed, f'{keyword}={value}'])})"
        return ""

    def _ways(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """The possible forms of the call: path and function."""
        method = getattr(type(self.owner), self.name, None) if self.owner is not None else None
        if method is not None:
            yield f"{'x.at[idx]' if self.is_at else 'x'}.{self.name}", method
        path = public_name(self.module, self.name)
        if path:
            space, _, name = path.rpartition(".")
            yield path, getattr(import_module(space), name)


def _is_needed(p: inspect.Parameter) -> bool:
    by_place = p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)
    return by_place and p.default is p.empty and p.name != "self"


def called() -> Called | None:
    """The function that the user's code called, if it is public; else None."""
    outermost = _outermost()
    if outermost is None:
        return None
    found = _of(outermost)
    name = found.name
    known = found.module.startswith(_NAMESPACES) and name.isidentifier()
    return found if known and (name[0] != "_" or name == "__getitem__") else None


def is_called_with(shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether the user's code calls an element-wise function, and with arrays of these shapes.

    Otherwise, they are the shapes of values that a function computes. Scalars are ignored.
    """
    for frame in reversed(list(_library_frames())):
        module = frame.f_globals.get("__name__", "")
        if module.startswith(_TRANSFORMS) and module not in _WRAPPERS:
            continue
        found = _of(frame)
        if not found.module.startswith(_TRANSFORMS):
            given = {getattr(x, "shape", None) for x in found.leaves.values()}
            return found.module.startswith(_ELEMENTWISE) and all(s in given for s in shapes if s)
    return True


def _outermost() -> FrameType | None:
    """The outermost library frame above the user's code."""
    outermost = None
    for outermost in _library_frames():  # noqa: B007
        pass
    return outermost


def _library_frames() -> Iterator[FrameType]:
    """The library's frames above the user's code, the innermost first."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] (used only for messages)
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        yield frame
        frame = frame.f_back


def _of(frame: FrameType) -> Called:
    given, code = frame.f_locals, frame.f_code
    module, name = frame.f_globals.get("__name__", ""), code.co_name
    wrapped = given["record"].fun if "record" in given else given.get("fun")
    if module in _WRAPPERS and wrapped is not None:  # the function is fused, or hides frames
        args, kwargs = given.get("args", ()), given.get("static", given.get("kwargs", {}))
        names = argument_names(args, kwargs, parameters_of(wrapped))
        leaves = dict(zip(names, flatten((args, kwargs))[0], strict=True))
        return Called(defining_module(wrapped), wrapped.__name__, None, leaves)
    if name in _UNARY:
        owner = given.get("self")
        return Called(*_UNARY[name], owner, {"x": owner})
    if name.startswith("__") and wrapped is not None:  # an operator
        owner, other = given.get("self"), given.get("other")
        return Called(
            defining_module(wrapped), wrapped.__name__.lstrip("_"), owner, {"x": owner, "y": other}
        )
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    owner = given.get("self")
    named = {n: given[n] for n in code.co_varnames[:count] if n in given and n != "self"}
    if module == _AT and owner is not None:
        named |= {"x": owner.array, "idx": owner.index}
    elif owner is not None:
        named["x"] = owner
    rows = [(n + path_text(p), x) for n in sorted(named) for p, x in flatten_with_path(named[n])[0]]
    return Called(module, name, owner, dict(rows))
