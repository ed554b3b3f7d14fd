"""The text of a function in Mosaic's dialect: types, constants, and lines.

A value of a program is one of three things here: the name of a register (`%3`), a number that is
the same for all elements (`Splat`), or a version of a ref, which is its memory (`Memory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.kernels.emitted.emitted_ops import element_text
from shardwise._src.kernels.emitted.emitted_programs import EmittedText, InMemory
from shardwise._src.messages.source import line_of
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.dtypes import is_bool, short_name

_INSTEAD = {"float64": "float32", "float16": "bfloat16", "int64": "int32", "uint64": "uint32"}


def element(dtype: Any) -> str:
    """`f32`, `i8`: a dtype of registers. Integers have no sign.

    Raises NotImplementedError for dtypes that TPUs lack.
    """
    instead, text = _INSTEAD.get(dtype.name), element_text(dtype)
    if text is not None and instead is None:
        return text
    raise NotImplementedError(
        f"a value has the dtype {short_name(dtype)}, which kernels on TPUs cannot have. "
        + (
            f"Use {instead}."
            if instead
            else "Convert it to float32 or int32 outside of the kernel."
        )
    )


def stored(dtype: Any) -> Any:
    """The dtype of memory for elements of a dtype: booleans are stored as integers."""
    return np.dtype("int32") if is_bool(dtype) else dtype


def vector(shape: Sequence[int], kind: str) -> str:
    """`vector<8x128xf32>`; of no dimensions, the element."""
    return f"vector<{'x'.join(map(str, shape))}x{kind}>" if shape else kind


@dataclass(frozen=True)
class Splat:
    """A number that all elements of a value are equal to."""

    number: Any


SEMAPHORES = {
    "semaphore": "!tpu.semaphore",
    "barrier_semaphore": "!tpu.semaphore",
    "dma_semaphore": "!tpu.dma_semaphore",
}


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


def memory_of(
    name: str, shape: Sequence[int], dtype: Any, space: str, kept: Sequence[bool] = ()
) -> Memory:
    """The memory for a ref of this shape, in a space as `kernels.spaces` names it."""
    if space in SEMAPHORES:
        marks = (True,) * len(shape)
        return Memory(name, tuple(shape), marks, SEMAPHORES[space], "semaphore_mem")
    sizes = sizes_in_memory(shape, space)
    marks = (tuple(kept) or (True,) * len(shape)) if shape else (False,) * len(sizes)
    return Memory(name, sizes, marks, element(stored(dtype)), space)


def sizes_in_memory(shape: Sequence[int], space: str) -> tuple[int, ...]:
    """The shape of memory for a shape: scalars have dimensions too."""
    return tuple(shape) or ((1,) if space == "smem" else (1, 1))


class Text(EmittedText):
    """The lines of a function."""

    def line(self, text: str) -> None:
        """Adds an operation, with the user's line: messages of compilers refer to it."""
        if self.site is not None:
            file, line, _ = line_of(self.site)
            text = f'{text} loc("{escaped(file)}":{line}:0)'
        super().line(text)

    def let(self, text: str) -> str:
        """Adds `%n = text` and returns `%n`."""
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    # -- constants --

    def constant(self, number: Any, dtype: Any, shape: Sequence[int] = ()) -> str:
        """A number as a value of a dtype and shape."""
        return self.named_number(number, dtype, shape, vector(shape, element(dtype)))

    def index(self, number: int) -> str:
        return self.named_constant(f"{number} : index")

    # -- values --

    def name(self, value: Value, t: ArrayType, shape: Sequence[int] | None = None) -> str:
        """The register of a value of a type. shape: to broadcast a scalar to."""
        shape = t.shape if shape is None else shape
        if isinstance(value, Splat):
            return self.constant(value.number, t.dtype, shape)
        if isinstance(value, Memory):
            value = self.load_all(value, t)
        if tuple(shape) != t.shape:
            return self.broadcast(value, t, shape)
        return value

    def broadcast(self, x: str, t: ArrayType, shape: Sequence[int]) -> str:
        kinds = vector(t.shape, element(t.dtype)), vector(shape, element(t.dtype))
        return self.let(f"vector.broadcast {x} : {kinds[0]} to {kinds[1]}")

    def load_all(self, memory: Memory, t: ArrayType) -> str:
        raise NotImplementedError


def escaped(text: str) -> str:
    """A string in MLIR's syntax, without its quotes."""
    plain = [chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode()]
    return "".join(plain)
