"""Writes docs/transforms.md: which transforms each op has rules for.

    python tools/transforms_table.py

Everything is derived from the records of the ops and from their test samples: whether a derivative
is zero, and whether reverse mode works, is tested. Missing rules must have a reason below,
otherwise nothing is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shardwise._src.base.config import config, enable_x64
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import Op, every_op
from shardwise._src.core.program import Program
from shardwise._src.testing.running import staged
from shardwise._src.transforms.jvp import jvp_program
from shardwise._src.transforms.linearize import split_program
from shardwise._src.transforms.transpose import transpose_program
from shardwise._src.types.dtypes import is_inexact
from shardwise.testing import Sample

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "transforms.md"
COLUMNS = ("jvp", "linearize", "transpose", "batch", "explicit", "uneven")
YES, FLAT, NONE = "yes", "flat", "—"

NOT_LINEAR = (
    "Not linear in an operand: reverse mode transposes the ops that its derivative is made of."
)
NO_OPERANDS = "Has no operands."
HOST = (
    "The derivative of a host function is unknown: wrap the call in a function "
    "with `custom_jvp` or `custom_vjp`."
)
DEBUGGING = "Has no results; its operands have no derivatives to propagate."
LINEAR_ONLY = (
    "Represents the derivative of a `custom_vjp` function, which is defined in reverse "
    "mode only: it has just `transpose`."
)
NAMED = "A compiler may replace its implementation: define its rule with `custom_jvp`."
PARTS = (
    "How its derivative would be partitioned is unknown: define its rule with `custom_vjp` or "
    "`custom_jvp`."
)
IN_ORDER = "Ordered: calls for the elements of a batch have no order."

FORMS = "The unitary factors are not unique, and what LAPACK chooses has no derivative."
REFLECTIONS = "The reflections are an internal form of the result of `qr`, which has a derivative."
EXPORTED = "Its module is fixed; derivatives call the exported vjp."
EXPORTED_TYPES = "Its module is fixed to the exported shapes."
HIDDEN = "Its numbers come from hidden state."
ITERATIONS = (
    "The number of iterations is unknown, so the values of all iterations cannot be stored: "
    "use `scan`, or `fori_loop` with a static number of iterations, which becomes a scan."
)
MODULE = "A kernel in its form for TPUs: derivatives and maps are those of `kernel_call`."
GPU_LAUNCH = "A launch as GPUs run it: `kernel_call`, which it is lowered from, has the rules."
ASSEMBLY = "Code of a user in a kernel for GPUs: only the types of its results are known."
KERNEL = "A kernel of cuDNN: `nn.dot_product_attention` has its derivative, in reverse mode."

DERIVATIVE = "jvp linearize transpose"
# Reasons, by (op, column): each row has a reason, its columns, and its ops.
REASONS: dict[tuple[str, str], str] = {
    (name, column): reason
    for reason, columns, names in (
        (EXPORTED, DERIVATIVE, "call_exported"),
        (EXPORTED_TYPES, "batch", "call_exported"),
        (HIDDEN, f"{DERIVATIVE} batch", "rng_uniform"),
        (NAMED, DERIVATIVE, "composite"),
        (PARTS, DERIVATIVE, "custom_partitioning"),
        (LINEAR_ONLY, "jvp", "custom_vjp_linear custom_vjp_linear_with_refs"),
        (NO_OPERANDS, "batch", "iota"),
        (NO_OPERANDS, DERIVATIVE, "axis_index"),
        (NO_OPERANDS, f"{DERIVATIVE} batch", "no_value dim_value platform_number"),
        (NOT_LINEAR, "transpose", "pmax pmin"),
        (FORMS, DERIVATIVE, "schur hessenberg tridiagonal"),
        (REFLECTIONS, DERIVATIVE, "geqrf geqp3 householder_product ormqr"),
        (IN_ORDER, "batch", "ordered_io_callback ordered_debug_callback"),
        (ITERATIONS, "transpose", "while_loop"),
        (HOST, DERIVATIVE, "pure_callback io_callback ordered_io_callback"),
        (HOST, DERIVATIVE, "ffi_call effectful_ffi_call buffer_callback effectful_buffer_callback"),
        (DEBUGGING, DERIVATIVE, "debug_callback ordered_debug_callback inspect_sharding"),
        (DEBUGGING, DERIVATIVE, "check dce_sink"),
        (MODULE, f"{DERIVATIVE} batch explicit uneven", "mosaic_call"),
        (GPU_LAUNCH, f"{DERIVATIVE} batch", "triton_call"),
        (ASSEMBLY, f"{DERIVATIVE} batch explicit uneven", "elementwise_inline_asm"),
        (KERNEL, DERIVATIVE, "fused_attention fused_attention_gradients"),
    )
    for column in columns.split()
    for name in names.split()
}

TEXT = """\
# Which transforms go through which ops

