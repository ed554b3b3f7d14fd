"""Taylor mode rules that users set for their primitives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from shardwise.experimental import jet as jets
from shardwise.experimental.jet import jet
from shardwise.extend.core import Primitive
from shardwise.interpreters import mlir

X, TERMS = (
    np.array([0.3, -0.7], np.float32),
    [
        np.array([1.0, 2.0], np.float32),
        np.array([0.5, 0.0], np.float32),
        np.array([-1.0, 3.0], np.float32),
    ],
)


def primitive(fun: Any, multiple: bool = False) -> Primitive:
    """A primitive without a derivative rule."""
    made = Primitive("mine")
    made.multiple_results = multiple
    made.def_impl(fun)
    made.def_abstract_eval(lambda x, *xs: [x, x] if multiple else x)
    mlir.register_lowering(made, mlir.lower_fun(fun, multiple))
    return made


@pytest.fixture(autouse=True)
def rules() -> Iterator[None]:
    before = dict(jets.jet_rules)
    yield
    jets.jet_rules.clear()
    jets.jet_rules.update(before)


def check(ours: Any, plain: Any) -> None:
    """Compares the primitive inside a function with the function that it represents."""
    for run in (lambda f: f, sw.jit):
        f = run(lambda x, *ts: jet(lambda y: ours(y * y) * y, (x,), (ts,)))
        g = lambda x, *ts: jet(lambda y: plain(y * y) * y, (x,), (ts,))  # noqa: E731
        for found, wanted in zip(
            sw.tree.leaves(f(X, *TERMS)), sw.tree.leaves(g(X, *TERMS)), strict=True
        ):
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-5)


def test_without_a_rule_there_is_no_series():
    mine = primitive(snp.tanh)
    with pytest.raises(NotImplementedError, match=r"^mine: this primitive has no JVP rule"):
        jet(mine.bind, (X,), (TERMS,))


def test_by_a_composition_and_by_a_derivative():
    mine = primitive(snp.tanh)
    jets.def_comp(mine, lambda x: 1 - 2 / (snp.exp(2 * x) + 1))
    check(mine.bind, snp.tanh)
    jets.def_deriv(mine, lambda x: 1 - snp.tanh(x) ** 2)
    check(mine.bind, snp.tanh)


def test_linear_and_constant_ones():
    mine = primitive(lambda x: x * 3)
    jets.deflinear(mine)
    check(mine.bind, lambda x: x * 3)
    pair = primitive(lambda x: [x, -x], True)
    jets.deflinear(pair)
    check(lambda x: pair.bind(x)[1], lambda x: -x)
    floor = primitive(snp.floor)
    jets.defzero(floor)
    check(floor.bind, lambda x: lax.stop_gradient(snp.floor(x)))
    none = primitive(lambda x: [x, -x], True)
    jets.defzero(none)
    check(lambda x: none.bind(x)[1], lambda x: lax.stop_gradient(-x))


def test_a_rule_for_an_op_of_the_library_counts():
    jets.jet_rules[lax.sin_p] = lambda primals, series: (
        lax.sin(primals[0]),
        [jets.zero_term] * len(series[0]),
    )
    y, terms = jet(lambda x: snp.sin(x) + x, (X,), (TERMS,))
    np.testing.assert_allclose(y, np.sin(X) + X, rtol=1e-6)
    for found, wanted in zip(terms, TERMS, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_power_series_and_factorials():
    y, terms = jets.jet2(snp.exp, (np.float32(0),), ([1.0, 0.0, 0.0],))
    np.testing.assert_allclose([y, *terms], [1, 1, 1 / 2, 1 / 6], rtol=1e-6)
    np.testing.assert_allclose(jets.fact(np.arange(5.0)), [1, 1, 2, 6, 24], rtol=1e-5)
