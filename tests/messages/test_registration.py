"""Objects of user classes as array arguments: how to register them as pytrees."""

from __future__ import annotations

import dataclasses
import enum

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from tests.helpers.errors import message

X = np.ones(3, np.float32)
DATACLASS = " If it contains arrays, register its class: `shardwise.tree_util.register_dataclass`."
CLASS = (
    " If it contains arrays, register its class: `shardwise.tree_util.register_pytree_node_class`."
)


@dataclasses.dataclass
class Params:
    w: object

    def __repr__(self):
        return "Params"


class Model:
    def __repr__(self):
        return "Model"


class Mode(enum.Enum):
    TRAIN = 1


EXPECTED = "expected an array or a scalar, got"
STATIC = (
    " Arguments must be pytrees of arrays and scalars; mark others static with "
    "static_argnums or static_argnames."
)
CASES = {
    "jit": (lambda p: sw.jit(lambda p: p)(p), "jit of <lambda>: p: EXPECTED.HINT" + STATIC),
    "grad": (lambda p: sw.grad(lambda p: p)(p), "grad of <lambda>: p: EXPECTED.HINT"),
    "vmap": (lambda p: sw.vmap(lambda p: p)(p), "vmap of <lambda>: p: EXPECTED.HINT"),
    "jvp": (lambda p: sw.jvp(lambda p: p, (p,), (p,)), "jvp of <lambda>: p: EXPECTED.HINT"),
    "device_put": (sw.device_put, "device_put: x: EXPECTED.HINT"),
    "add": (lambda p: jnp.add(p, 1), "add: EXPECTED.HINT"),
    "result": (
        lambda p: sw.jit(lambda x: p)(X),
        "jit of <lambda>: the result: EXPECTED.HINT A "
        "jitted function must return a pytree of arrays and scalars.",
    ),
    "scan": (
        lambda p: lax.scan(lambda c, x: (c, x), p, X),
        "scan: init is GIVEN, which is not an array.HINT",
    ),
    "cond": (
        lambda p: lax.cond(True, lambda p: p, lambda p: p, p),
        "cond: operands[0] is GIVEN, which is not an array.HINT",
    ),
    "checkpoint": (
        lambda p: sw.checkpoint(lambda p: p)(p),
        "checkpoint of <lambda>: p is GIVEN, "
        "which is not an array. Name arguments that are constants in static_argnums or "
        "static_argnames.HINT",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("value", "hint"),
    [(Params(X), DATACLASS), (Model(), CLASS), (Mode.TRAIN, ""), ("text", ""), (len, "")],
)
def test_a_hint_at_registration(name, value, hint):
    call, text = CASES[name]
    given = f"{value!r} of type {type(value).__name__}"
    said = text.replace("EXPECTED", f"{EXPECTED} {given}").replace("GIVEN", given)
    assert message(TypeError, call, value) == said.replace("HINT", hint)
