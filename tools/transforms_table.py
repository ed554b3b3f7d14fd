"""Writes docs/transforms.md: which transforms each op has rules for.

    python tools/transforms_table.py

Everything is found out from the records of the ops and from the samples that tests check them on:
whether a derivative is zero, and whether reverse mode goes through, is tried. What an op does not
have must have a reason below, or nothing is written.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import shardwise.control
import shardwise.ops
from shardwise.base.config import enable_x64
from shardwise.core.infer import type_of
from shardwise.core.op import OPS, Op
from shardwise.core.program import Program
from shardwise.testing import Sample
from shardwise.testing.running import staged
from shardwise.transforms.jvp import jvp_program
from shardwise.transforms.linearize import split_program
from shardwise.transforms.transpose import transpose_program
from shardwise.types.dtypes import is_inexact

PAGE = ROOT / "docs" / "transforms.md"
COLUMNS = ("jvp", "linearize", "transpose", "batch", "explicit", "uneven")
YES, FLAT, NONE = "yes", "flat", "—"

NOT_LINEAR = "Not linear in an operand: reverse mode transposes the ops that its derivative is made of."
NO_OPERANDS = "Has no operands."
HOST = (
    "A function on the host has no derivative that could be known: wrap the call in a function "
    "with `custom_jvp` or `custom_vjp`."
)
DEBUGGING = "Has no results; what it looks at is passed by without derivatives."
LINEAR_ONLY = (
    "Stands for the derivative of a `custom_vjp` function, which is only given in reverse: "
    "`transpose` is all it has."
)
IN_ORDER = "Ordered: calls for the elements of a batch have no order."

# Reasons, by (op, column).
REASONS: dict[tuple[str, str], str] = {
    ("igamma_grad_a", "jvp"): "A second derivative by this parameter has no closed form.",
    ("igamma_grad_a", "linearize"): "A second derivative by this parameter has no closed form.",
    ("igamma_grad_a", "transpose"): NOT_LINEAR,
    ("iota", "batch"): NO_OPERANDS,
    ("custom_vjp_linear", "jvp"): LINEAR_ONLY,
    ("ordered_io_callback", "batch"): IN_ORDER,
    ("ordered_debug_callback", "batch"): IN_ORDER,
    ("while_loop", "transpose"): "",
    **{(name, column): HOST for name in ("pure_callback", "io_callback", "ordered_io_callback")
       for column in ("jvp", "linearize", "transpose")},
    **{(name, column): DEBUGGING
       for name in ("debug_callback", "ordered_debug_callback", "inspect_sharding")
       for column in ("jvp", "linearize", "transpose")},
}

# Ops that are not sampled, as they hold programs or functions: their derivatives are those of
# these, unless there is a reason above.
HOLDERS = "yes"

TEXT = """\
# Which transforms go through which ops

Written by `python tools/transforms_table.py` from the records of the ops and the samples that
`tests/ops` checks them on; a test compares it with what these say now.

| column | yes means |
|---|---|
| `jvp` | forward mode has a rule, and `vmap`, `jit` and itself go through it |
| `linearize` | the derivative falls into a known and a linear part |
| `transpose` | the op is linear in an operand, and its transpose is known: reverse mode needs it |
| `batch` | `vmap` has a rule |
| `explicit` | over explicit mesh axes its types say how results are split |
| `uneven` | dimensions may be split into unequal parts |

"flat" stands for a derivative that is zero, by definition or because operands or results are
integers. "—" has a reason, below the table.

"""


@dataclass
class Row:
    """What an op has: a cell for each column, and the reasons for those that are empty."""

    op: Op
    cells: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    def set(self, column: str, cell: str, reason: str = "") -> None:
        given = REASONS.get((self.op.name, column))
        self.cells[column] = NONE if given else cell
        if given or cell == NONE:
            self.reasons[column] = given or reason


def ops() -> list[Op]:
    """All ops of the library, by name."""
    for package in (shardwise.ops, shardwise.control):
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{package.__name__}.{module.name}")
    return [OPS[name] for name in sorted(OPS)]


def row_of(op: Op, samples: list[Sample]) -> Row:
    row = Row(op)
    holder = bool(op.programs) or op.family in ("custom", "callback")
    moves, reverses = (True, True) if holder else tried(op, samples)
    if not moves:
        for column in COLUMNS[:3]:
            row.set(column, FLAT)
    else:
        row.set("jvp", YES if op.jvp else NONE)
        row.set("linearize", YES if op.jvp or op.transpose else NONE)
        row.set("transpose", YES if op.transpose else NONE, NOT_LINEAR if reverses else "")
    row.set("batch", YES if op.batch else NONE)
    row.set("explicit", YES if op.dims or holder or op.family == "sharding" else NONE)
    row.set("uneven", YES if op.dims or holder or op.family == "sharding" else NONE)
    return row


def tried(op: Op, samples: list[Sample]) -> tuple[bool, bool]:
    """Whether some result has a derivative that is not zero, and whether it can be transposed."""
    moves = reverses = False
    for sample in samples:
        with enable_x64(sample.x64 or enable_x64.value):
            types = [type_of(a) for a in sample.args]
            nonzero = tuple([is_inexact(t.dtype) for t in types])
            if not any(nonzero):
                continue
            if op.jvp is None:
                return True, False
            program = staged(lambda *xs, s=sample: s.apply(op, *xs), types, op.name)
            both, marks = jvp_program(program, nonzero)
            if any(marks):
                moves = True
                reverses = reverses or transposable(both, len(types))
    return moves, reverses


def transposable(both: Program, known: int) -> bool:
    """Whether the part of a derivative that depends on tangents can be transposed."""
    unknown = tuple([i >= known for i in range(len(both.arguments))])
    parts = split_program(both, unknown)
    try:
        transpose_program(parts.rest, len(parts.forwarded), (True,) * len(parts.rest.outputs))
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
            cell = row.cells[column]
            if cell == NONE:
                reason = row.reasons[column]
                if not reason:
                    raise SystemExit(
                        f"{row.op.name} has no {column!r}: say why in REASONS of {__file__}."
                    )
                cell = f"— [{notes.setdefault(reason, len(notes) + 1)}]"
            cells.append(cell)
        yield f"| `{row.op.name}` | " + " | ".join(cells) + " |"
    yield ""
    for reason, number in notes.items():
        yield f"{number}. {reason}"


def page() -> str:
    from tests.ops.samples import SAMPLES  # which need the path that is set above

    rows = [row_of(op, SAMPLES.get(op.name, [])) for op in ops()]
    return TEXT + "\n".join(table(rows)) + "\n"


def main() -> None:
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
