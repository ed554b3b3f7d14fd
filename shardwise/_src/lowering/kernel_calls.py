"""Calls of kernels that are not XLA instructions.

    lu, pivots, info = e.lapack("getrf", [x], ins, outs, batch=1)
    lu, pivots, info = e.cusolver("cusolver_getrf_ffi", [x], ins, outs, batch=1)

Leading dimensions are batch dimensions, and are split over devices without any communication: each
device calls the kernel on its shard. The other dimensions are replicated, and matrices are stored
column-major, as LAPACK and cuSOLVER expect. The functions in `distributed_functions` do not gather
a single large matrix.

If a result has no elements, nothing is called and all results are zeros. A rule whose other results
may have elements then, and must not be zeros (a permutation, for example), handles empty matrices
itself; a kernel's report of success is 0.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise._src.base.config import sharded_linalg_min_size_bytes
from shardwise._src.lowering import distributed_functions
from shardwise._src.lowering.text import quoted, reference_text, tensor_text
from shardwise._src.runtime import cuda
from shardwise._src.runtime.compiler import lapack
from shardwise._src.runtime.platforms import Platform
from shardwise._src.types.array_type import ArrayType
from shardwise._src.types.symbolic import Symbolic

Flag = str | int | bool | np.int32 | np.uint8
_WIDTHS: dict[type, str] = {np.int32: "i32", np.uint8: "ui8"}
_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


class Kernels:
    """Methods that emit kernel calls."""

    devices: int
    constant: Callable[[Any, ArrayType], str]
    lets: Callable[[str, int], list[str]]
    manual: Any
    partitioned_module: Callable[..., Any]
    platform: Platform

    def lapack(
        self,
        name: str,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        batch: int,
        config: dict[str, Flag] | None = None,
        aliases: dict[int, int] | None = None,
    ) -> list[str]:
        """Calls a LAPACK function, by its name without the dtype letter; or an additional function
        of jaxlib, by its full name.

        batch:   the number of leading dimensions that all operands and results share.
        config:  its flags: a letter, a word, a number (64-bit, unless it is a NumPy one) or a bool.
        aliases: operands whose memory a result may reuse, by number.
        """
        if 0 in [t.size for t in outs]:
            return [self.constant(0, t) for t in outs]
        if not batch and self.may_partition(name, ins):
            lapack.register()  # the text does not name the functions, the partitioned one does
            return self.partitioned_call(name, xs, ins, outs, config or {})
        letter = _LETTERS[ins[0].dtype.name]
        target = name if name.endswith("_ffi") else f"lapack_{letter}{name}_ffi"
        return self._kernel(target, xs, ins, outs, batch, config, aliases)

    def cusolver(
        self,
        name: str,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        batch: int,
        config: dict[str, Flag] | None = None,
        aliases: dict[int, int] | None = None,
        by_rows: bool = False,
    ) -> list[str]:
        """Calls a function of jaxlib for CUDA, by its full name; other arguments as for `lapack`.

        by_rows: whether matrices are row-major.
        """
        if 0 in [t.size for t in outs]:
            return [self.constant(0, t) for t in outs]
        if name.startswith("cuhybrid_"):
            cuda.register_host_functions()
        return self._kernel(name, xs, ins, outs, batch, config, aliases, by_rows)

    def xla_expansion(
        self,
        name: str,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        config: str = "",
    ) -> list[str]:
        """Calls a function that XLA's compilers expand, which has leading batch dimensions."""
        if 0 in [t.size for t in outs]:
            return [self.constant(0, t) for t in outs]
        return self.custom_call(name, xs, ins, outs, config=f'"{config}"', version=1)

    def _kernel(
        self,
        target: str,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        batch: int,
        config: dict[str, Flag] | None,
        aliases: dict[int, int] | None,
        by_rows: bool = False,
    ) -> list[str]:
        flags = ", ".join(f"{k} = {_flag(v)}" for k, v in (config or {}).items())
        if any(isinstance(n, Symbolic) for t in outs for n in t.shape):
            aliases = {}
        order = None if by_rows else [[_by_columns(t, batch) for t in side] for side in (ins, outs)]
        return self.custom_call(
            target,
            xs,
            ins,
            outs,
            config=f"{{{flags}}}",
            orders=order,
            aliases=aliases,
            batch=batch if self.devices > 1 else 0,
        )

    def custom_call(
        self,
        target: str,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        *,
        config: str = "{}",
        version: int = 4,
        orders: Sequence[Sequence[Sequence[int] | None]] | None = None,
        aliases: dict[int, int] | None = None,
        effect: bool = False,
        batch: int = 0,
        extra: dict[str, str] | None = None,
    ) -> list[str]:
        """Calls a function by the name registered with XLA.

        config:  its attributes, as text; a string attribute in versions before 4. Attributes are
                 written in the form that all releases of XLA read: as `mhlo.backend_config` of a
                 call of version 1.
        orders:  for operands and for results, the dimensions of each, from the one that varies
                 slowest in memory; None for the default order.
        aliases: operands whose memory a result reuses, by number.
        effect:  whether it is called even if no result is used.
        batch:   the number of leading dimensions that all operands and results share, along which
                 each device may process its own shard.
        extra:   additional attributes, by name.
        """
        notes, sizes = extra or {}, self.result_sizes(outs)
        if version >= 4:
            notes, version, config = {"mhlo.backend_config": config, **notes}, 1, '""'
        if batch and not sizes:
            own = {"mhlo.frontend_attributes": f'{{num_batch_dims = "{batch}"}}'}
            notes = {**own, "sdy.sharding_rule": _rule(ins, outs, batch), **notes}
        if effect:
            notes = {"has_side_effect": "true", **notes}
        several = len(outs) > 1
        taken = ", ".join(
            f"#stablehlo.output_operand_alias<output_tuple_indices = [{out if several else ''}], "
            f"operand_index = {x}, operand_tuple_indices = []>"
            for x, out in (aliases or {}).items()
        )
        orders = orders or [[None] * len(ins), [None] * len(outs)]
        if sizes:
            numbers = [*range(len(ins), len(ins) + len(sizes))]
            text = f"dense<{numbers}> : tensor<{len(sizes)}xi64>"
            notes = {"indices_of_shape_operands": text, **notes}
        given, names = [*ins, *[t for _, t in sizes]], [*xs, *[x for x, _ in sizes]]
        orders = [[*orders[0], *[None] * len(sizes)], orders[1]]
        types = ", ".join(map(tensor_text, given)), ", ".join(map(tensor_text, outs))
        return self.lets(
            f"stablehlo.custom_call {reference_text(target)}({', '.join(names)}) "
            f"{{api_version = {version} : i32, backend_config = {config}, "
            f"operand_layouts = [{_layouts(given, orders[0])}], "
            f"result_layouts = [{_layouts(outs, orders[1])}], "
            f"output_operand_aliases = [{taken}]"
            f"{''.join(f', {k} = {v}' for k, v in notes.items())}}} : ({types[0]}) -> ({types[1]})",
            len(outs),
        )

    def result_sizes(self, outs: Sequence[ArrayType]) -> list[tuple[str, ArrayType]]:
        """The shapes of results as values, with their types, if they are symbolic."""
        return []

    def may_partition(self, name: str, ins: Sequence[ArrayType]) -> bool:
        """Whether a function may be left to the partitioner callback, for sharded operands.

        Not if all matrices are small: gathering them is faster than exchanging panels.
        """
        if self.devices == 1 or not self.platform.is_xla_cpu or self.manual is not None:
            return False
        size = max(t.size * t.dtype.itemsize for t in ins)
        function = distributed_functions.FUNCTIONS.get(name)
        large = size >= sharded_linalg_min_size_bytes.value
        return function is not None and (large or not function.panels)

    def partitioned_call(
        self,
        name: str,
        xs: Sequence[str],
        ins: Sequence[ArrayType],
        outs: Sequence[ArrayType],
        config: dict[str, Any],
    ) -> list[str]:
        """Calls a function of sharded operands, which the partitioner callback expands."""
        text = distributed_functions.call_text(
            name, xs, ins, outs, config, self.devices, self.partitioned_module
        )
        return self.lets(text, len(outs))


