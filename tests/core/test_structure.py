"""Which programs are interchangeable."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.program import Program
from shardwise._src.core.structure import shared

X, PLACES = np.ones(3, np.float32), np.array([0, 7])


def reading(fill: Any) -> Program:
    """A program with `fill` as a parameter."""

    def f(x: Any, i: Any) -> Any:
        return x.at[i].get(mode="fill", fill_value=fill)

    return sw.jit(f).trace(X, PLACES).program


def adding(number: Any) -> Program:
    """A program that contains a number as a literal."""
    return sw.jit(lambda x: jnp.add(x, number)).trace(X).program


@pytest.mark.parametrize("make", [reading, adding])
@pytest.mark.parametrize("value", [1.0, 0.0, -0.0, "nan", "-inf"])
def test_equal_programs_are_one(make, value):
    kept = shared(make(float(value)))
    assert shared(make(float(value))) is kept  # also if the NaN is another object


def test_what_is_equal_need_not_be_the_same():
    numbers = [0.0, -0.0, 0, False, 1, 1.0, True]
    assert len({id(p) for p in [shared(reading(v)) for v in numbers]}) == len(numbers)
    signs = [shared(adding(v)) for v in (0.0, -0.0)]
    assert signs[0] is not signs[1]
