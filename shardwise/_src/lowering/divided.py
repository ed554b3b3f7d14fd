"""LAPACK's functions of one matrix that is divided over devices: a program for each device.

A call of such a function is written as a call of `TARGET`, about which XLA's partitioner asks
`_write` once it knows how the operands are divided. Where they are whole, that is LAPACK's kernel;
else one of the programs in `blocked`, over named axes r0, c0 (rows and columns of tiles of operand
0), r1, ….
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shardwise._src.lowering.manual import ManualAxes
from shardwise._src.lowering.text import return_text, tensor_text
from shardwise._src.runtime import divided
from shardwise._src.types.array_type import ArrayType, array_type

TARGET = "shardwise_matrices"


@dataclass(frozen=True)
class Function:
    """program: the name of one in `blocked`, of tiles and their `Columns`, imported when it is
    first needed; rule: how factors of dimensions go through.

    like: for each result, the number of the operand that it is divided like; kernel: whether LAPACK
    has such a function.
    """

    program: str
    rule: str
    like: Sequence[int | None]
    kernel: bool = True


FUNCTIONS = {
    "hermitian": Function("factors.hermitian", "[i, j] -> [i, j]", (0,), kernel=False),
    "potrf": Function("factors.potrf", "[i, j] -> [i, j], []", (0, None)),
    "getrf": Function("factors.getrf", "[i, j] -> [i, j], [*], []", (0, None, None)),
    "getrs": Function(
        "factors.getrs", "[i, j], [*], [i, k] -> [i, k]", (2,), kernel=False
    ),
    "trsm": Function("factors.trsm", "[i, j], [i, k] -> [i, k]", (1,)),
}


@dataclass(frozen=True)
class Places(ManualAxes):
    """Named axes of several operands, each over all devices in an order of its own."""

    pieces: Sequence[divided.Piece]

    def rows(self, names: Sequence[Any]) -> np.ndarray:
        order = self.pieces[int(names[0][1:])].order
        along = ["rc".index(name[0]) for name in names]
        others = [i for i in range(order.ndim) if i not in along]
        return order.transpose(others + along).reshape(-1, np.prod([order.shape[i] for i in along]))

    def places(self, name: Any) -> np.ndarray:
        order = self.pieces[int(name[1:])].order
        found = np.zeros(order.size, np.int32)
        found[order.ravel()] = np.indices(order.shape)["rc".index(name[0])].ravel()
        return found


def call_text(
    name: str, xs: Sequence[str], ins: Sequence[ArrayType], outs: Sequence[ArrayType],
    config: dict[str, Any], devices: int, write: divided.Writer,
) -> str:
    """The instruction that calls a function whose operands may be divided."""
    divided.register(TARGET, write)
    function = FUNCTIONS[name]
    asked = {
        "name": name, "devices": devices, "flags": config,
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
    """Shardy's form of a rule; a * is a dimension that is whole."""
    sizes, whole, sides = {}, [], []
    free = iter([c for c in "ijklmnop" if c not in rule])
    for side, types in zip(rule.split(" -> "), (ins, outs), strict=True):
        texts = []
        for dims, t in zip(side[1:-1].split("], ["), types, strict=True):
            letters = dims.split(", ") if dims else []
            for i, n in enumerate(t.shape):
                if letters[i] == "*":
                    letters[i] = next(free)
                    whole.append(letters[i])
                sizes[letters[i]] = n
            texts.append(f"[{', '.join(letters)}]")
        sides.append(f"({', '.join(texts)})")
    counts = ", ".join(f"{k}={n}" for k, n in sorted(sizes.items()))
    needed = f" need_replication={{{', '.join(whole)}}}" if whole else ""
    return f"#sdy.op_sharding_rule<{'->'.join(sides)} {{{counts}}}{needed}, custom>"


def module_text(
    emitter: Any, asked: dict[str, Any], pieces: list[divided.Piece]
) -> tuple[str, Sequence[int | None]]:
    """The module of one device. emitter: a new one, for CPU."""
    function = FUNCTIONS[asked["name"]]
    sides = [[(tuple(shape), np.dtype(dtype)) for shape, dtype in side] for side in asked["types"]]
    tiles = [[-(-n // k) for n, k in zip(p.shape, p.tiles, strict=True)] for p in pieces]
    ins = [array_type(tuple(s), dtype) for s, (_, dtype) in zip(tiles, sides[0], strict=True)]
    outs = [array_type(shape if i is None else tuple(tiles[i]), dtype)
            for (shape, dtype), i in zip(sides[1], function.like, strict=True)]
    names = [f"%arg{i}" for i in range(len(ins))]
    flags = asked["flags"]
    if function.kernel and all(set(p.tiles) <= {1} for p in pieces):
        results = emitter.lapack(asked["name"], names, ins, outs, batch=0, config=flags)
    else:
        every = [f"{letter}{i}" for i in range(len(pieces)) for letter in "rc"]
        grid = np.arange(asked["devices"])
        emitter.manual = Places(None, grid, frozenset(every), frozenset(), pieces)
        home, _, name = function.program.partition(".")
        home = importlib.import_module(f"shardwise._src.blocked.{home}")
        matrices = [home.Columns(*p.matrix, i) for i, p in enumerate(pieces) if len(p.shape) == 2]
        lie = dict(zip("ab", matrices, strict=False))
        program = emitter.staged(getattr(home, name), ins, **lie, **flags)
        results = emitter.inline(program, *names)
    args = ", ".join(f"{n}: {tensor_text(t)}" for n, t in zip(names, ins, strict=True))
    body = "\n".join([*emitter.lines, return_text("func.return", results, outs)])
    text = (
        f"module {{\nfunc.func public @main({args}) -> ({', '.join(map(tensor_text, outs))}) "
        f"{{\n{body}\n}}\n" + "\n".join(emitter.functions) + "\n}"
    )
    return text, function.like
