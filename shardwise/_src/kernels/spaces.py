"""Memory spaces of kernel refs, and how the refs in them are accessed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.kernels.ref_access import loaded, written
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops.basis import zeros
from shardwise._src.refs.refs import Ref
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import T
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import canonicalize


@dataclass(frozen=True)
class Scratch:
    """Memory of a core for a kernel: its type, and the space that it is in."""

    shape: tuple[int, ...]
    dtype: Any
    space: Space

    @property
    def type(self) -> Any:
        return array_type(self.shape, self.dtype)


@dataclass(frozen=True)
class Space:
    """A memory space. Calling it makes scratch memory: `VMEM((8, 128), jnp.float32)`."""

    name: str
    is_readonly: bool = False

    def __call__(self, shape: Any, dtype: Any) -> Scratch:
        return Scratch(tuple(shape), canonicalize(dtype), self)

    def read(self, ref: Any, index: Any) -> Any:
        return loaded(ref, index)

    def write(self, ref: Any, mode: str, index: Any, value: Any) -> None:
        self.check_writable(ref)
        written(ref, mode, index, value)

    def check_writable(self, ref: Any) -> None:
        if self.is_readonly:
            raise ValueError(
                f"{ref.short} is an input of the kernel, which cannot be written to. Write to a "
                "result, or make one with its values: `aliases={input: result}`."
            )

    @property
    def readonly(self) -> Space:
        return Space(self.name, True)

    def __repr__(self) -> str:
        return self.name.upper()

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced("kernels.Space", self.name, self.is_readonly)


read_by("kernels.Space", Space)


def run_scoped(f: Callable[..., T], *types: Any, **named: Any) -> T:
    """Calls a function with refs of new memory, inside of a kernel.

        run_scoped(f, VMEM((8, 128), "float32"))

    The memory is not initialized, and ends with the function. Returns the function's result.
    """
    leaves, tree = flatten((types, named))
    for x in leaves:
        if not isinstance(x, Scratch):
            raise TypeError(
                "run_scoped: memory is made by a memory space, such as VMEM((8, 128), 'float32'); "
                f"got {short_repr(x)}."
            )
    given, keywords = tree.unflatten([Ref(zeros(x.type), x.space) for x in leaves])
    return f(*given, **keywords)


ANY, VMEM, SMEM, HBM = (Space(name) for name in ("any", "vmem", "smem", "hbm"))
