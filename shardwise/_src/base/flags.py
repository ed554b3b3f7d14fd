"""Classes of flags: a setting, the source of its value, and its scope.

    flag.value                       # the current value
    with flag(True): ...             # for this thread, in this block

A flag is read from `SHARDWISE_NAME`, else from `JAX_NAME`, when it is created. All flags are
defined in `base.config`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import product
from pathlib import PurePath
from typing import Any, Generic, TypeVar

from shardwise._src.base import context as _context
from shardwise._src.base.lazy import public
from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.base.warn import warn

T = TypeVar("T")


def parse_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "t", "yes", "y", "on"):
        return True
    if lowered in ("0", "false", "f", "no", "n", "off", ""):
        return False
    raise ValueError(text)


class _Ambient(Generic[T]):
    """A value that is looked up by name in the flags of the current context."""

    name: str
    default: T

    @property
    def value(self) -> T:
        return _context.current().flags.get(self.name, self.default)

    def _in(self, flags: dict[str, Any], value: Any) -> dict[str, Any]:
        """The flags with this value; a default is omitted, so that keys do not depend on it."""
        rest = {name: held for name, held in flags.items() if name != self.name}
        return rest if value == self.default else rest | {self.name: value}

    def _set(self, value: Any) -> None:
        """Sets the value for the whole process, and for the current context."""
        _context.update_root(flags=self._in(_context.ROOT.flags, value))
        here = _context.current()
        if here is not _context.ROOT:
            _context.CURRENT.set(here.replace(flags=self._in(here.flags, value)))

    def _scoped(self, value: Any) -> AbstractContextManager[Any]:
        here = _context.current()
        return here.replace(flags=self._in(here.flags, value)).entered()


@public("shardwise")
class Flag(_Ambient[T]):
    """One setting.

    parse: converts a string to a value: `parse_bool`, `int`, `float` or `str`, which also
           determines the valid values. By default that of the type of `default`, if it is a
           bool, an int or a float; without it, `choices` or a guard does.
    trace: whether it affects the result of a trace.
    old_name: a deprecated name, which still works.
    """

    def __init__(
        self,
        name: str,
        default: T,
        doc: str,
        *,
        parse: Callable[[str], Any] | None = None,
        choices: tuple[Any, ...] = (),
        trace: bool = False,
        old_name: str | None = None,
    ):
        self.name = name
        self.default = default
        self.choices = choices
        self.__doc__ = doc
        self.parse = parse or _PARSERS.get(type(default))
        self.guard: Callable[[T], None] | None = None  # may reject a change, by raising
        if trace:
            _context.TRACE_FLAGS.append(name)
        FLAGS[name] = self
        if old_name is not None:
            OLD_NAMES[old_name] = self
        self._read_environment(old_name)

    def __reduce__(self) -> Any:
        return reduced("flag", self.name)

    def _read_environment(self, old_name: str | None) -> None:
        names = [self.name] if old_name is None else [self.name, old_name]
        for name, prefix in product(names, ("SHARDWISE_", "JAX_")):
            variable = prefix + name.upper()
            text = os.environ.get(variable)
            if text is None:
                continue
            if name == old_name:
                warn_of_old_name(variable, prefix + self.name.upper())
            try:
                self.set(self.parsed(text))
            except (TypeError, ValueError) as error:
                raise ValueError(f"environment variable {variable}: {error}") from None
            return

    def parsed(self, text: str) -> Any:
        """The value that a string represents."""
        if self.default is None and text.strip().lower() in ("", "none"):
            return None
        if self.parse is None or self.parse is str:
            return text
        try:
            return self.parse(text)
        except ValueError:
            raise ValueError(f"{self.name} must be {_KINDS[self.parse]}; got {text!r}") from None

    def _checked(self, value: Any) -> Any:
        if self.parse is parse_bool:
            if value not in (True, False):
                raise ValueError(f"{self.name} must be True or False; got {value!r}")
            return bool(value)
        if self.parse is str and isinstance(value, PurePath):
            value = str(value)
        if self.parse in _KINDS and not (value is None and self.default is None):
            allowed = (int, float) if self.parse is float else self.parse
            if not isinstance(value, allowed) or isinstance(value, bool):  # pyright: ignore[reportArgumentType]
                raise TypeError(
                    f"{self.name} must be {_KINDS[self.parse]}"
                    f"{' or None' if self.default is None else ''}; got {value!r} of type "
                    f"{type(value).__name__}"
                )
        if self.choices and value not in self.choices:
            options = ", ".join(repr(c) for c in self.choices)
            raise ValueError(f"{self.name} must be one of {options}; got {value!r}")
        return value

    def set(self, value: T) -> None:
        """Sets the flag for the whole process (and for the context that is current here)."""
        value = self._checked(value)
        if self.guard is not None:
            self.guard(value)
        self._set(value)

    @contextmanager
    def __call__(self, new_val: Any = True) -> Generator[None]:
        """Sets the flag inside a `with` block, for this thread; by default to True."""
        if new_val is True and not isinstance(self.default, bool):
            raise TypeError(f"{self.name}() requires the value to set, e.g. {self.name}(None)")
        wanted = self._checked(new_val)
        if self.guard is not None:
            self.guard(wanted)
        with self._scoped(wanted):
            yield


@public("shardwise")
class ThreadFlag(Flag[bool]):
    """A boolean flag for all threads that records the thread that turned it on, its `owner`."""

    owner: int | None = None

    def _own(self, value: bool) -> int | None:
        """Makes this thread the owner, or clears the owner; returns the previous one."""
        before, me = self.owner, threading.get_ident()
        if before not in (None, me):
            raise RuntimeError(
                f"{self.name} is on in another thread, {_name_of(before)!r}; only that thread can "
                "change it."
            )
        self.owner = me if value else None
        return before

    def set(self, value: bool) -> None:
        self._own(self._checked(value))
        super().set(value)

    @contextmanager
    def __call__(self, new_val: Any = True) -> Generator[None]:
        """Turns it on inside a `with` block, with this thread as the owner."""
        before = self._own(self._checked(new_val))
        try:
            with super().__call__(new_val):
                yield
        finally:
            self.owner = before


def _set_global_nowhere(name: str, value: str) -> None:
    """The default of `GuardFlag.set_global` until the runtime is imported."""


def _scoped_nowhere(name: str, value: str) -> AbstractContextManager[None]:
    return nullcontext()


@public("shardwise")
class GuardFlag(Flag[str]):
    """A flag that is forwarded to the runtime.

    set_global, scoped: forward a value for all threads, or for this thread inside a `with` block;
      set by `runtime.guards`.
    parts: the flags that it represents, and also sets.
    """

    set_global: Callable[[str, str], None] = staticmethod(_set_global_nowhere)
    scoped: Callable[[str, str], AbstractContextManager[None]] = staticmethod(_scoped_nowhere)
    parts: tuple[GuardFlag, ...] = ()

    def set(self, value: str) -> None:
        super().set(value)
        for part in self.parts:
            part.set(value)
        GuardFlag.set_global(self.name, value)

    @contextmanager
    def __call__(self, new_val: Any = True) -> Generator[None]:
        """Sets the flag inside a `with` block, for this thread."""
        with ExitStack() as stack:
            stack.enter_context(super().__call__(new_val))
            for part in self.parts:
                stack.enter_context(part(new_val))
            stack.enter_context(GuardFlag.scoped(self.name, new_val))
            yield


def _name_of(thread: int | None) -> str:
    return next((t.name for t in threading.enumerate() if t.ident == thread), "?")


class UserContext(_Ambient[T]):
    """A user-defined value that is part of all cache keys. Created by `make_user_context`."""

    def __init__(self, default_value: T):
        self.default = default_value
        self.name = f"user_context_{len(USER_CONTEXTS)}"
        USER_CONTEXTS[self.name] = self
        _context.TRACE_FLAGS.append(self.name)

    @contextmanager
    def __call__(self, value: T) -> Generator[None]:
        """Sets the value, which must be hashable, inside a `with` block, for this thread."""
        self._check(value)
        with self._scoped(value):
            yield

    def get_global(self) -> T:
        """The value in threads that have not set it."""
        return _context.ROOT.flags.get(self.name, self.default)

    def set_global(self, new_value: T) -> None:
        """Sets the value, which must be hashable, for the whole process."""
        self._check(new_value)
        self._set(new_value)

    def _check(self, value: T) -> None:
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                "the value of a user context must be hashable, because it is part of cache keys; "
                f"got {value!r} of type {type(value).__name__}. Use a tuple or a frozen dataclass."
            ) from None


def make_user_context(default_value: Any = None) -> UserContext[Any]:
    """A context for values that traced Python code reads, and that jit's cache keys must include.

    layout = make_user_context("rows")
    with layout("columns"):     # functions are retraced, and see the new `layout.value`
        f(x)
    """
    return UserContext(default_value)


def warn_of_old_name(old: str, new: str) -> None:
    """The warning for an option or environment variable that is used by its deprecated name."""
    warn(f"{old} is now {new}; the old name is removed in 0.4.0.", DeprecationWarning)


_PARSERS: dict[Any, Callable[[str], Any]] = {bool: parse_bool, int: int, float: float}
_TRUTH = "a boolean such as 1, true, 0 or false"
_KINDS: dict[Any, str] = {int: "an int", float: "a number", str: "a string", parse_bool: _TRUTH}
FLAGS: dict[str, Flag[Any]] = {}
read_by("flag", FLAGS.__getitem__)
OLD_NAMES: dict[str, Flag[Any]] = {}  # deprecated names of flags
USER_CONTEXTS: dict[str, UserContext[Any]] = {}
