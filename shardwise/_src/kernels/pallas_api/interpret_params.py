"""JAX's parameters for interpreting kernels, as a `Simulation`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.kernels.simulation import PLAIN, Simulation
from shardwise._src.messages.formatting import short_repr


@dataclass(frozen=True, kw_only=True)
class InterpretParams:
    """Simulates a TPU: for `pallas_call(interpret=InterpretParams())`, on CPU.

    out_of_bounds_reads: "raise": reads and blocks outside of arrays are errors, which are raised
      when the kernel runs; "uninitialized": what is read there is memory that was not written.
    uninitialized_memory: "nan": memory that was not written is NaN, and of integers the largest;
      or "zero".
    random_seed: of the order in which programs along parallel axes of the grid run; None: 0.
    grid_point_recorder: called with None, the indices of each program, and the number of its core,
      in the order in which programs run.
    num_cores_or_threads: cores, among which the programs along parallel axes, which come first, are
      divided. They run one after another.
    skip_floating_point_ops: floats that are read and written are infinite.
    allow_hbm_allocation_in_run_scoped: whether `run_scoped` can allocate memory in `HBM` and `ANY`.
    detect_races, dma_execution_mode, vector_clock_size, logging_mode, buffer_bounds: no effect.
      Copies are done when they start; `kernels.call(check="memory")` finds races.
    """

    detect_races: bool = False
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    dma_execution_mode: str = "on_wait"
    random_seed: int | None = None
    grid_point_recorder: Callable[..., Any] | None = None
    allow_hbm_allocation_in_run_scoped: bool = False
    buffer_bounds: str = "logical"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"InterpretParams: {name} is one of {', '.join(map(repr, choices))}; got "
                    f"{short_repr(getattr(self, name))}."
                )
        if self.num_cores_or_threads < 1:
            raise ValueError(
                "InterpretParams: num_cores_or_threads is at least 1; got "
                f"{self.num_cores_or_threads}."
            )

    @property
    def simulation(self) -> Simulation:
        return Simulation(
            fill="greatest" if self.uninitialized_memory == "nan" else 0,
            outside="raised" if self.out_of_bounds_reads == "raise" else "filled",
            seed=self.random_seed or 0,
            recorder=self.grid_point_recorder,
            cores=self.num_cores_or_threads,
            skips_floats=self.skip_floating_point_ops,
            is_tpu=True,
            allocates=self.allow_hbm_allocation_in_run_scoped,
        )


_CHOICES = {
    "out_of_bounds_reads": ("raise", "uninitialized"),
    "uninitialized_memory": ("nan", "zero"),
    "dma_execution_mode": ("eager", "on_wait"),
    "buffer_bounds": ("logical", "padded"),
}
_FORCED: ContextVar[InterpretParams | None] = ContextVar("interpret", default=None)
_DEFAULT = InterpretParams()


def simulation_of(interpret: Any) -> Simulation:
    """That of an argument `interpret`: a boolean or `InterpretParams`."""
    interpret = _FORCED.get() or interpret
    if isinstance(interpret, InterpretParams):
        return interpret.simulation
    if not isinstance(interpret, bool | np.bool_):
        raise TypeError(
            f"interpret is a boolean or InterpretParams(); got {short_repr(interpret)}."
        )
    return Simulation(fill="least") if interpret else PLAIN


@contextmanager
def force_tpu_interpret_mode(params: InterpretParams = _DEFAULT) -> Iterator[None]:
    """Kernels that are called in this block have these parameters as `interpret`."""
    token = _FORCED.set(params)
    try:
        yield
    finally:
        _FORCED.reset(token)


def set_tpu_interpret_mode(params: InterpretParams | None = _DEFAULT) -> None:
    """From now on, kernels have these parameters as `interpret`; None: their own again."""
    _FORCED.set(params)


def reset_tpu_interpret_mode_state() -> None:
    """Does nothing: an error in a kernel leaves nothing behind."""
