"""Programs in Mosaic's dialect: the rules of ops, and the forms of values.

The versions of a ref are all its memory: a store is an operation on it, and a loop or branch that
carries a version has no value for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardwise._src.control.programs import ScanParams
from shardwise._src.core.op import Op
from shardwise._src.core.program import Equation
from shardwise._src.kernels.emitted.emitted_programs import Emission
from shardwise._src.kernels.on_tpu.mosaic_elementwise import ELEMENTWISE, kind_of
from shardwise._src.kernels.on_tpu.mosaic_memory import MEMORY_RULES, load_all, store_all
from shardwise._src.kernels.on_tpu.mosaic_shapes import SHAPES
from shardwise._src.kernels.on_tpu.mosaic_text import Memory, Splat, Text, Value
from shardwise._src.kernels.spaces import Scratch
from shardwise._src.ops.indexing.gather_scatter import (
    dynamic_update_slice,
    gather,
    scatter,
    scatter_add,
)
from shardwise._src.ops.random.bits import (
    random_bits,
    random_fold_in,
    random_seed,
    random_split,
    random_unwrap,
    random_wrap,
)
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType

_OUTSIDE = "Compute it outside of the kernel and pass the result as an argument."
_BY_ARRAYS = (
    "Index refs by integers, slices and `ds`; blocks may be chosen by prefetched indices: "
    "`Block(shape, lambda i, rows: (rows[i], 0))`."
)
_WITHOUT_KEYS = (
    "TPUs have a generator, which is seeded by integers, such as the words of a key that is in "
    "SMEM: `prng_seed(w[0, 0], w[0, 1])`, and from which `stateful_uniform` and others draw. See "
    "`to_pallas_key`."
)
_KEY_OPS = random_wrap, random_unwrap, random_seed, random_split, random_fold_in, random_bits
_ADVICE = {
    dynamic_update_slice: "Write to a ref instead: `ref[ds(start, size)] = value`.",
    **dict.fromkeys((gather, scatter, scatter_add), _BY_ARRAYS),
    **dict.fromkeys(_KEY_OPS, _WITHOUT_KEYS),
}


class Function(Emission, Text):
    """A function that is written from a program.

    kernel: its name, for messages. places: the memory with the position along mesh axes.
    scoped: the memory that the program allocates.
    """

    advice = _ADVICE

    def __init__(self, kernel: str, platform: Platform, places: Mapping[Any, Memory]):
        super().__init__(depth=2)
        self.kernel, self.platform, self.places = kernel, platform, places
        self.scoped: list[tuple[Memory, Scratch]] = []

    def equation(self, eqn: Equation, ins: list[Value], plain: Op | None) -> Any:
        try:
            return super().equation(eqn, ins, plain)
        except NotImplementedError as error:
            if str(error).startswith("kernel "):
                raise
            raise NotImplementedError(f"kernel {self.kernel}: {error}") from None

    def rule(self, eqn: Equation, ins: list[Value]) -> Any:
        rule = _RULES.get(eqn.op)
        return None if rule is None else rule(self, eqn, *ins, **eqn.params)

    def otherwise(self, eqn: Equation, ins: list[Value]) -> Any:
        raise self.unsupported(eqn)

    def unsupported(self, eqn: Any, how: str = "", advice: str = "") -> NotImplementedError:
        """The error for an equation that Mosaic does not support."""
        advice = advice or self.advice.get(eqn.op, _OUTSIDE)
        return NotImplementedError(
            f"kernel {self.kernel}: [{eqn.op.name}]{how and ' ' + how} is not supported "
            f"by Mosaic, the compiler of kernels for TPUs. {advice}"
        )

    def over_arrays(self, eqn: Equation, own: ScanParams, ins: list[Value]) -> list[Value]:
        raise self.unsupported(
            eqn, "over arrays", "Use `fori_loop`, and index refs: `ref[i]`, `ref[ds(i * 8, 8)]`."
        )

    # -- values --

    def number(self, value: Any, t: ArrayType) -> Splat:
        return Splat(np.asarray(value)[()])

    def known(self, x: Value) -> Any:
        return x.number if isinstance(x, Splat) else None

    def register(self, x: Value, t: ArrayType) -> str:
        return self.name(x, t)

    def value(self, name: str, t: ArrayType) -> str:
        return name

    def kind(self, t: ArrayType) -> str:
        return kind_of(t)

    def load_all(self, memory: Memory, t: ArrayType) -> str:
        return load_all(self, memory, t)

    def settle(self, x: Value, memory: Memory, t: ArrayType) -> None:
        store_all(self, memory, x, t)


_RULES = ELEMENTWISE | SHAPES | MEMORY_RULES
