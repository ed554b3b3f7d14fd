"""The text of a function in Mosaic's dialect: types, constants, and lines.

A value of a program is one of three things here: the name of a register (`%3`), a number that is
the same for all elements (`Splat`), or a version of a ref, which is its memory (`Memory`). Rules of
ops have them as `Operand`s, with their shapes and dtypes:

    rule(w, eqn, *operands, **params)  → the result, or a list of results

`w` is the function that is written, a `Text`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.core.op import Op
from shardwise._src.kernels.emitted.emitted_ops import element_text
from shardwise._src.kernels.emitted.emitted_programs import EmittedText, InMemory
from shardwise._src.kernels.spaces import SEMAPHORES
from shardwise._src.lowering.text import quoted
from shardwise._src.messages.source import line_of
from shardwise._src.types.dtypes import is_bool, short_name

_INSTEAD = {"float64": "float32", "float16": "bfloat16", "int64": "int32", "uint64": "uint32"}


def element(dtype: Any, what: str = "a value") -> str:
    """`f32`, `i8`: a dtype of registers. Integers have no sign.

    Raises NotImplementedError for dtypes that TPUs lack, which `what` has.
    """
    instead, text = _INSTEAD.get(dtype.name), element_text(dtype)
    if text is not None and instead is None:
        return text
    advice = f"Use {instead}." if instead else (
        "Convert it to float32 or int32 outside of the kernel."
    )  # fmt: skip
    raise NotImplementedError(
        f"{what} has the dtype {short_name(dtype)}, which kernels on TPUs cannot have. {advice}"
    )


def stored(dtype: Any) -> Any:
    """The dtype of memory for elements of a dtype: booleans are stored as integers."""
    return np.dtype("int32") if is_bool(dtype) else dtype


def kind_of(t: Any) -> str:
    """`vector<8x128xf32>`: the type of a value with the shape and dtype of `t`; of no dimensions,
    the element."""
    sizes = "".join([f"{n}x" for n in t.shape])
    return f"vector<{sizes}{element(t.dtype)}>" if sizes else element(t.dtype)


@dataclass(frozen=True)
class Splat:
    """A number that all elements of a value are equal to."""

    number: Any


@dataclass(frozen=True, eq=False)
class Memory(InMemory):
    """The memory of a ref.

    sizes: of its dimensions; kept: which of them the ref has. kind: its elements, as text. space:
    Mosaic's name of the memory space.
    """

    name: str
    sizes: tuple[int, ...]
    kept: tuple[bool, ...]
    kind: str
    space: str

    @property
    def type(self) -> str:
        shape = "".join(f"{n}x" for n in self.sizes)
        return f"memref<{shape}{self.kind}, #tpu.memory_space<{self.space}>>"


Value = str | Splat | Memory


@dataclass(frozen=True)
class Operand:
    """A value with its shape and dtype. That of a register prints as its name."""

    value: Value
    shape: tuple[int, ...]
    dtype: Any

    def __str__(self) -> str:
        return str(self.value)

    @property
    def kind(self) -> str:
        return kind_of(self)

    @property
    def known(self) -> Any:
        """The number that all elements are equal to, if it is a `Splat`; else None."""
        return self.value.number if isinstance(self.value, Splat) else None


Rule = Callable[..., Any]


def operand(value: Value, t: Any) -> Operand:
    """A value with the shape and dtype of `t`."""
    return Operand(value, t.shape, t.dtype)


def on_values(rules: dict[Op, Rule]) -> dict[Op, Rule]:
    """Rules of operands, as functions of values."""

    def wrapped(rule: Rule) -> Rule:
        def run(w: Text, eqn: Any, *xs: Value, **p: Any) -> Any:
            pairs = zip(xs, eqn.invars, strict=True)
            found = rule(w, eqn, *[operand(x, v.aval) for x, v in pairs], **p)
            return [y.value for y in found] if eqn.op.multiple else found.value

        return run

    return {op: wrapped(rule) for op, rule in rules.items()}


def memory_of(name: str, t: Any, space: str, kept: Sequence[bool] = ()) -> Memory:
    """The memory for a ref of the shape and dtype of `t`, in a space as `kernels.spaces` names it.
    kept: as in `Memory`."""
    if space in SEMAPHORES:
        kind, where, sizes = f"!tpu.{space.removeprefix('barrier_')}", "semaphore_mem", t.shape
    else:
        kind, where, sizes = element(stored(t.dtype)), space, sizes_in_memory(t.shape, space)
    marks = (tuple(kept) or (True,) * len(sizes)) if t.shape else (False,) * len(sizes)
    return Memory(name, sizes, marks, kind, where)


def sizes_in_memory(shape: Sequence[int], space: str) -> tuple[int, ...]:
    """The shape of memory for a shape: scalars have dimensions too."""
    return tuple(shape) or ((1,) if space == "smem" else (1, 1))


class Text(EmittedText):
    """The lines of a function."""

    def line(self, text: str) -> None:
        """Adds an operation, with the user's line: messages of compilers refer to it."""
        if self.site is not None:
            file, line, _ = line_of(self.site)
            text = f"{text} loc({quoted(file)}:{line}:0)"
        super().line(text)

    def let(self, text: str) -> str:
        """Adds `%n = text` and returns `%n`."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def made(self, text: str, shape: Sequence[int], dtype: Any) -> Operand:
        """The register of an operation, whose text ends with the type of its result."""
        y = Operand(self.fresh(), tuple(shape), dtype)
        self.line(f"{y} = {text} {y.kind}")
        return y

    # -- constants --

    def constant(self, number: Any, dtype: Any, shape: Sequence[int] = ()) -> str:
        """A number as a value of a dtype and shape."""
        return self.named_number(number, dtype, shape, Operand("", tuple(shape), dtype).kind)

    def index(self, number: int) -> str:
        return self.named_constant(f"{number} : index")

    # -- values --

    def in_register(self, x: Operand, shape: Sequence[int] | None = None) -> Operand:
        """A value in a register. shape: to broadcast a scalar to."""
        to = x.shape if shape is None else tuple(shape)
        if x.known is not None:
            return Operand(self.constant(x.known, x.dtype, to), to, x.dtype)
        if isinstance(x.value, Memory):
            x = operand(self.load_all(x.value, x), x)
        return x if to == x.shape else self.made(f"vector.broadcast {x} : {x.kind} to", to, x.dtype)

    def name(self, value: Value, t: Any) -> str:
        """The register of a value of a shape and dtype."""
        return str(self.in_register(operand(value, t)))

    def load_all(self, memory: Memory, t: Any) -> str:
        raise NotImplementedError
