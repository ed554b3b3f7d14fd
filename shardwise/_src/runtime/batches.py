"""Instructions that XLA's partitioner gathers for, though their leading dimensions are batches.

Such an instruction is written as a call of `TARGET` with its text; the partitioner asks here what
each device is to do, and gets the same instruction on the device's part. A rule for Shardy beside
the call says which dimensions go together and which are whole.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from jaxlib import xla_client as xc

TARGET = "shardwise_batches"


def config(text: str, ins: list[str], outs: list[str]) -> str:
    """What `TARGET` is called with: the instruction with operands %0, %1, … and without its types.

    ins, outs: the types of elements.
    """
    return json.dumps({"text": text, "ins": ins, "outs": outs})


@functools.lru_cache(1)
def register() -> None:
    """Makes the call known to XLA's partitioner, for CPU."""
    xc.register_custom_call_partitioner(TARGET, _of_users, _part, _of_operands, True)


def _of_users(sharding: Any, shape: Any, config: bytes) -> Any:
    return sharding


def _of_operands(arg_shapes: Any, shardings: Any, shape: Any, config: bytes) -> Any:
    return shardings[0]


def _part(
    arg_shapes: Any, arg_shardings: Any, result_shape: Any, result_sharding: Any, config: bytes
) -> tuple[bytes, Any, Any]:
    """The program of one device, and how operands and results are split."""
    asked = json.loads(config)
    several = result_shape.is_tuple()
    shapes = result_shape.tuple_shapes() if several else [result_shape]
    shardings = result_sharding.tuple_elements() if several else [result_sharding]
    ins = _types(arg_shapes, arg_shardings, asked["ins"])
    outs = _types(shapes, shardings, asked["outs"])
    given = ", ".join(f"%{i}: {t}" for i, t in enumerate(ins))
    types = f"({', '.join(ins)}) -> ({', '.join(outs)})"
    names = [f"%r#{i}" for i in range(len(outs))] if several else ["%r"]
    count = f":{len(outs)}" if several else ""
    text = (
        f"module {{\nfunc.func public @main({given}) -> ({', '.join(outs)}) {{\n"
        f"%r{count} = {asked['text']} : {types}\n"
        f"return {', '.join(names)} : {', '.join(outs)}\n}}\n}}"
    )
    return text.encode(), arg_shardings, result_sharding


def _types(shapes: Any, shardings: Any, elements: list[str]) -> list[str]:
    """The types of the parts, as MLIR writes them."""
    found: list[str] = []
    for shape, sharding, element in zip(shapes, shardings, elements, strict=True):
        dims = sharding.tile(shape).dimensions()
        found.append(f"tensor<{''.join(f'{n}x' for n in dims)}{element}>")
    return found
