"""Linear algebra and FFTs on sharded arrays: XLA calls that expand to a program for each device.

A call of such a function is emitted as a custom call to `TARGET`. XLA's partitioner calls back into
`module_text` for it once it knows the operands' shardings. Replicated operands use LAPACK's kernel;
others use a program of `distributed_linalg`, over named axes (0, 0), (1, 0) (rows and columns of
tiles of operand 0), (0, 1), ….
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.base.interrupts import import_module
from shardwise._src.lowering.manual import ManualAxes
from shardwise._src.lowering.text import return_text, tensor_text
from shardwise._src.runtime.compiler import partitioner
from shardwise._src.types.array_type import ArrayType, array_type

TARGET = "shardwise_matrices"
LETTERS = [*"ijklmnopqrstuvwxyz", *[f"z_{i}" for i in range(64)]]  # names of factors


@dataclass(frozen=True)
class Function:
    """program: the name of a program in `distributed_linalg`, on tiles and their `Columns`,
    imported on first use; rule: the sharding rule, with a factor for each dimension.

    like: for each result, the number of the operand whose sharding it has; kernel: whether LAPACK
    has such a function; form: the class next to the program that describes an operand's tiles;
    panels: whether it exchanges panels, so that small matrices are gathered instead.
    """

    program: str
    rule: str
    like: Sequence[int | None]
    kernel: bool = True
    form: str = "Columns"
    panels: bool = True


FUNCTIONS = {
    "fft": Function(
        "fourier.transformed", "[...] -> [...]", (0,), kernel=False, form="Tiles", panels=False
    ),
    "hermitian": Function("factors.hermitian", "[i, j] -> [i, j]", (0,), kernel=False),
    "potrf": Function("factors.potrf", "[i, j] -> [i, j], []", (0, None)),
    "getrf": Function("factors.getrf", "[i, j] -> [i, j], [*], []", (0, None, None)),
    "getrs": Function("factors.getrs", "[i, j], [*], [i, k] -> [i, k]", (2,), kernel=False),
    "geqrf": Function("orthogonal.geqrf", "[i, j] -> [i, j], [*]", (0, None)),
    **dict.fromkeys(
        ["orgqr", "ungqr"], Function("orthogonal.orgqr", "[i, j], [*] -> [i, j]", (0,))
    ),
    **dict.fromkeys(
        ["syevd", "heevd"],
        Function("eigenvalues.syevd", "[i, j] -> [i, j], [*], []", (0, None, None)),
    ),
    "trsm": Function("factors.trsm", "[i, j], [i, k] -> [i, k]", (1,)),
}


@dataclass(frozen=True)
class Places(ManualAxes):
    """Named axes of several operands, each over all devices in its own order."""

    pieces: Sequence[partitioner.Piece]

    def rows(self, names: Sequence[Any]) -> np.ndarray:
        order = self.pieces[names[0][1]].order
        along = [dim for dim, _ in names]
        others = [i for i in range(order.ndim) if i not in along]
        return order.transpose(others + along).reshape(-1, np.prod([order.shape[i] for i in along]))

    def places(self, name: Any) -> np.ndarray:
        dim, operand = name
        order = self.pieces[operand].order
        found = np.zeros(order.size, np.int32)
        found[order.ravel()] = np.indices(order.shape)[dim].ravel()
        return found


def call_text(
    name: str,
    xs: Sequence[str],
    ins: Sequence[ArrayType],
    outs: Sequence[ArrayType],
    config: dict[str, Any],
    devices: int,
    write: partitioner.Writer,
) -> str:
    """The instruction that calls a function whose operands may be sharded."""
    partitioner.register(TARGET, write)
    function = FUNCTIONS[name]
    asked = {
        "name": name,
        "devices": devices,
        "flags": config,
        "types": [[[list(t.shape), t.dtype.name] for t in side] for side in (ins, outs)],
    }
    types = [", ".join(map(tensor_text, side)) for side in (ins, outs)]
    turned = config.get("side") == "R"
    rule = _rule(function.rule.replace("[i, k]", "[k, i]") if turned else function.rule, ins, outs)
    return (
        f"stablehlo.custom_call @{TARGET}({', '.join(xs)}) {{api_version = 2 : i32, "
        f"backend_config = {json.dumps(json.dumps(asked))}, sdy.sharding_rule = {rule}}} : "
        f"({types[0]}) -> ({types[1]})"
    )


def _rule(rule: str, ins: Sequence[ArrayType], outs: Sequence[ArrayType]) -> str:
    """Shardy's form of a rule; * marks a dimension that must be replicated."""
    sizes, whole, sides = {}, [], []
    free = iter([c for c in "ijklmnop" if c not in rule])
    for side, types in zip(rule.split(" -> "), (ins, outs), strict=True):
        texts = []
        for dims, t in zip(side[1:-1].split("], ["), types, strict=True):
            letters = LETTERS[: t.ndim] if dims == "..." else dims.split(", ") if dims else []
            for i, n in enumerate(t.shape):
                if letters[i] == "*":
                    letters[i] = next(free)
                    whole.append(letters[i])
                sizes[letters[i]] = max(n, sizes.get(letters[i], n))
            texts.append(f"[{', '.join(letters)}]")
        sides.append(f"({', '.join(texts)})")
    counts = ", ".join(f"{k}={n}" for k, n in sorted(sizes.items()))
    needed = f" need_replication={{{', '.join(whole)}}}" if whole else ""
    return f"#sdy.op_sharding_rule<{'->'.join(sides)} {{{counts}}}{needed}, custom>"


def module_text(
    emitter: Any, asked: dict[str, Any], pieces: list[partitioner.Piece]
) -> tuple[str, Sequence[int | None]]:
    """The module of one device. emitter: a fresh one, for CPU."""
    function = FUNCTIONS[asked["name"]]
    sides = [[(tuple(shape), np.dtype(dtype)) for shape, dtype in side] for side in asked["types"]]
    ins = [array_type(p.part(p.shape), t[1]) for p, t in zip(pieces, sides[0], strict=True)]
    outs = [
        array_type(shape if i is None else pieces[i].part(shape), dtype)
        for (shape, dtype), i in zip(sides[1], function.like, strict=True)
    ]
    names = [f"%arg{i}" for i in range(len(ins))]
    flags = {k: tuple(v) if isinstance(v, list) else v for k, v in asked["flags"].items()}
    if function.kernel and all(set(p.tiles) <= {1} for p in pieces):
        results = emitter.lapack(asked["name"], names, ins, outs, batch=0, config=flags)
    else:
        every = [(d, i) for i, p in enumerate(pieces) for d in range(len(p.shape))]
        grid = np.arange(asked["devices"])
        emitter.manual = Places(None, grid, frozenset(every), frozenset(), pieces)
        home, _, name = function.program.partition(".")
        home = import_module(f"shardwise._src.distributed_linalg.{home}")
        form = getattr(home, function.form)
        lie = [form(p.shape, p.tiles, i) for i, p in enumerate(pieces) if not i or len(p.shape) > 1]
        lie = dict(zip("ab", lie, strict=False))
        program = emitter.staged(getattr(home, name), ins, **lie, **flags)
        results = emitter.inline(program, *names)
    args = ", ".join(f"{n}: {tensor_text(t)}" for n, t in zip(names, ins, strict=True))
    body = "\n".join([*emitter.lines, return_text("func.return", results, outs)])
    text = (
        f"module {{\nfunc.func public @main({args}) -> ({', '.join(map(tensor_text, outs))}) "
        f"{{\n{body}\n}}\n" + "\n".join(emitter.functions) + "\n}"
    )
    return text, function.like
