"""XLA error `shared-reshards`: slices, pads and folds of one value, resharded to one sharding."""

from __future__ import annotations

import pytest

from tests.values.reshard_programs import program
from tests.values.structure import Case, Input, sweep

PROGRAMS = 5000
EACH = 100

COLUMNS = Input((16, 16), "-,xy", "float32", "counted")
ROWS = Input((8, 8), "x,-", "float32", "counted")


def at_rows(*texts: str) -> str:
    return "(" + ", ".join(f"at({text}, 'x,-')" for text in texts) + ",)"


def over_columns(program: str) -> Case:
    return Case(program, (COLUMNS,), (4, 2))


FOUND = [  # wrong, or failed to compile, when they were found
    over_columns("(at(a[:, :15].sum(1), 'x'), at(a[:, :14].sum(1), 'x'))"),
    over_columns("at(jnp.gradient(a, axis=1).sum(1), 'x')"),
    over_columns(at_rows("a[:, :15]", "a[:, :14]")),
    over_columns(
        at_rows(*[f"lax.pad(a[:, :{n}], np.float32(0), [(0, 0, 0), (1, 1, 0)])" for n in (15, 14)])
    ),
    over_columns(
        at_rows(
            *[
                f"jnp.concatenate([a[:, :{n}], np.full((16, 1), {n}, np.float32)], 1)"
                for n in (15, 14)
            ]
        )
    ),
]
OTHERS = [
    over_columns(at_rows("a", "a[:, :15]", "a[:, 15:]", "a[:, 1:15]")),
    over_columns(at_rows("jnp.roll(a, 1, 1)", "jnp.roll(a, 2, 1)", "a[:, :15]", "a[:, 15:]")),
    over_columns(at_rows(*[f"jnp.concatenate([a[:, :8], a[:, 8:{n}]], 1)" for n in (15, 14)])),
    over_columns(
        at_rows(
            *[
                f"lax.pad(a, np.float32(0), [(0, 0, 0), {r}])"
                for r in ((0, -1, 0), (0, -2, 0), (1, -1, 0), (-1, 1, 0))
            ]
        )
    ),
    over_columns(at_rows("a[:, :15][:, :14]", "a[:, :14]", "a[:, :15]")),
    over_columns(at_rows("a[:, :15] * 2", "lax.rev(a[:, :14], (1,))", "lax.cummax(a[:, :13], 1)")),
    over_columns("(at(a[:, :15].T, '-,x'), at(a[:, :14][None], '-,x,-'), at(a[:15, :14], 'x,-'))"),
    over_columns(at_rows(*[f"lax.dynamic_slice(a, (0, 0), (16, {n}))" for n in (15, 14)])),
    over_columns(
        at_rows(*[f"sw.vjp(lambda v: v[:, :{n}], a)[1](a[:, :{n}] * 2)[0]" for n in (15, 14)])
    ),
    over_columns(at_rows("lax.top_k(a, 15)[0]", "lax.top_k(a, 14)[0]")),
    over_columns(
        at_rows(
            *[
                f"lax.reduce_window(a, 0., lax.add, (1, 2), (1, 1), [(0, 0), (0, -{n})])"
                for n in (1, 2)
            ]
        )
    ),
    over_columns(
        f"lax.fori_loop(0, 2, lambda i, v: jnp.pad({at_rows('v[:, 1:]')}[0] - "
        f"{at_rows('v[:, :15]')}[0], [(0, 0), (0, 1)]) + v.at[:, :14].add("
        f"{at_rows('v[:, :14]')}[0]), a)"
    ),
    over_columns(
        f"lax.cond(a[0, 0] > 0, lambda v: {at_rows('v[:, :15]')}[0] + {at_rows('v[:, 1:]')}[0], "
        f"lambda v: {at_rows('v[:, :15]')}[0] - {at_rows('v[:, 1:]')}[0], a)"
    ),
    over_columns(
        "(lambda f, g: (f(a), g(a), at(a, 'x,-')))(sw.jit(lambda v: at(v[:, :15], 'x,-')),"
        " sw.jit(lambda v: at(v[:, :14], 'x,-')))"
    ),
    Case(
        "(lax.scan(lambda c, v: (c + v, at(v, 'x')), a[0] * 0, a, unroll=8), at(a, '-,x'))[0][1]",
        (ROWS,),
        (8,),
    ),
    Case(
        "(at(a[:, :5], 'x,-'), at(a[:, :4], 'x,-'), at(a[:5], '-,y'), at(a[:1], '-,y'))",
        (Input((6, 6), "y,x", "float32", "counted"),),
        (3, 2),
    ),
]


@pytest.mark.parametrize("cases", [FOUND, OTHERS], ids=["found", "others"])
def test_slices_of_one_value_at_one_sharding(cases):
    report = sweep(cases)
    assert not report.faults, report.text()


@pytest.mark.sweep
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(0, PROGRAMS, EACH))
def test_random_programs(first):
    report = sweep([program(number) for number in range(first, first + EACH)])
    assert not report.faults, report.text()
