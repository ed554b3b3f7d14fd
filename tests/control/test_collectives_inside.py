"""Collectives over a mapped axis inside control flow, calls and custom rules, against jax."""

import jax
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise.testing import check_grads
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS

X = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)

# Each: (lib, x) → array, for one element x of the mapped axis.


def in_jit(lib, x):
    inner = lib.root.jit(lambda x: x * lib.lax.psum(lib.np.sin(x), "i"))
    return lib.root.jit(lambda x: inner(x) + lib.lax.axis_index("i"))(x)


def in_cond(lib, x):
    """With a predicate that is the same for all indices."""
    where = lib.lax.psum(x[0], "i") > -100
    return lib.lax.cond(where, lambda x: x * lib.lax.psum(x, "i"), lambda x: 2 * x, x)


def in_cond_by_row(lib, x):
    """With a predicate that differs: all indices take part in the collectives of both branches."""
    return lib.lax.cond(
        lib.lax.axis_index("i") < 2,
        lambda x: x * lib.lax.psum(x, "i"),
        lambda x: lib.lax.pmean(x * x, "i"),
        x,
    )


def in_switch(lib, x):
    branches = [
        lambda x: lib.lax.psum(x, "i"),
        lambda x: x * x,
        lambda x: x * lib.lax.all_gather(x, "i")[1],
    ]
    return lib.lax.switch(lib.lax.axis_index("i"), branches, x)


def in_cond_without_operands(lib, x):
    """No input is mapped, but the results are."""
    found = lib.lax.cond(
        True, lambda: lib.lax.axis_index("i") * 1.0, lambda: lib.lax.psum(1.0, "i") * 1.0
    )
    return x * found


def in_scan(lib, x):
    def step(carry, row):
        carry = carry * 0.5 + lib.lax.psum(row * x, "i")
        return carry, lib.lax.ppermute(carry * x, "i", [(0, 1), (1, 2), (2, 3), (3, 0)])

    carry, rows = lib.lax.scan(step, lib.np.ones(3), lib.np.stack([x, x * x]))
    return carry + lib.np.sum(rows, 0)


def in_scan_of_indices(lib, x):
    """A carry that is mapped from the first step on, although no input is."""
    carry, _ = lib.lax.scan(
        lambda c, _: (c + lib.lax.axis_index("i"), None), lib.np.int32(0), None, length=3
    )
    return x * carry


def in_fori(lib, x):
    return lib.lax.fori_loop(0, 3, lambda i, c: c + 0.1 * lib.lax.psum(c * x, "i"), x)


def in_map(lib, x):
    return lib.lax.map(lambda v: v * lib.lax.pmean(v, "i"), x)


def in_associative_scan(lib, x):
    return lib.lax.associative_scan(lambda a, b: a + lib.lax.pmean(b, "i"), x)


def in_checkpoint(lib, x):
    @lib.root.checkpoint
    def f(x):
        return lib.np.sin(x) * lib.lax.psum(lib.np.cos(x), "i")

    return f(f(x))


def in_checkpoint_of_scan(lib, x):
    step = lib.root.checkpoint(lambda c, _: (lib.np.sin(lib.lax.psum(c * x, "i")), c))
    carry, rows = lib.lax.scan(step, x, None, length=2)
    return carry + rows[1]


def in_custom_jvp(lib, x):
    @lib.root.custom_jvp
    def f(x):
        return lib.np.sin(x) * lib.lax.psum(x, "i")

    @f.defjvp
    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        return f(x), 3 * t * lib.lax.psum(lib.np.cos(x), "i")

    return f(x)


def in_custom_vjp(lib, x):
    @lib.root.custom_vjp
    def f(x):
        return x * lib.lax.psum(x, "i")

    f.defvjp(
        lambda x: (f(x), lib.lax.pmean(x * x, "i")),
        lambda mean, ct: (lib.lax.psum(ct, "i") * mean,),
    )
    return f(x)


def in_custom_rule_of_jit(lib, x):
    return lib.root.jit(lambda x: in_custom_jvp(lib, x) * in_custom_vjp(lib, x))(x)