Written by `python tools/transforms_table.py` from the records of the ops and the samples that
`tests/ops` checks them on; a test checks that it is up to date.

| column | yes means |
|---|---|
| `jvp` | forward mode has a rule, and `vmap`, `jit` and itself go through it |
| `linearize` | the derivative splits into a known and a linear part |
| `transpose` | the op is linear in an operand, and its transpose is known: reverse mode needs it |
| `batch` | `vmap` has a rule |
| `explicit` | over explicit mesh axes the types of its results include their sharding |
| `uneven` | dimensions may be sharded unevenly |

"flat" means a derivative that is zero, by definition or because operands or results are
integers. "—" has its reason below the table; "yes" with a number has an exception there.

"""


@dataclass
class Row:
    """The rules of an op: a cell per column, and reasons for empty or partial cells."""

    op: Op
    cells: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def set(self, column: str, cell: str, reason: str = "") -> None:
        given = REASONS.get((self.op.name, column))
        self.cells[column] = NONE if given else cell
        self.reasons[column] = given or reason


def ops() -> list[Op]:
    """All ops of the library, by name."""
    return [op for _, op in sorted(every_op().items())]


def row_of(op: Op, samples: list[Sample]) -> Row:
    row = Row(op)
    holder = bool(op.programs) or op.user_code
    found = Tried(op, samples)
    if samples and not found.moves:
        for column in COLUMNS[:3]:
            row.set(column, FLAT)
    else:
        row.set("jvp", YES if op.jvp else NONE, found.exception)
        row.set("linearize", YES if op.jvp or op.transpose else NONE, found.exception)
        reason = "" if op.transpose or not found.reverses else NOT_LINEAR
        row.set("transpose", YES if op.transpose else NONE, reason)
    row.set("batch", YES if op.batch else NONE)
    row.set("explicit", YES if op.dims or holder or bool(op.shardings) else NONE)
    row.set("uneven", YES if op.dims or holder or bool(op.shardings) else NONE)
    return row


class Tried:
    """The derivatives with respect to each operand, on the samples.

    moves: whether any is nonzero. reverses: whether these can be transposed.
    exception: raised if there is no derivative.
    """

    def __init__(self, op: Op, samples: list[Sample]):
        self.moves = False
        self.reverses = True
        self.exception = ""
        for sample in samples:
            with enable_x64(sample.x64 or enable_x64.value):
                self._try(op, sample, [type_of(a) for a in sample.args])

    def _try(self, op: Op, sample: Sample, types: list[Any]) -> None:
        smooth = [i for i, t in enumerate(types) if is_inexact(t.dtype)]
        if smooth and op.jvp is None:
            self.moves, self.reverses = True, False
            return
        program = staged(lambda *xs: sample.apply(op, *xs), types, op.name)
        for i in smooth:
            try:
                both, marks = jvp_program(program, tuple([k == i for k in range(len(types))]))
            except NotImplementedError as error:
                self.exception = str(error).partition(". ")[0] + "."
                continue
            if any(marks):
                self.moves = True
                self.reverses = self.reverses and transposable(both, len(types))


def transposable(both: Program, known: int) -> bool:
    """Whether the tangent-dependent part of a derivative can be transposed."""
    unknown = tuple([i >= known for i in range(len(both.invars))])
    parts = split_program(both, unknown)
    try:
        transpose_program(parts.rest, len(parts.forwarded), (True,) * len(parts.rest.outvars))
    except (NotImplementedError, TypeError):
        return False
    return True


def table(rows: list[Row]) -> Iterator[str]:
    yield "| op | " + " | ".join(f"`{c}`" for c in COLUMNS) + " |"
    yield "|---" * (len(COLUMNS) + 1) + "|"
    notes: dict[str, int] = {}
    for row in rows:
        cells = []
        for column in COLUMNS:
            cell, reason = row.cells[column], row.reasons[column]
            if reason:
                cell = f"{cell} [{notes.setdefault(reason, len(notes) + 1)}]"
            elif cell == NONE:
                raise SystemExit(
                    f"{row.op.name} has no {column!r}: say why in REASONS of {__file__}."
                )
            cells.append(cell)
        yield f"| `{row.op.name}` | " + " | ".join(cells) + " |"
    yield ""
    for reason, number in notes.items():
        yield f"{number}. {reason}"


def page() -> str:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from tests.ops.samples import SAMPLES

    rows = [row_of(op, SAMPLES.get(op.name, [])) for op in ops()]
    return TEXT + "\n".join(table(rows)) + "\n"


def main() -> None:
    config.update("num_cpu_devices", 8)  # some samples use a mesh
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
