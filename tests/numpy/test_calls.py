"""Functions of numpy and their gradients are those of jax: `calls` lists the cases."""

from __future__ import annotations

import pytest

from tests.helpers.everyday import everyday
from tests.helpers.oracle import as_jax, cases, gradient_as_jax
from tests.numpy.calls import DERIVED, GROUPS, Group


def chosen(groups: dict[str, Group]) -> list[tuple[str, str]]:
    return [(name, case) for name, g in groups.items() for case in everyday(cases(g.text), g.count)]


@pytest.mark.filterwarnings("ignore:Explicitly requested dtype")  # jax's
@pytest.mark.parametrize(("group", "expression"), chosen(GROUPS))
def test_as_jax(group: str, expression: str):
    as_jax(expression, GROUPS[group].values, GROUPS[group].tolerance)


@pytest.mark.parametrize(("group", "expression"), chosen(DERIVED))
def test_gradients_as_jax(group: str, expression: str):
    gradient_as_jax(expression, DERIVED[group].values, DERIVED[group].by)
