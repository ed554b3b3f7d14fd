"""Tools that inspect programs also inspect `shard_map` bodies: checks, `debug_nans`, policies."""

import re

import jax
import jax.experimental.checkify as jax_checkify
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ad_checkpoint import checkpoint_name
from shardwise.experimental import checkify
from shardwise.sharding import AxisType, Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS

GRID = np.array(sw.devices()).reshape(4, 2)
MESH = Mesh(GRID, ("x", "y"))
X = np.arange(16, dtype=np.float32).reshape(8, 2)
BOTH = pytest.mark.parametrize("checked", [True, False])


PARTS = P("x", "y")


def over(f, checked=True, ins=PARTS, outs=PARTS, **how):
    return sw.shard_map(f, mesh=MESH, in_specs=ins, out_specs=outs, check_vma=checked, **how)


# -- checkify --


def at_most(limit):
    def f(x):
        checkify.check(jnp.all(x < limit), "{x} is not below " + str(limit), x=x.max())
        return x + 1

    return f


def first(error):
    """The message of the first device that failed."""
    text = error.get()
    return text and text.splitlines()[0].partition(": ")[2]


def in_scan(x):
    def step(c, _):
        checkify.check(jnp.all(c < 16), "{c} in a scan", c=c.max())
        return c + 1, None

    return lax.scan(step, x, None, length=3)[0]


def in_while(x):
    def step(c):
        checkify.check(jnp.all(c < 15), "{c} in a while", c=c.max())
        return c + 1

    return lax.while_loop(lambda c: jnp.all(c < 18), step, x)


def in_cond(x):
    return lax.cond(x[0, 0] > 7, at_most(11), lambda x: x, x)


@BOTH
@pytest.mark.parametrize("wrap", [lambda f: f, sw.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("f", "expected"),
    everyday(
        [
            (at_most(3), "3.0 is not below 3"),  # of the second device, the first that fails
            (at_most(13), "14.0 is not below 13"),
            (at_most(16), None),
            (in_scan, "16.0 in a scan"),
            (in_while, "15.0 in a while"),
            (in_cond, "11.0 is not below 11"),
            (lambda x: sw.jit(at_most(13))(x), "14.0 is not below 13"),
            (lambda x: at_most(60)(lax.psum(x, ("x", "y"))), "68.0 is not below 60"),
        ],
        2,
    ),
)
def test_checks(f, expected, wrap, checked):
    error, y = wrap(checkify.checkify(over(f, checked)))(X)
    found = first(error)
    assert found == (expected and f"{expected} (`check` failed)")
    plain = X + 1 if f.__qualname__.startswith("at_most") else None
    if plain is not None:
        close(y, plain, 0)


@sw.custom_jvp
def own_jvp(x):
    return at_most(13)(x)


own_jvp.defjvp(lambda primals, tangents: (own_jvp(*primals), 2 * tangents[0]))


@sw.custom_vjp
def own_vjp(x):
    return at_most(13)(x)


own_vjp.defvjp(lambda x: (own_vjp(x), None), lambda _, ct: (ct,))


def sums_in_scan(x):
    return lax.scan(lambda c, _: (at_most(100)(lax.psum(c, "x")), None), x, None, length=2)[0]


def sums_in_while(x):
    return lax.while_loop(
        lambda c: lax.pmax(c.max(), ("x", "y")) < 200,
        lambda c: at_most(100)(c + lax.pmean(c, "x")),
        x,
    )


def by_place(x):
    """Each device takes its own branch: the first failure is on the third device."""
    return lax.switch(lax.axis_index("x"), [lambda x: x, at_most(4), at_most(99), at_most(9)], x)


@BOTH
@pytest.mark.parametrize(
    ("f", "expected"),
    everyday([
        (own_jvp, "14.0 is not below 13"),
        (own_vjp, "14.0 is not below 13"),
        (sw.checkpoint(at_most(13)), "14.0 is not below 13"),
        (sw.vmap(at_most(13)), "14.0 is not below 13"),
        (sw.grad(lambda x: at_most(13)(x).sum()), "14.0 is not below 13"),
        (sums_in_scan, "132.0 is not below 100"),
        (sums_in_while, None),
        (by_place, "6.0 is not below 4"),
        (lambda x: lax.scan(lambda c, r: (c + r.sum(), at_most(13)(r)), 0.0, x)[1],
         "14.0 is not below 13"),
    ], 4),
)  # fmt: skip
def test_checks_in_other_functions(f, expected, checked):
    found = first(sw.jit(checkify.checkify(over(f, checked)))(X)[0])
    if f is sums_in_while:  # in NumPy, all devices together
        c = X.reshape(4, 2, 2)
        while c.max() < 200:
            c = c + c.mean(0)
            if c.max() >= 100:
                failed = [v for v in c.max(1).ravel() if v >= 100]
                expected = f"{failed[0]} is not below 100"
                break
            c = c + 1
    assert found == f"{expected} (`check` failed)"


@BOTH
def test_all_devices_that_failed_are_listed_as_in_jax(checked):
    def run(lib, check, checks, mesh, spec):
        def f(x):
            check(lib.np.all(x < 3), "{x}", x=x.max())
            return x

        mapped = lib.root.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=checked)
        return checks(mapped)(X)[0].get()

    theirs = jax.sharding.Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    found = run(OURS, checkify.check, checkify.checkify, MESH, P("x", "y"))
    wanted = run(
        JAX, jax_checkify.check, jax_checkify.checkify, theirs, jax.sharding.PartitionSpec("x", "y")
    )
    assert found == wanted and wanted.startswith("at mapped index 1: 3.0 (")