def in_linear_solve(lib, x):
    """A system over all indices, solved by conjugate gradients whose products are sums over them."""

    def dot(a, b):
        return lib.lax.psum(lib.np.sum(a * b), "i")

    def matvec(v):
        return v * (2 + x * x) + 0.1 * lib.lax.psum(v, "i")

    def solve(matvec, b):
        def step(_, state):
            v, r, p, rr = state
            ap = matvec(p)
            alpha = rr / (dot(p, ap) + 1e-20)
            v, r = v + alpha * p, r - alpha * ap
            new = dot(r, r)
            return v, r, r + new / (rr + 1e-20) * p, new

        start = (lib.np.zeros(3), b, b, dot(b, b))
        return lib.lax.fori_loop(0, 12, step, start)[0]

    return lib.lax.custom_linear_solve(matvec, lib.np.cos(x), solve, symmetric=True)


def in_root(lib, x):
    """The root of a function with a mean over the indices in it."""

    def f(y):
        return y * 3 + lib.np.sin(y) - lib.lax.pmean(x * x, "i")

    def solve(f, guess):
        return lib.lax.fori_loop(0, 20, lambda _, y: y - f(y) / 3.5, guess)

    return x * lib.lax.custom_root(f, lib.np.zeros(3), solve, lambda g, y: y / g(lib.np.ones(3)))


def in_while_by_row(lib, x):
    """Rows that have finished take part with their final values."""
    return lib.lax.while_loop(
        lambda c: lib.np.sum(c * c) < 40, lambda c: c * 1.5 + 0.1 * lib.lax.pmean(c, "i"), x + 1
    )


def in_while(lib, x):
    """All rows continue while any row does."""

    def test(c):
        return lib.lax.pmax(lib.np.max(lib.np.abs(c)), "i") < 50

    return lib.lax.while_loop(test, lambda c: c * 2 + lib.lax.psum(c, "i") * 0.1, x)


REVERSE = [
    in_jit,
    in_cond,
    in_cond_without_operands,
    in_scan,
    in_scan_of_indices,
    in_fori,
    in_map,
    in_associative_scan,
    in_checkpoint,
    in_checkpoint_of_scan,
    in_custom_jvp,
    in_custom_vjp,
    in_custom_rule_of_jit,
    in_linear_solve,
    in_root,
]
FORWARD = [in_while_by_row, in_while]
BY_ROW = [in_cond_by_row, in_switch]
NO_FORWARD = (in_custom_vjp, in_custom_rule_of_jit)


def transformed(lib, f):
    """Values and derivatives: per index inside the map, and of the total through the map."""
    root, np_ = lib.root, lib.np
    mapped = lambda g: root.vmap(g, axis_name="i")  # noqa: E731
    one = lambda x: f(lib, x)  # noqa: E731
    loss = lambda x: np_.sum(np_.sin(one(x)))  # noqa: E731
    along = lambda g: lambda x: root.jvp(g, (x,), (np_.cos(x),))  # noqa: E731
    found = {"value": mapped(one)}
    if f not in NO_FORWARD:
        found |= {"jvp": mapped(along(one)), "jvp through": along(mapped(one))}
    if f in REVERSE:
        total = lambda xs: np_.sum(mapped(loss)(xs))  # noqa: E731
        found |= {
            "grad": mapped(root.grad(loss)),
            "grad through": root.grad(total),
            "of jit": mapped(root.jit(root.grad(root.jit(loss)))),
        }
        if f not in NO_FORWARD:  # jax looks up the name where the rule runs, outside the map
            found["through jit"] = root.grad(root.jit(total))
    return found


@pytest.mark.parametrize("f", everyday([*REVERSE, *FORWARD], 1))
def test_inside(f):
    ours, theirs = transformed(OURS, f), transformed(JAX, f)
    wanted = jax.jit(lambda x: {n: g(x) for n, g in theirs.items()})(X)
    run = sw.jit(lambda x: {n: g(x) for n, g in ours.items()})
    check_program(run.trace(X).program)
    close(run(X), wanted, 2e-4)


@pytest.mark.parametrize("f", everyday(BY_ROW, 1))
def test_choices_by_row(f):
    """Values match jax; its derivatives lack the contributions of rows to the branches of others.
    Here the derivatives are those of the computed values, per index and through the map.
    """
    ours = transformed(OURS, f)
    close(ours["value"](X), jax.jit(transformed(JAX, f)["value"])(X), 1e-5)
    f_mapped = sw.vmap(lambda x: f(OURS, x), axis_name="i")
    check_grads(sw.jit(f_mapped), (X,), 1, eps=1e-2)
    inside = sw.jit(sw.vmap(sw.grad(lambda x: swnp.sum(swnp.sin(f(OURS, x)))), axis_name="i"))
    total = sw.jit(sw.grad(lambda xs: swnp.sum(swnp.sin(f_mapped(xs)))))
    np.testing.assert_allclose(np.asarray(inside(X)), np.asarray(total(X)), rtol=1e-4, atol=1e-5)
    check_program(inside.trace(X).program)


