"""Functions with custom rules in other operations: dtypes of cotangents, and rules that return
zeros in loops, against finite differences."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import custom_jvp, custom_vjp, grad, jit, lax
from shardwise.custom_derivatives import SymbolicZero


@pytest.mark.parametrize(
    ("before", "dtype"),
    {
        "reshape": (lambda x: x.reshape(2, 2), "float16"),
        "concatenate": (lambda x: jnp.concatenate([x, 1 + x]), "float16"),
        "index": (lambda x: x[np.array([0, 2])], "float16"),
        "neg": (lambda x: -x, "float16"),
        "split": (lambda x: lax.split(x, (2, 2))[0], "float32"),
        "mul": (lambda x: x * 2, "float32"),
        "jit": (lambda x: jit(lambda x: x.reshape(2, 2))(x), "float32"),
        "scan": (lambda x: lax.scan(lambda c, _: (-c, None), x, length=2)[0], "float32"),
        "astype": (lambda x: x.astype("float16"), "float32"),
    }.values(),
)
def test_dtypes_of_gradients_before_rules_with_other_dtypes(before, dtype):
    f = custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct.astype("float16"),))
    x = np.arange(1, 5, dtype=np.float32)
    for run in (grad, lambda g: jit(grad(g))):
        found = run(lambda x: f(before(x)).astype("float32").sum())(x)
        assert found.dtype == dtype
        expected = grad(lambda x: before(x).astype("float32").sum())(x)
        np.testing.assert_array_equal(found, expected)


# -- rules that return zeros, in loops --

LENGTH = 3
RNG = np.random.RandomState(0)
CONSTANT, CARRY, ROWS = [
    RNG.uniform(0.55, 0.95, shape).astype(np.float32) for shape in ((2,), (2,), (LENGTH, 2))
]
FLAT = [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2), (0, 1, 2), (0,)]


def stepwise(kind, flat, none):
    """sin(k) · sin(c) + sin(x), with floor in place of the sine of the arguments in `flat`.

    kind: of its rule, which returns None for these, or zeros; a `custom_jvp` rule for all of them a
      symbolic zero.
    """

    def parts(args):
        return [jnp.floor(v * 2) if i in flat else jnp.sin(v) for i, v in enumerate(args)]

    def factors(args):
        """The derivatives with respect to the arguments."""
        k, c, _ = parts(args)
        own = [jnp.cos(v) for v in args]
        return own[0] * c, own[1] * k, own[2]

    def run(*args):
        k, c, x = parts(args)
        return k * c + x

    def zero(v):
        return None if none else jnp.zeros_like(v)

    def backward(args, ct):
        rows = enumerate(zip(args, factors(args), strict=True))
        return tuple(zero(v) if i in flat else ct * d for i, (v, d) in rows)

    def forward_mode(args, tangents):
        rows = [t * d for t, d in zip(tangents, factors(args), strict=True)]
        moved = [t for i, t in enumerate(rows) if i not in flat]
        symbolic = SymbolicZero.from_primal_value(args[0])
        return run(*args), sum(moved) if moved else symbolic

    f = kind(run)
    if kind is custom_vjp:
        f.defvjp(lambda *args: (run(*args), args), backward)
    else:
        f.defjvp(forward_mode)
    return f


def looped(f, form):
    """A loop with the function in its body. form: which of its results are used."""

    def body(k):
        def step(c, x):
            new = f(k, c, x)
            return new, (new * 2, x.sum())

        return step

    def run(k, c, xs):
        c, (ys, sums) = lax.scan(body(k), c, xs)
        return {"carry": c, "ys": ys, "both": jnp.sin(c).sum() + ys, "neither": sums * k[0]}[form]

    return run


def differences(f, args, tangents, eps=1e-2):
    """The derivative along tangents."""
    ends = [f(*[a + s * eps * t for a, t in zip(args, tangents, strict=True)]) for s in (1, -1)]
    return (np.asarray(ends[0]) - np.asarray(ends[1])) / (2 * eps)


FORMS = {"carry": sw.checkpoint, "ys": jit, "both": lambda f: f, "neither": jit}


@pytest.mark.parametrize(("form", "around"), FORMS.items())
@pytest.mark.parametrize(("flat", "none"), [(flat, i % 2 == 0) for i, flat in enumerate(FLAT)])
def test_rules_that_return_zeros_in_loops(flat, none, form, around):
    args = CONSTANT, CARRY, ROWS
    ts = [RNG.uniform(0.5, 1, a.shape).astype(np.float32) for a in args]
    for kind in (custom_vjp, custom_jvp):
        f = around(looped(stepwise(kind, flat, none), form))
        out, back = sw.vjp(f, *args)
        expected = differences(f, args, ts)
        ct = RNG.uniform(0.5, 1, out.shape).astype(np.float32)
        found = sum(np.vdot(c, t) for c, t in zip(back(ct), ts, strict=True))
        np.testing.assert_allclose(found, np.vdot(ct, expected), rtol=2e-2, atol=2e-3)
    moved = sw.jvp(f, args, tuple(ts))[1]
    np.testing.assert_allclose(moved, expected, rtol=2e-2, atol=2e-3)
    linear = sw.linearize(f, *args)[1]
    np.testing.assert_allclose(linear(*ts), moved, rtol=1e-5, atol=1e-6)