@BOTH
@pytest.mark.parametrize(
    ("errors", "f", "expected"),
    [
        (checkify.float_checks, lambda x: jnp.log(x - 3), "nan generated by primitive: log."),
        (checkify.div_checks, lambda x: 1 / (x - 14), "division by zero"),
        (checkify.index_checks, lambda x: x[x.astype(int)[0, 0], 0] + x,
         "out-of-bounds indexing for array of shape (2, 1): index 4 is out of bounds for axis 0 "
         "with size 2. "),
        (checkify.all_checks, lambda x: x + lax.axis_index("x"), None),
    ],
)  # fmt: skip
def test_automatic_checks(errors, f, expected, checked):
    assert first(checkify.checkify(over(f, checked), errors=errors)(X)[0]) == expected


def test_checks_where_some_axes_are_manual():
    f = over(at_most(10), ins=P("x"), outs=P("x"), axis_names={"x"})
    assert first(sw.jit(checkify.checkify(f))(X)[0]) == "11.0 is not below 10 (`check` failed)"


def test_checks_over_explicit_axes():
    mesh = Mesh(GRID, ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with sw.set_mesh(mesh):
        f = sw.shard_map(at_most(10), out_specs=P("x", "y"))
        x = sw.device_put(X, sw.sharding.NamedSharding(mesh, P("x", "y")))
        error, y = sw.jit(checkify.checkify(f))(x)
    assert first(error) == "10.0 is not below 10 (`check` failed)"
    close(y, X + 1, 0)


def test_checks_in_a_map_in_a_map():
    def f(x):
        inner = sw.shard_map(
            at_most(13), in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"}
        )
        return inner(x)

    whole = over(f, ins=P("x"), outs=P("x"), axis_names={"x"})
    assert first(sw.jit(checkify.checkify(whole))(X)[0]) == "14.0 is not below 13 (`check` failed)"


def test_checks_of_pmap_and_under_transforms():
    mapped = sw.pmap(at_most(13), axis_name="i")
    assert first(checkify.checkify(mapped)(X)[0]) == "13.0 is not below 13 (`check` failed)"
    rows = sw.vmap(over(at_most(29)))
    assert first(checkify.checkify(rows)(np.stack([X, 2 * X]))[0]) == (
        "30.0 is not below 29 (`check` failed)"
    )
    total = sw.grad(lambda x: jnp.sum(over(at_most(13))(x) ** 2))
    error, grads = checkify.checkify(total)(X)
    assert first(error) == "14.0 is not below 13 (`check` failed)"
    close(grads, 2 * (X + 1), 1e-6)


# -- debug_nans --


@pytest.fixture
def nans():
    sw.config.update("debug_nans", True)
    yield
    sw.config.update("debug_nans", False)


TABLE = np.array([[3], [1]], np.float32)


def scan_of_roots(x):
    return lax.scan(lambda c, _: (jnp.sqrt(c - 5), None), x, None, length=2)[0]


def difference_of_sums(x):
    return lax.psum(jnp.where(x > 8, jnp.inf, -jnp.inf), "x")


@pytest.mark.usefixtures("nans")
@BOTH
@pytest.mark.parametrize("wrap", [lambda f: f, sw.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("f", "op", "operands", "results"),
    everyday([
        (lambda x: jnp.log(lax.pmax(x, "x") - lax.psum(x, "x")) * 2, "log", "f32[2,1]", "f32[2,1]"),
        (lambda x: sw.jit(lambda x: jnp.sqrt(x - lax.psum(x, "y")))(x), "sqrt", "f32[2,1]",
         "f32[2,1]"),
        (scan_of_roots, "sqrt", "f32[2,1]", "f32[2,1]"),
        (lambda x: lax.cond(x[0, 0] > 7, lambda x: jnp.log(x - 15), lambda x: x, x), "log",
         "f32[2,1]", "f32[2,1]"),
        (lambda x: sw.jit(lambda x: jnp.sqrt(x - TABLE))(x), "sqrt", "f32[2,1]", "f32[2,1]"),
        (difference_of_sums, "psum", "~f32[2,1]", "~f32[2,1]"),
    ], 4),
)  # fmt: skip
def test_the_op_that_gave_a_nan_is_found(f, op, operands, results, wrap, checked):
    outs = P(None, "y") if f is difference_of_sums else P("x", "y")
    text = message(FloatingPointError, wrap(over(f, checked, outs=outs)), X)
    names = re.sub(r"\{V:[xy,]+\}", "", text)
    assert ("{V:" in text) == checked
    start = f"invalid value (nan) encountered in {op}: operands {operands}, result {results}, at "
    assert names.startswith(start + __file__)
    assert names.endswith("The flag debug_nans enables this check.")


@pytest.mark.usefixtures("nans")
def test_no_nan_no_error():
    close(over(scan_of_roots)(X + 40), np.sqrt(np.sqrt(X + 35) - 5), 1e-5)
    assert message(FloatingPointError, sw.pmap(lambda x: jnp.log(x - 3)), X).startswith(
        "invalid value (nan) encountered in log: operands f32[2], result f32[2], at "
    )


@pytest.mark.usefixtures("nans")
def test_a_nan_where_some_axes_are_manual():
    f = over(lambda x: jnp.log(x - 3), ins=P("x"), outs=P("x"), axis_names={"x"})
    assert message(FloatingPointError, sw.jit(f), X).startswith(
        "invalid value (nan) encountered in log: operands f32[2,2]{V:x}, result f32[2,2]{V:x}, at "
    )


# -- policies --

W = np.linspace(-1, 1, 4, dtype=np.float32).reshape(2, 2)
POLICIES = {"dots_saveable": 1, "everything_saveable": None, "nothing_saveable": 0, "names": 1}


def block(x, w):
    h = checkpoint_name(jnp.sin(x), "h")
    h = jnp.cos(h @ w)
    t = lax.psum(h.sum(), "x")
    return lax.pmean((jnp.sin(h) * t).sum(), "x")


@BOTH
@pytest.mark.parametrize("around", [True, False])
@pytest.mark.parametrize("name", everyday(POLICIES, 2))
def test_policies(name, around, checked):
    """A policy saves the same values inside the map or around it, and changes no result."""
    known = sw.checkpoint_policies
    policy = known.save_only_these_names("h") if name == "names" else getattr(known, name)
    specs = {"ins": (P("x"), P()), "outs": P()}
    plain = over(block, checked, **specs)
    saving = (
        sw.checkpoint(plain, policy=policy)
        if around
        else over(sw.checkpoint(block, policy=policy), checked, **specs)
    )
    run = sw.jit(sw.grad(saving, (0, 1)))
    close(run(X / 10, W), sw.grad(plain, (0, 1))(X / 10, W), 1e-6)
    if around and POLICIES[name] is not None:
        saved = [
            t
            for t, where in sw.ad_checkpoint.saved_residuals(saving, X / 10, W)
            if "argument" not in where
        ]
        parts = (4,) if checked else (8,)
        assert [t.shape for t in saved] == [(*parts, 2, 2)] * POLICIES[name]
