"""Calls of kernels that are no instructions of XLA.

    lu, pivots, info = e.lapack("getrf", [x], ins, outs, batch=1)

Leading dimensions are batches, and are split over devices without any communication: each device
calls the kernel on its own. The others are whole on each device, and matrices lie column by column
there, as LAPACK has them. A single matrix that is large is not gathered by those functions that
`divided` knows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.config import divided_matrix_min_size_bytes
from shardwise._src.lowering import divided
from shardwise._src.lowering.text import tensor_text
from shardwise._src.runtime import lapack
from shardwise._src.types.array_type import ArrayType

Flag = str | int | bool | np.int32
_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


class Kernels:
    """Writers of calls of kernels."""

    devices: int
    constant: Callable[[Any, ArrayType], str]
    divided: Callable[..., Any]
    lets: Callable[[str, int], list[str]]
    manual: Any
    platform: str

    def lapack(
        self, name: str, xs: Sequence[str], ins: Sequence[ArrayType], outs: Sequence[ArrayType], *,
        batch: int, config: dict[str, Flag] | None = None,
        aliases: dict[int, int] | None = None,
    ) -> list[str]:
        """Calls a function of LAPACK, by its name without the letter of the dtype, or one that
        jaxlib has beside these, by its whole name.

        batch:   how many leading dimensions all operands and results share.
        config:  its flags: a letter, a number (of 64 bits, if it is not an int32) or a bool each.
        aliases: operands whose memory a result may take, by number.
        """
        if 0 in [t.size for t in outs]:
            return [self.constant(0, t) for t in outs]
        lapack.register()
        if not batch and self.may_divide(name, ins):
            return self.of_divided(name, xs, ins, outs, config or {})
        flags = ", ".join(f"{k} = {_flag(v)}" for k, v in (config or {}).items())
        several = len(outs) > 1
        taken = ", ".join(
            f"#stablehlo.output_operand_alias<output_tuple_indices = [{out if several else ''}], "
            f"operand_index = {x}, operand_tuple_indices = []>"
            for x, out in (aliases or {}).items()
        )
        split = ""
        if self.devices > 1 and batch:
            split = (
                f', mhlo.frontend_attributes = {{num_batch_dims = "{batch}"}}'
                f", sdy.sharding_rule = {_rule(ins, outs, batch)}"
            )
        types = ", ".join(map(tensor_text, ins)), ", ".join(map(tensor_text, outs))
        letter = _LETTERS[ins[0].dtype.name]
        target = name if name.endswith("_ffi") else f"lapack_{letter}{name}_ffi"
        return self.lets(
            f"stablehlo.custom_call @{target}({', '.join(xs)}) "
            f"{{api_version = 4 : i32, backend_config = {{{flags}}}, "
            f"operand_layouts = [{_layouts(ins, batch)}], "
            f"result_layouts = [{_layouts(outs, batch)}], "
            f"output_operand_aliases = [{taken}]{split}}} : ({types[0]}) -> ({types[1]})",
            len(outs),
        )


    def may_divide(self, name: str, ins: Sequence[ArrayType]) -> bool:
        """Whether the partitioner may be asked how the operands of a function are divided.

        Not where all matrices are small: to gather them takes less time than to exchange panels.
        """
        if self.devices == 1 or self.platform != "cpu" or self.manual is not None:
            return False
        size, function = max(t.size * t.dtype.itemsize for t in ins), divided.FUNCTIONS.get(name)
        large = size >= divided_matrix_min_size_bytes.value
        return function is not None and (large or not function.panels)

    def of_divided(
        self, name: str, xs: Sequence[str], ins: Sequence[ArrayType], outs: Sequence[ArrayType],
        config: dict[str, Any],
    ) -> list[str]:
        """A function whose operands may be divided."""
        text = divided.call_text(name, xs, ins, outs, config, self.devices, self.divided)
        return self.lets(text, len(outs))


def _flag(value: Flag) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"{ord(value)} : ui8"
    return f"{value} : {'i32' if value.__class__ is np.int32 else 'i64'}"


def _layouts(types: Sequence[ArrayType], batch: int) -> str:
    """Of each value, its dimensions from the one that changes first: of matrices, the rows."""
    rows: list[str] = []
    for t in types:
        order = [*reversed(range(t.ndim))]
        if t.ndim == batch + 2:
            order[:2] = order[1], order[0]
        rows.append(f"dense<{order}> : tensor<{t.ndim}xindex>")
    return ", ".join(rows)


def _rule(ins: Sequence[ArrayType], outs: Sequence[ArrayType], batch: int) -> str:
    """Shardy's words for: the leading dimensions go together, and the others are whole."""
    names = (f"{c}{n}" for n in itertools.chain([""], itertools.count(1))
             for c in (f"{x}_" if n else x for x in "ijklmnopqrstuvwxyz"))
    leading = [next(names) for _ in range(batch)]
    sizes = dict(zip(leading, ins[0].shape, strict=False))

    def dims(t: ArrayType) -> str:
        own = [next(names) for _ in range(t.ndim - batch)]
        sizes.update(zip(own, t.shape[batch:], strict=True))
        return f"[{', '.join([*leading, *own])}]"

    sides = [", ".join([dims(t) for t in types]) for types in (ins, outs)]
    counts = ", ".join(f"{name}={n}" for name, n in sizes.items())
    return f"#sdy.op_sharding_rule<({sides[0]})->({sides[1]}) {{{counts}}}, custom>"
