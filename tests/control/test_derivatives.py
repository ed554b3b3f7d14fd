"""Each control-flow form: derivatives to second order against finite differences, and `vmap`
against a loop; real and complex.
"""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.everyday import everyday

REAL = np.float32([0.4, -0.7, 0.9])
COMPLEX = np.complex64([0.4 + 0.3j, -0.7 + 0.1j, 0.9 - 0.5j])


def step(c, a):
    c = c * swnp.sin(a) + 0.5 * a
    return c, c * a


def newton(f, x):
    return lax.fori_loop(0, 12, lambda _, x: x - f(x) / (3 * x * x + 1), x)


def cube(x):
    """The root of r³ + r = a, whose left side has a positive derivative everywhere."""

    def one(a):
        slope = lambda g, y: y / g(swnp.ones_like(y))  # noqa: E731
        return lax.custom_root(lambda r: r * r * r + r - a, a, newton, slope)

    return swnp.stack([one(x[0]), one(x[1] + 1)])


def halves(x):
    """Solves a diagonal system, with a matrix that depends on x too."""

    def solve(matvec, b):
        return b / matvec(swnp.ones_like(b))

    return lax.custom_linear_solve(lambda v: (2 + x * x) * v, swnp.cos(x), solve, symmetric=True)


def triangular(x):
    """A non-symmetric system: forward and backward substitution."""

    def forward(_, b):
        return swnp.stack([b[0] / 2, (b[1] - x[0] * b[0] / 2) / 2])

    def backward(_, b):
        return swnp.stack([(b[0] - x[0] * b[1] / 2) / 2, b[1] / 2])

    def matvec(v):
        return swnp.stack([2 * v[0], x[0] * v[0] + 2 * v[1]])

    return lax.custom_linear_solve(matvec, x[1:] * x[:2], forward, backward)


def affine(a, b):
    return a[0] * b[0], a[1] * b[0] + b[1]


def some(x):
    return swnp.real(x[0]) > 0


LOOPS = {
    "scan": lambda x: lax.scan(step, x[0], x),
    "scan of the state": lambda x: lax.scan(lambda c, _: step(c, x), x * x, None, length=2),
    "scan in reverse": lambda x: lax.scan(step, x[0], x, reverse=True),
    "scan unrolled": lambda x: lax.scan(step, x[0], x, unroll=True),
    "scan of one": lambda x: lax.scan(step, x[0], x[:1]),
    "scan of none": lambda x: lax.scan(step, x[0] * x[1], x[:0]),
    "scan with numbers": lambda x: lax.scan(
        lambda s, a: ((s[0] * x[s[1]], s[1] + 1, ~s[2]), swnp.where(s[2], a, a * a)),
        (x[0], 0, True),
        x,
    )[1],
    "scan of scans": lambda x: lax.scan(lambda c, a: lax.scan(step, c * a, x), x[0], x),
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, c: step(c, x[i])[0], x[0]),
}
BRANCHES = {
    "cond": lambda x: lax.cond(some(x), lambda x: swnp.sin(x) * x[0], lambda x: x * x * x, x),
    "cond, the other": lambda x: lax.cond(some(-x), lambda x: swnp.sin(x), lambda x: x * x[1], x),
    "switch": lambda x: lax.switch(
        some(x).astype("int32") + 1, [lambda x: x, lambda x: x * x, lambda x: swnp.exp(x) * x], x
    ),
    "select": lambda x: lax.select(swnp.real(x) > 0, x * x, swnp.sin(x)),
    "select_n": lambda x: lax.select_n(np.int32([0, 2, 1]), x * x, swnp.sin(x), x),
}
MAPS = {
    "map": lambda x: lax.map(lambda a: swnp.sin(a) * x[0], x),
    "map in batches": lambda x: lax.map(lambda a: swnp.sin(a) * x[0], x, batch_size=2),
    "associative_scan": lambda x: lax.associative_scan(affine, (swnp.sin(x), x * x)),
    "associative_scan in reverse": lambda x: lax.associative_scan(
        affine, (swnp.sin(x), x * x), reverse=True
    ),
}
IMPLICIT = {
    "custom_root": cube,
    "custom_linear_solve": halves,
    "custom_linear_solve, transposed": triangular,
}
FORWARD_ONLY = {
    "while": lambda x: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, step(s[1], x)[0]), (0, x)
    )[1]
}
# Each group is one program: compilation takes most of the time of these tests.
GROUPS = {
    "loops": LOOPS,
    "branches": BRANCHES,
    "maps": MAPS,
    "implicit": IMPLICIT,
    "forward": FORWARD_ONLY,
}
BOTH = pytest.mark.parametrize("x", [REAL, COMPLEX], ids=["real", "complex"])


# Their rules are the same as those of other forms here.
VARIANTS = {
    "scan unrolled",
    "scan of one",
    "scan of none",
    "scan in reverse",
    "fori",
    "cond, the other",
    "select",
    "map in batches",
    "associative_scan in reverse",
}


def together(group, without=()):
    forms = {name: form for name, form in GROUPS[group].items() if name not in without}
    return sw.jit(lambda x: {name: form(x) for name, form in forms.items()})


# The tests of each form contain the real cases that are absent here.
@pytest.mark.parametrize("group, x", everyday([*[(g, COMPLEX) for g in GROUPS], ("maps", REAL)], 1))
def test_to_second_order_against_finite_differences(group, x):
    modes = ["fwd"] if group == "forward" else ["fwd", "rev"]
    check_grads(together(group, VARIANTS), (x,), order=2, modes=modes, atol=0.02, rtol=0.02)


@BOTH
@pytest.mark.parametrize("group", everyday(GROUPS, 1))
def test_vmap_against_a_loop(group, x):
    """Also if predicates differ from row to row."""
    rows = np.stack([x, -x, x[::-1] * x.dtype.type(0.5)])
    f = together(group)
    each = [f(row) for row in rows]
    wanted = sw.tree.map(lambda *ys: np.stack([np.asarray(y) for y in ys]), *each)
    close(sw.jit(sw.vmap(f))(rows), wanted)
    close(sw.jit(sw.vmap(f, 1, 0))(np.ascontiguousarray(rows.T)), wanted)
