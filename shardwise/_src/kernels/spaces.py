"""Memory spaces of kernel refs, and how the refs in them are accessed."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.pickles import read_by, reduced
from shardwise._src.kernels.accesses import kernel_memory
from shardwise._src.kernels.program_frames import frame_here, simulation
from shardwise._src.kernels.ref_access import loaded, part_of, written
from shardwise._src.messages.formatting import short_repr
from shardwise._src.ops.sharded.varying import pvary
from shardwise._src.refs.refs import Ref, end_ref
from shardwise._src.runtime.pytree import flatten
from shardwise._src.types.annotations import T
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dtypes import ExtendedDType, canonicalize, extended


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
        if isinstance(dtype, SemaphoreDType) != (self == SEMAPHORE):
            raise TypeError(
                f"{self!r}: semaphores have the dtype of a `SemaphoreType`, and are in SEMAPHORE: "
                f"`SEMAPHORE((2,), SemaphoreType.DMA.dtype)`; got {short_repr(dtype)}."
            )
        if self == SEMAPHORE:
            return SemaphoreType(dtype.name)(shape)
        return Scratch(_shape(repr(self), shape), canonicalize(dtype), self)

    def dtype_of(self, ref: Any) -> Any:
        """The dtype of a ref, as users see it."""
        return SemaphoreType(self.name).dtype if self.is_semaphore else ref.type.dtype

    @property
    def is_semaphore(self) -> bool:
        return self.name in SEMAPHORES

    part = staticmethod(part_of)
    read = staticmethod(loaded)
    write = staticmethod(written)

    def check_accessible(self, ref: Any) -> None:
        if self.is_semaphore:
            raise _not_memory(ref)
        if self.name in LARGE and simulation().is_tpu:
            raise ValueError(
                f"{ref.short} is in {self}, from which TPUs only copy. Copy to and from VMEM: "
                "`sync_copy` or `make_async_copy`."
            )

    def check_writable(self, ref: Any) -> None:
        if self.is_semaphore:
            raise _not_memory(ref)
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

LARGE = "any", "hbm"
SEMAPHORES = "semaphore", "dma_semaphore", "barrier_semaphore"


def _shape(who: str, shape: Any) -> tuple[int, ...]:
    if isinstance(shape, tuple | list):
        return tuple(shape)
    raise TypeError(
        f"{who}: the shape of memory is a tuple, such as (8, 128); got {short_repr(shape)}."
    )


def _not_memory(ref: Any) -> TypeError:
    return TypeError(
        f"A semaphore{list(ref.shape) or ''} has no elements to read or write. Use "
        "`semaphore_signal`, `semaphore_wait`, `semaphore_read`, or pass it to a copy."
    )


class semaphore_dtype(extended):
    """Scalar class of the dtypes of semaphores, for `issubdtype`; has no instances."""


class semaphore(semaphore_dtype):
    """That of `SemaphoreType.REGULAR`."""


class dma_semaphore(semaphore_dtype):
    """That of `SemaphoreType.DMA`."""


class barrier_semaphore(semaphore_dtype):
    """That of `SemaphoreType.BARRIER`."""


_CLASSES = {t.__name__: t for t in (semaphore, dma_semaphore, barrier_semaphore)}


@dataclass(frozen=True, repr=False)
class SemaphoreDType(ExtendedDType):
    """The dtype of refs of semaphores, by the name of its class."""

    @property
    def type(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride] (by instance)
        return _CLASSES[self.name]


class SemaphoreType(enum.Enum):
    """Semaphores as scratch memory: one, `SemaphoreType.DMA`, or several,
    `SemaphoreType.DMA((2,))`.

    REGULAR: counts what `semaphore_signal` adds, and `semaphore_wait` waits for.
    DMA: counts the bytes that copies have moved.
    BARRIER: like REGULAR; the one of all devices is `get_barrier_semaphore()`.
    """

    REGULAR = "semaphore"
    DMA = "dma_semaphore"
    BARRIER = "barrier_semaphore"

    @property
    def dtype(self) -> SemaphoreDType:
        return SemaphoreDType(self.value, (), np.dtype("int32"))

    def __call__(self, shape: Any = ()) -> Scratch:
        shape = _shape(f"SemaphoreType.{self.name}", shape)
        return Scratch(shape, np.dtype("int32"), Space(self.value))


def as_scratch(who: str, x: Any) -> Scratch:
    """What a user passed as scratch memory."""
    if isinstance(x, SemaphoreType):
        return x()
    if not isinstance(x, Scratch):
        raise TypeError(
            f"{who}: scratch memory is made by a memory space, such as VMEM((8, 128), 'float32'), "
            f"or is a `SemaphoreType`; got {short_repr(x)}."
        )
    return x


def run_scoped(f: Callable[..., T], *types: Any, **named: Any) -> T:
    """Calls a function with refs of new memory, inside of a kernel.

        run_scoped(f, VMEM((8, 128), "float32"))

    The memory is not initialized, and ends with the function. Returns the function's result.
    """
    leaves, tree = flatten((types, named))
    memory = [as_scratch("run_scoped", x) for x in leaves]
    frame = frame_here()
    names = frozenset() if frame is None else frame.varying
    refs = [Ref(pvary(allocated(x), names), x.space) for x in memory]
    given, keywords = tree.unflatten(refs)
    result = f(*given, **keywords)
    for ref in refs:
        end_ref(ref, "memory of `run_scoped`, which ends with its function")
    return result


def allocated(x: Scratch) -> Any:
    if simulation().is_tpu and not simulation().allocates and x.space.name in LARGE:
        raise ValueError(
            f"run_scoped: a kernel of TPUs cannot allocate memory in {x.space}. Pass it to the "
            "kernel, as a result, or choose VMEM."
        )
    fill = 0 if x.space.is_semaphore else simulation().fill
    return kernel_memory(x.type, x.space.name, fill)


ANY, VMEM, SMEM, HBM = (Space(name) for name in ("any", "vmem", "smem", "hbm"))
# Of TPUs: memory that two cores share, and that of sparse cores.
CMEM, VMEM_SHARED = Space("cmem"), Space("vmem_shared")
SEMAPHORE = Space("semaphore_mem")  # `Scratch` of semaphores is in the space of their type