@pytest.mark.parametrize("f", NO_FORWARD)
def test_rules_run_where_their_axis_is_known(f):
    """Also if the map has been staged and is differentiated from outside."""
    total = lambda xs: swnp.sum(sw.vmap(lambda x: f(OURS, x), axis_name="i")(xs) ** 2)  # noqa: E731
    got, wanted = sw.grad(sw.jit(total))(X), sw.grad(total)(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "f", everyday([in_scan, in_custom_jvp, in_custom_vjp, in_cond_without_operands], 2)
)
def test_inside_eagerly(f):
    ours, theirs = transformed(OURS, f), transformed(JAX, f)
    for name in ("value", "grad"):
        close(ours[name](X), jax.jit(theirs[name])(X), 2e-4)


def test_two_names_in_nested_programs():
    """Each map removes its name from the program; the other name remains."""

    def f(lib, x):
        def step(c, _):
            return lib.root.jit(lambda c: lib.np.sin(lib.lax.psum(c * x, ("i", "j"))))(c), None

        c, _ = lib.lax.scan(step, x + lib.lax.psum(x, "j"), None, length=2)
        return c + lib.lax.axis_index(("i", "j"))

    x = X.reshape(2, 2, 3)
    found = [
        lib.root.jit(
            lib.root.vmap(
                lib.root.vmap(lambda x: f(lib, x), axis_name="j"),  # noqa: B023
                axis_name="i",
            )
        )(x)
        for lib in (OURS, JAX)
    ]
    close(*found)


def test_maps_without_a_name_between():
    """A collective passes through these maps."""
    f = sw.vmap(
        sw.vmap(sw.jit(lambda x: lax.all_gather(x, "i", axis=1)), 1, axis_size=3), 0, axis_name="i"
    )
    got = np.asarray(f(X[:, None, :] * np.ones((1, 2, 1), np.float32)))
    np.testing.assert_array_equal(got, np.broadcast_to(X.T[None, :, None, :], (4, 3, 2, 4)))


def test_custom_vmap_of_what_is_not_mapped():
    """The rule is for mapped arguments: without any, the function itself runs for each index."""

    @sw.custom_batching.custom_vmap
    def f(x):
        return x + lax.axis_index("i")

    f.def_vmap(lambda size, marks, x: (x * 0, True))
    got = sw.vmap(lambda y: f(np.float32(1)) + y, axis_name="i")(np.zeros(3, np.float32))
    assert np.asarray(got).tolist() == [1, 2, 3]


def test_rules_for_batches_are_outside_of_the_axis():
    @sw.custom_batching.custom_vmap
    def f(x):
        return x

    f.def_vmap(lambda size, marks, x: (lax.psum(x, "i"), True))
    assert message(NameError, lambda: sw.vmap(f, axis_name="i")(X)) == (
        "shardwise.lax.psum: unbound axis name: i. The axes in scope are: none. To bind an axis "
        "name, wrap the call in a map: `shardwise.vmap(f, axis_name='i')` or `shardwise.shard_map`."
    )


def test_reduce_takes_no_collectives():
    with pytest.raises(TypeError) as error:
        sw.vmap(
            lambda x: lax.reduce(x, 0.0, lambda a, b: a + lax.psum(b, "i"), (0,)), axis_name="i"
        )(X)
    assert str(error.value) == (
        "reduce: the function must not use collectives, as the order of its calls is unspecified."
    )


def test_constraints_in_programs_know_the_mesh_axes_of_the_map():
    """`spmd_axis_name` applies inside calls and loops too."""
    mesh = sw.make_mesh((2,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    spec = sw.sharding.NamedSharding(mesh, sw.P())

    def f(x):
        return sw.jit(lambda x: lax.with_sharding_constraint(x * 2, spec))(x)

    with mesh:
        text = str(sw.make_jaxpr(sw.vmap(f, spmd_axis_name="x"))(swnp.asarray(X)))
    assert "spec=P('x', None))" in text