def _flag(value: Flag) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f"{ord(value)} : ui8" if len(value) == 1 else quoted(value)
    return f"{value} : {_WIDTHS.get(value.__class__, 'i64')}"


def _by_columns(t: ArrayType, batch: int) -> tuple[int, ...] | None:
    """The column-major dimension order of a matrix; None if it is not a matrix."""
    return (*range(batch), batch + 1, batch) if t.ndim == batch + 2 else None


def _layouts(types: Sequence[ArrayType], orders: Sequence[Sequence[int] | None]) -> str:
    """For each value, its dimensions from the fastest-varying one to the slowest."""
    rows = [
        [*reversed(range(t.ndim) if order is None else order)]
        for t, order in zip(types, orders, strict=True)
    ]
    return ", ".join(f"dense<{row or ''}> : tensor<{len(row)}xindex>" for row in rows)


def _rule(ins: Sequence[ArrayType], outs: Sequence[ArrayType], batch: int) -> str:
    """Shardy's sharding rule: the leading dimensions correspond, the others are replicated."""
    names = (
        f"{c}{n}"
        for n in itertools.chain([""], itertools.count(1))
        for c in (f"{x}_" if n else x for x in "ijklmnopqrstuvwxyz")
    )
    leading = [next(names) for _ in range(batch)]
    sizes = dict(zip(leading, ins[0].shape, strict=False))

    def dims(t: ArrayType) -> str:
        own = [next(names) for _ in range(t.ndim - batch)]
        sizes.update(zip(own, t.shape[batch:], strict=True))
        return f"[{', '.join([*leading, *own])}]"

    sides = [", ".join([dims(t) for t in types]) for types in (ins, outs)]
    counts = ", ".join(f"{name}={n}" for name, n in sizes.items())
    return f"#sdy.op_sharding_rule<({sides[0]})->({sides[1]}) {{{counts}}}, custom>"
