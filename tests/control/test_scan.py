"""`scan` under every transform, against jax and against loops in Python."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shardwise import random
from shardwise._src.autodiff.grad import grad, jvp, linearize, vjp
from shardwise._src.base.config import disable_jit
from shardwise._src.base.errors import ConcretizationTypeError
from shardwise._src.control import bodies
from shardwise._src.control.scan_api import scan
from shardwise._src.control.while_api import fori_loop, while_loop
from shardwise._src.core.checker import check_program
from shardwise._src.core.program_tools import equation_count
from shardwise._src.jit.jit import jit
from shardwise._src.maps.vmap import vmap
from shardwise._src.numpy.creation import asarray
from shardwise._src.ops import elementwise as ew
from shardwise._src.ops.basis import reduce_sum
from shardwise._src.running.eager import EAGER
from shardwise._src.types.mesh import Mesh
from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding
from tests.helpers.comparing import close
from tests.helpers.eager import array, total
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

C = np.float32([0.5, 1.0, -0.3])
W = np.float32([0.9, 0.2, 1.4])
XS = np.linspace(-1, 1, 15, dtype=np.float32).reshape(5, 3)
OURS = dict(scan=scan, sin=ew.sin, mul=ew.mul, total=total)
JAX = dict(scan=jax.lax.scan, sin=jnp.sin, mul=jnp.multiply, total=jnp.sum)


def cell(lib, w):
    """A step with a counter, a state and a constant."""

    def step(carry, x):
        n, h = carry
        scale = lib["sin"](w)
        new = lib["sin"](h + lib["mul"](x["a"], scale)) + h
        return (n + 1, new), (lib["mul"](new, scale), n)

    return step


def run(lib, c, w, xs, **options):
    carry, ys = lib["scan"](cell(lib, w), (0, c), {"a": xs}, **options)
    return carry, ys


def loss(lib, **options):
    def f(c, w, xs):
        (_, h), (ys, _) = run(lib, c, w, xs, **options)
        return lib["total"](lib["mul"](h, h)) + lib["total"](lib["mul"](ys, ys))

    return f


OPTIONS = pytest.mark.parametrize(
    "options",
    [
        {},
        {"reverse": True},
        {"unroll": 2},
        {"unroll": 3, "reverse": True},
        {"unroll": True},
        {"unroll": 7, "reverse": True},
    ],
    ids=str,
)


@OPTIONS
def test_values(options):
    wanted = run(JAX, C, W, XS, **options)
    close(run(OURS, array(C), array(W), array(XS), **options), wanted)
    close(jit(lambda *a: run(OURS, *a, **options))(array(C), array(W), array(XS)), wanted)
    with disable_jit(True):
        close(run(OURS, array(C), array(W), array(XS), **options), wanted)


@OPTIONS
def test_gradients(options):
    wanted = jax.grad(loss(JAX, **options), (0, 1, 2))(C, W, XS)
    g = grad(loss(OURS, **options), (0, 1, 2))
    close(g(array(C), array(W), array(XS)), wanted)
    close(jit(g)(array(C), array(W), array(XS)), wanted)


def test_jvp_and_linearize():
    args = (C, W, XS), (W, C, XS * 2)
    ours = tuple(tuple(map(array, part)) for part in args)
    wanted = jax.jvp(loss(JAX), *args)
    close(jvp(loss(OURS), *ours), wanted)
    close(jit(lambda p, t: jvp(loss(OURS), p, t))(*ours), wanted)
    value, derivative = linearize(loss(OURS), *ours[0])
    close((value, derivative(*ours[1])), wanted)


def test_second_derivatives():
    def twice(grad, lib):
        inner = grad(loss(lib), (0, 1))

        def f(c, w, xs):
            gc, gw = inner(c, w, xs)
            return lib["total"](lib["sin"](gc)) + lib["total"](lib["mul"](gw, c))

        return grad(f, (0, 1, 2))

    wanted = twice(jax.grad, JAX)(*map(jnp.asarray, (C, W, XS)))
    close(twice(grad, OURS)(array(C), array(W), array(XS)), wanted, 1e-4)
    close(jit(twice(grad, OURS))(array(C), array(W), array(XS)), wanted, 1e-4)


AXES = [(0, None, None), (None, 1, None), (None, None, 2), (0, 0, 1)]


@pytest.mark.parametrize("axes", everyday(AXES, 1))
def test_batching(axes):
    args = [
        np.stack([v, v * 0.5 + 1], a) if a is not None else v
        for v, a in zip((C, W, XS), axes, strict=True)
    ]
    ours = list(map(array, args))
    wanted = jax.vmap(lambda *a: run(JAX, *a), axes)(*args)
    close(vmap(lambda *a: run(OURS, *a), axes)(*ours), wanted)
    wanted = jax.vmap(jax.grad(loss(JAX), (0, 1, 2)), axes)(*args)
    close(jit(vmap(grad(loss(OURS), (0, 1, 2)), axes))(*ours), wanted)
    close(
        grad(lambda *a: total(vmap(loss(OURS), axes)(*a)), 1)(*ours),
        jax.grad(lambda *a: jax.vmap(loss(JAX), axes)(*a).sum(), 1)(*map(jnp.asarray, args)),
    )


def test_a_scan_in_a_scan_and_a_jit_in_its_body():
    def f(lib, jit, c, xs):
        @jit
        def inner(h, x):
            return lib["sin"](h) + lib["mul"](x, c)

        def outer(h, row):
            h, ys = lib["scan"](lambda h, x: (inner(h, x), h), h, row)
            return h, lib["total"](ys)

        h, ys = lib["scan"](outer, lib["sin"](c), xs)
        return lib["total"](lib["mul"](ys, h))

    xs, c = np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3), np.float32(0.7)
    wanted = jax.grad(lambda c, xs: f(JAX, jax.jit, c, xs), (0, 1))(c, xs)
    g = grad(lambda c, xs: f(OURS, jit, c, xs), (0, 1))
    close(g(array(c), array(xs)), wanted)
    close(jit(g)(array(c), array(xs)), wanted)


def test_carries_that_differentiation_reaches_later():
    """Carries start as zero tangents or cotangents, or are known from the first step on."""

    def f(lib, x, xs):
        def step(carry, a):
            late, later, constant, shifted = carry
            new = (lib["mul"](x, a), lib["sin"](late), lib["mul"](a, a), constant)
            return new, later + shifted

        zero = lib["mul"](a := xs[0] if lib is JAX else first(xs), 0.0)
        carry, ys = lib["scan"](step, (zero, zero, lib["mul"](x, a), x), xs)
        return lib["total"](ys) + lib["total"](carry[1]) + lib["total"](carry[3])

    def first(xs):
        return reduce_sum(ew.mul(xs, np.float32(0)), axes=(0,)) + array(XS[0])

    wanted = jax.grad(lambda x, xs: f(JAX, x, xs), (0, 1))(jnp.asarray(C), jnp.asarray(XS))
    g = grad(lambda x, xs: f(OURS, x, xs), (0, 1))
    got = g(array(C), array(XS))
    close(got[0], wanted[0])
    close(jit(g)(array(C), array(XS))[0], wanted[0])
    close(
        jvp(lambda x: f(OURS, x, array(XS)), (array(C),), (array(W),)),
        jax.jvp(lambda x: f(JAX, x, jnp.asarray(XS)), (C,), (W,)),
    )


def test_transposing_with_a_counter_in_the_carry():
    def f(lib, x):
        def step(carry, _):
            n, y = carry
            return (n + 1.0, lib["mul"](y, n)), lib["mul"](y, n)

        (_, y), ys = lib["scan"](step, (1.0, x), None, length=4)
        return lib["total"](y) + lib["total"](ys)

    program = jit(lambda x: f(OURS, x)).trace(array(C)).program
    _, pull_back = vjp(lambda x: jit(lambda v: f(OURS, v))(x), array(C))
    close(pull_back(array(1.0))[0], jax.grad(lambda x: f(JAX, x))(C))
    check_program(program)
    transposed = jax.linear_transpose(lambda x: f(JAX, x), C)(np.float32(1.0))[0]
    from shardwise._src.transforms.transpose import transpose

    close(transpose(program, [], [array(1.0)])[0], transposed)


@pytest.mark.parametrize("length", [3, 3.0, np.float32(3), asarray(3), np.array(3)], ids=repr)
def test_a_length_is_a_whole_number_of_any_type(length):
    assert float(scan(lambda c, _: (c + 1, None), 1.0, length=length)[0]) == 4.0


def test_lengths():
    close(scan(lambda c, _: (c * 2.0, None), array(1.0), length=5)[0], np.float32(32))
    c, ys = scan(lambda c, x: (c + x, c), array(C), array(np.zeros((0, 3))))
    close((c, ys), (C, np.zeros((0, 3), np.float32)))
    g = jit(grad(lambda c, xs: total(scan(lambda c, x: (c + x, c), c, xs)[0]), (0, 1)))
    none = np.zeros((0, 3), np.float32)
    close(g(array(C), array(none)), (np.ones(3, np.float32), none))
    assert scan(lambda c, x: (c, x), None, None, length=3) == (None, None)
    same = scan(lambda c, x: (c + x, c), array(C), array(XS), _split_transpose=True)
    close(same, scan(lambda c, x: (c + x, c), array(C), array(XS)))


def test_host_values_and_weak_types():
    for init, xs in [(0, XS[:, 0]), (1.0, np.arange(3)), (0, np.arange(3))]:
        got = scan(lambda c, x: (c + x, c), init, xs)
        close(got, jax.lax.scan(lambda c, x: (c + x, c), init, xs))
    (n, one), _ = scan(lambda c, _: ((c[0] + 1, c[1] * 2.0), None), (0, array(1.0)), length=3)
    assert (n.aval.str_short(True), one.aval.str_short(True)) == ("~i32[]", "f32[]")


def test_effects_in_python_come_once_where_a_carry_is_weak():
    seen = []

    def step(c, x):
        seen.append(str(c.aval.str_short(True)))
        return c + x, c

    def turn(c):
        seen.append(str(c.aval.str_short(True)))
        return c + array(XS)[0, 0]

    last, rows = scan(step, 1.0, array(XS)[:, 0])
    assert seen == ["~f32[]"] and not last.weak_type
    np.testing.assert_allclose(last, 1 + XS[:, 0].sum(), rtol=1e-6)
    slopes = grad(lambda c: scan(step, c, array(XS)[:, 0])[1].sum())(1.0)
    assert slopes == len(rows)
    seen.clear()
    assert not while_loop(lambda c: c < -9, turn, 1.0).weak_type
    assert not fori_loop(0, np.int32(2), lambda i, c: turn(c), 1.0).weak_type
    assert seen == ["~f32[]"] * 2
    check_program(jit(lambda x: scan(step, 1.0, x)).trace(array(XS)[:, 0]).program)


KINDS = [{}, {"reverse": True, "unroll": 2}, {"unroll": True}]


@pytest.mark.parametrize("options", everyday(KINDS, 1))
def test_typed_keys_in_the_carry_and_in_xs(options):
    def f(lib, random, c, key, keys):
        def step(carry, k):
            h, key = carry
            noise = random.uniform(random.fold_in(k, 1), (3,)) + random.uniform(key, (3,))
            return (lib["sin"](lib["mul"](h, noise)), random.fold_in(key, 7)), (key, noise)

        (h, key), (used, noise) = lib["scan"](step, (c, key), keys, **options)
        return lib["total"](h), (random.key_data(key), random.key_data(used), noise)

    ours, theirs = random.key(3), jax.random.key(3)
    wanted = jax.grad(lambda c, k: f(JAX, jax.random, c, k, jax.random.split(k, 5)), has_aux=True)(
        jnp.asarray(C), theirs
    )
    g = grad(lambda c, k: f(OURS, random, c, k, random.split(k, 5)), has_aux=True)
    close(g(array(C), ours), wanted)
    close(jit(g)(array(C), ours), wanted)


# -- the staged program --


def test_the_program_prints_and_checks():
    f = jit(lambda c, xs: scan(lambda c, x: (c + x, c), c, xs))
    program = f.trace(array(C), array(XS)).program
    check_program(program)
    assert (
        str(program)
        == """\
{ lambda ; a:f32[3] b:f32[5,3]. let
    c:f32[3] d:f32[5,3] = scan[
      jaxpr={ lambda ; e:f32[3] f:f32[3]. let g:f32[3] = add e f in (g, e) }
      num_consts=0
      num_carry=1
      length=5
      reverse=False
      unroll=1
    ] a b
  in (c, d) }"""
    )


def scans(program):
    return [e for e in program.eqns if e.op.name == "scan"]


def test_residuals_that_do_not_change_are_not_stacked():
    def f(c, w, xs):
        def step(h, x):
            return ew.sin(ew.mul(ew.mul(h, x), ew.sin(ew.mul(w, w)))), None

        return total(scan(step, c, xs)[0])

    program = jit(grad(f, (0, 1))).trace(array(C), array(W), array(XS)).program
    check_program(program)
    forward, backward = scans(program)
    assert "mul a a" not in str(forward.params["body"])  # w * w is computed before the loop
    stacked = [v for v in forward.outvars if v.aval.shape == (5, 3)]
    assert len(stacked) == 2  # the cosine and the product with the carry
    consts = backward.invars[: backward.params["num_consts"]]
    assert all(v.aval.shape == (3,) for v in consts)
    xs = program.invars[2]
    assert xs in backward.invars and xs in forward.invars  # used directly, not stacked again


def test_unused_results_and_what_only_they_need_are_not_computed():
    def f(x, y, rows):
        def step(carry, row):
            a, b, c = carry
            return (a + a, b + a, ew.sin(c)), (ew.exp(row), a + row)

        (_, b, _), (_, sums) = scan(step, (x, y, x), rows)
        return b, sums

    rows = array(np.arange(3.0, dtype=np.float32))
    program = jit(f).trace(1.0, 2.0, rows).program
    (eqn,) = scans(program)
    assert (eqn.params["num_carry"], len(eqn.invars), len(eqn.outvars)) == (2, 3, 3)
    check_program(program)
    b, sums = jit(f)(1.0, 2.0, rows)
    assert b == 9 and list(sums) == [1, 3, 6]


def test_programs_do_not_grow_with_the_order_of_derivatives_or_the_length():
    def f(c, xs):
        return total(scan(lambda h, x: (ew.sin(ew.mul(h, x)), None), c, xs)[0])

    counts = []
    for length in (5, 50):
        xs = array(np.ones((length, 3)))
        g = jit(grad(lambda c, xs: total(grad(f)(c, xs))))
        counts.append(equation_count(g.trace(array(C), xs).program))
        text = g.lower(array(C), xs).as_text()
        assert text.count("stablehlo.while") == len(scans(g.trace(array(C), xs).program))
    assert counts[0] == counts[1] < 60


def test_a_body_is_staged_once():
    runs = []

    def step(c, x):
        runs.append(1)
        return c + x, c

    for _ in range(3):
        scan(step, array(C), array(XS))
        jit(lambda c, xs: scan(step, c, xs))(array(C), array(XS))
    assert len(runs) == 1
    scan(step, array(C), array(XS[:3]))
    assert len(runs) == 2


def test_new_closures_share_what_was_compiled():
    def f(c, k):
        return scan(lambda h, x: (ew.sin(ew.mul(h, x)) + k, h), c, array(XS))

    f(array(C), array(W))
    size = len(EAGER.cache)
    close(f(array(C), array(C))[0], jax.lax.scan(lambda h, x: (jnp.sin(h * x) + C, h), C, XS)[0])
    assert len(EAGER.cache) == size


def test_a_body_and_what_it_uses_are_not_kept_alive():
    class Model:
        pass

    model = Model()

    def step(c, x, model=model):
        return c + x, None

    scan(step, array(C), array(XS))
    assert step in bodies.body_caches
    gone = weakref.ref(model)
    del step, model
    gc.collect()
    assert gone() is None


def test_sharded_carries_stay_sharded():
    mesh = Mesh(np.array(jax_free_devices()), ("x",))
    rows = NamedSharding(mesh, P("x"))
    c = placed(np.ones((16, 4), np.float32), rows)
    w = placed(np.full((4,), 0.5, np.float32), NamedSharding(mesh, P()))
    xs = placed(
        np.linspace(0, 1, 3 * 16 * 4, dtype=np.float32).reshape(3, 16, 4),
        NamedSharding(mesh, P(None, "x")),
    )

    def step(h, x):
        return ew.sin(h) * w + x, h

    h, ys = jit(lambda c, xs: scan(step, c, xs))(c, xs)
    assert h.sharding == rows and ys.sharding == NamedSharding(mesh, P(None, "x"))
    wanted = jax.lax.scan(
        lambda h, x: (jnp.sin(h) * np.asarray(w) + x, h), np.asarray(c), np.asarray(xs)
    )
    close((h, ys), wanted)
    h, ys = scan(step, c, xs)
    assert h.sharding == rows
    g = jit(grad(lambda c, xs: total(scan(step, c, xs)[0])))(c, xs)
    assert g.sharding == rows


def jax_free_devices():
    from shardwise._src.runtime import backend

    return backend.local_devices()


def placed(x, sharding):
    from shardwise._src.transfers.transfer import put_host

    return put_host(x, sharding, True)


# -- messages --


def step(c, x):
    return c, x


def test_messages_about_xs():
    assert message(ValueError, scan, step, array(C), {"a": array(XS), "b": array(C)}) == (
        "scan: the arrays of xs must have the same size along dimension 0; xs['a'] of type "
        "f32[5,3] has 5, xs['b'] of type f32[3] has 3."
    )
    assert message(ValueError, scan, step, array(C), array(XS), length=4) == (
        "scan: the arrays of xs must have the same size along dimension 0; xs of type f32[5,3] has "
        "5, and length is 4."
    )
    assert message(ValueError, scan, step, array(C), [array(XS), array(1.0)]) == (
        "scan: xs[1] is of type f32[], which has no dimension to scan over."
    )
    assert message(ValueError, scan, step, array(C)) == (
        "scan: xs has no arrays, so length is required."
    )
    assert message(ValueError, scan, step, array(C), length=-1) == (
        "scan: length must not be negative; got -1."
    )
    assert message(TypeError, scan, step, array(C), {"a": "text"}) == (
        "scan: xs['a'] is 'text' of type str, which is not an array."
    )
    assert message(ValueError, scan, step, array(C), array(XS), unroll=-1) == (
        "scan: unroll must be a bool or a non-negative int; got -1."
    )
    assert message(ValueError, scan, step, array(C), array(XS), unroll=1.5) == (
        "scan: unroll must be a bool or a non-negative int; got 1.5."
    )
    assert message(TypeError, scan, step, array(C), length=3.5) == (
        "scan: length must be an integer; got 3.5 of type float."
    )

    def counted(n):
        return scan(step, array(C), length=n)

    with pytest.raises(ConcretizationTypeError) as caught:
        jit(counted)(3)
    assert str(caught.value).startswith(
        "scan: length must be concrete, since the size of the result depends on it; got a traced "
        "~i32[], which is not known while tracing (jit of counted, called at "
    )
    assert str(caught.value).endswith(
        "The value depends on the argument n. Pass a Python number, or mark the argument static "
        "with `static_argnums`."
    )
    assert (
        message(TypeError, lambda: jit(counted)(3.0))
        == "scan: length must be an integer; got a traced ~f32[]."
    )
    assert message(TypeError, scan, 3, array(C), array(XS)) == (
        "scan: the body must be a function; got 3."
    )


def test_messages_about_the_body():
    def one(c, x):
        return c

    def shape(c, x):
        return {"h": total(c["h"]), "k": x[0] if isinstance(x, tuple) else c["k"]}, x

    def tree(c, x):
        return (c, c), x

    def text(c, x):
        return c, {"y": "text"}

    assert message(TypeError, scan, one, array(C), array(XS)) == (
        "scan: one must return a pair (carry, y); it returned a traced f32[3]."
    )
    assert message(TypeError, scan, shape, {"h": array(C), "k": array(W)}, array(XS)) == (
        "scan: shape must return the carry with its input types; carry['h'] came in as "
        "f32[3] and was returned as f32[] (differs in shape). Change init or shape so that they "
        "agree."
    )
    assert message(TypeError, scan, tree, array(C), array(XS)) == (
        "scan: tree must return a carry with the pytree structure of init; carry is a leaf in init "
        "and a tuple of 2 in the result."
    )
    assert message(TypeError, scan, text, array(C), array(XS)) == (
        "scan: the returned y['y'] is 'text' of type str, which is not an array."
    )
    n = array([1, 2, 3], np.int32)
    assert message(TypeError, scan, lambda c, x: (c + x, None), n, array(XS)) == (
        "scan: <lambda> must return the carry with its input types; carry came in as i32[3] "
        "and was returned as f32[3] (differs in dtype). Change init or <lambda> so that they "
        "agree, for example with `astype`."
    )
    with disable_jit(True):
        assert message(ValueError, scan, step, array(C), array(np.zeros((0, 3)))) == (
            "scan: a scan of length 0 cannot run under disable_jit."
        )


@pytest.mark.parametrize("unroll", [0, False])
def test_no_unrolling(unroll):
    add = lambda c, x: (c + x, c * x)  # noqa: E731
    wanted = jax.lax.scan(add, C, XS, unroll=unroll)
    close(scan(add, array(C), array(XS), unroll=unroll), wanted)
    close(fori_loop(0, 3, lambda i, c: c + i, array(C), unroll=unroll), C + 3)


def test_results_that_are_not_needed_are_gone():
    """With the carries and the arguments that only they depend on; other carries stay."""

    def step(c, x):
        a, b, total = c
        return (b, a + x[0], total + x[1]), (a * x[0], total)

    def results(xs, c):
        (_, _, total), (products, _) = scan(step, (c, c, c), xs)
        return {"products": products, "total": total}

    for kept, counts in [("products", (2, 1, 1)), ("total", (1, 0, 1))]:
        f = jit(lambda xs, c, kept=kept: results(xs, c)[kept])
        program = f.trace((array(XS), array(XS)), array(C)).jaxpr
        (eqn,) = [e for e in program.eqns if e.op.name == "scan"]
        carry = eqn.params["num_carry"]
        assert (carry, len(eqn.outvars) - carry, len(eqn.invars) - carry) == counts
        carries, ys = jax.lax.scan(step, (C, C, C), (XS, XS))
        wanted = ys[0] if kept == "products" else carries[2]
        close(f((array(XS), array(XS)), array(C)), wanted)


def test_a_traced_unroll():
    with pytest.raises(ConcretizationTypeError, match="scan: unroll"):
        jit(lambda n: scan(lambda c, x: (c, x), n, None, 3, unroll=n))(2)
