"""Configuration flags: one object each, with name, default, environment variable and scope.

    enable_x64.value                 # what holds here
    with enable_x64(True): ...       # for this thread, in this block
    config.update("enable_x64", True)    # everywhere; also "jax_enable_x64"

A flag is read from `SHARDWISE_NAME`, else from `JAX_NAME`, when shardwise is imported.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from shardwise.base import context as _context

T = TypeVar("T")


def _parse_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "t", "yes", "y", "on"):
        return True
    if lowered in ("0", "false", "f", "no", "n", "off", ""):
        return False
    raise ValueError(f"expected a truth value such as 1, true, 0 or false, got {text!r}")


class Flag(Generic[T]):
    """One setting. `trace=True` says that it changes what a trace produces."""

    def __init__(
        self,
        name: str,
        default: T,
        doc: str,
        *,
        parse: Callable[[str], T] | None = None,
        choices: tuple[Any, ...] = (),
        trace: bool = False,
    ):
        self.name = name
        self.default = default
        self.choices = choices
        self.__doc__ = doc
        self.parse = parse
        self.guard: Callable[[T], None] | None = None  # may refuse a change, by raising
        if trace:
            _context.TRACE_FLAGS.append(name)
        FLAGS[name] = self
        self._read_environment()

    def _read_environment(self) -> None:
        for prefix in ("SHARDWISE_", "JAX_"):
            variable = prefix + self.name.upper()
            text = os.environ.get(variable)
            if text is None:
                continue
            try:
                value: Any = self.parse(text) if self.parse else text
                self.set(value)
            except ValueError as error:
                raise ValueError(f"environment variable {variable}: {error}") from None
            return

    @property
    def value(self) -> T:
        return _context.current().flags.get(self.name, self.default)

    def _checked(self, value: T) -> T:
        if self.parse is _parse_bool and value not in (True, False):
            raise ValueError(f"{self.name} must be True or False; got {value!r}")
        if self.choices and value not in self.choices:
            options = ", ".join(repr(c) for c in self.choices)
            raise ValueError(f"{self.name} must be one of {options}; got {value!r}")
        return value

    def set(self, value: T) -> None:
        """Sets the flag for the whole process (and for the context that is current here)."""
        value = self._checked(value)
        if self.guard is not None:
            self.guard(value)
        _context.update_root(flags={**_context.ROOT.flags, self.name: value})
        here = _context.current()
        if here is not _context.ROOT:
            _context.CURRENT.set(here.replace(flags={**here.flags, self.name: value}))

    @contextmanager
    def __call__(self, value: Any = True) -> Generator[None]:
        """Sets the flag inside a `with` block, for this thread; a switch is turned on."""
        if value is True and not isinstance(self.default, bool):
            raise TypeError(f"{self.name}() takes the value to set, e.g. {self.name}(None)")
        wanted: Any = value
        if self.guard is not None:
            self.guard(wanted)
        here = _context.current()
        flags = {**here.flags, self.name: self._checked(wanted)}
        with here.replace(flags=flags).entered():
            yield


FLAGS: dict[str, Flag[Any]] = {}

enable_x64 = Flag(
    "enable_x64", False, "Keep 64-bit types instead of narrowing them to 32 bits.",
    parse=_parse_bool, trace=True,
)
default_matmul_precision = Flag(
    "default_matmul_precision", None,
    "Precision of matrix products on devices that have several: default, high or highest.",
    choices=(None, "default", "high", "highest", "bfloat16", "tensorfloat32", "float32"),
    trace=True,
)
numpy_rank_promotion = Flag(
    "numpy_rank_promotion", "allow",
    "What to do when broadcasting adds dimensions: allow, warn or raise.",
    choices=("allow", "warn", "raise"), trace=True,
)
numpy_dtype_promotion = Flag(
    "numpy_dtype_promotion", "standard",
    "standard, or strict: mixing dtypes is an error.",
    choices=("standard", "strict"), trace=True,
)
num_cpu_devices = Flag(
    "num_cpu_devices", -1,
    "How many virtual CPU devices to make; -1 means one, or what XLA_FLAGS says.", parse=int,
)
platforms = Flag(
    "platforms", None, "Comma-separated platforms, e.g. 'cuda,cpu'; the first is the default one."
)
default_device = Flag(
    "default_device", None, "Where uncommitted values go; None means the first device.", trace=True
)
disable_jit = Flag(
    "disable_jit", False, "Run jitted functions op by op, for debugging.",
    parse=_parse_bool, trace=True,
)
log_compiles = Flag(
    "log_compiles", False, "Log each trace and compilation with its time.", parse=_parse_bool
)
threefry_partitionable = Flag(
    "threefry_partitionable", True,
    "Generate random bits so that they can be sharded without communication.",
    parse=_parse_bool, trace=True,
)

poison_padding = Flag(
    "poison_padding", False,
    "Fill the padding of uneven shards with NaN, or the largest integer, to show that it is unused.",
    parse=_parse_bool, trace=True,
)


class Config:
    """`shardwise.config`: reads flags as attributes, changes them with `update`."""

    def update(self, name: str, value: Any) -> None:
        flag = _find(name)
        if isinstance(value, str) and flag.parse is not None:
            value = flag.parse(value)
        flag.set(value)

    def read(self, name: str) -> Any:
        return _find(name).value

    def __getattr__(self, name: str) -> Any:
        return _find(name).value

    def __dir__(self) -> list[str]:
        return sorted(FLAGS) + ["read", "update"]


def _find(name: str) -> Flag[Any]:
    flag = FLAGS.get(name.removeprefix("jax_"))
    if flag is not None:
        return flag
    near = difflib.get_close_matches(name.removeprefix("jax_"), FLAGS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" Known names: {', '.join(sorted(FLAGS))}."
    raise AttributeError(f"unknown configuration name {name!r}.{hint}")


config = Config()
