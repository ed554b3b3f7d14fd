"""Warnings point at the user's line, and one function issues them all."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp

X = np.ones((3, 4), np.float32)


def narrow(x):
    return x.astype("float64")


def ranks(x):
    with sw.numpy_rank_promotion("warn"):
        return jnp.asarray(X) + x


WARN = {
    "astype": (lambda: jnp.ones(3).astype("float64"), UserWarning),
    "astype under jit": (lambda: sw.jit(narrow)(X), UserWarning),
    "zeros": (lambda: jnp.zeros(3, "int64"), UserWarning),
    "sum": (lambda: jnp.sum(X, dtype="float64"), UserWarning),
    "x.mean": (lambda: jnp.asarray(X).mean(dtype="float64"), UserWarning),
    "array": (lambda: jnp.array([1.0], dtype="float64"), UserWarning),
    "normal": (lambda: sw.random.normal(sw.random.key(0), (2,), "float64"), UserWarning),
    "one_hot": (lambda: sw.nn.one_hot(np.arange(3), 3, dtype="float64"), UserWarning),
    "full": (lambda: sw.lax.full((2,), 1, "int64"), UserWarning),
    "iota": (lambda: sw.lax.iota("int64", 3), UserWarning),
    "ranks": (lambda: ranks(np.ones(4, np.float32)), UserWarning),
    "at": (lambda: jnp.arange(3).at[0].set(1.5), FutureWarning),
    "grad": (lambda: sw.grad(lambda x: narrow(x).sum())(X), UserWarning),
    "donation": (lambda: sw.jit(lambda x: x.sum(), donate_argnums=0)(jnp.ones(4)), UserWarning),
}


@pytest.mark.parametrize("name", WARN)
def test_a_warning_points_at_the_line_of_the_call(name):
    call, category = WARN[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert [w.category for w in caught] == [category] * len(caught)
    assert {w.filename for w in caught} == {__file__}


def test_the_line_is_that_of_the_call():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        line = sys._getframe().f_lineno + 1
        jnp.ones(3).astype("float64")
    assert [w.lineno for w in caught] == [line]


def test_the_default_filter_shows_a_line_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            jnp.zeros(3, "float64")
    assert len(caught) == 1


def test_all_warnings_are_made_in_one_place():
    package = Path(sw.__file__).parent
    places = [
        str(path.relative_to(package))
        for path in sorted(package.rglob("*.py"))
        if re.search(r"warnings\.warn(_explicit)?\(", path.read_text())
    ]
    assert places == ["_src/base/warn.py"]
