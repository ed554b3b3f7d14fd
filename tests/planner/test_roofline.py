"""Lower bounds for programs: numbers as in jax, where jax counts them; and manual counts."""

import re

import numpy as np
import pytest

import shardwise as sw
from shardwise.experimental import roofline as ours
from shardwise.extend.core import Primitive
from shardwise.sharding import PartitionSpec as P

FIELDS = (
    "flops", "unfused_flops", "ici_bytes", "ici_latency", "hbm_bytes", "peak_hbm_bytes",
    "unfused_hbm_bytes",
)  # fmt: skip
jax = pytest.importorskip("jax")
from jax.experimental import roofline as theirs  # noqa: E402


def as_dict(result):
    return {name: getattr(result, name) for name in FIELDS}


def of(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


DOT = (((1,), (1,)), ((0,), (0,)))
CONV = {"window_strides": (2, 1), "padding": ((1, 2), (0, 3)), "lhs_dilation": (1, 2),
        "rhs_dilation": (2, 1)}  # fmt: skip
FUNCTIONS = {
    "unary": (lambda m, x: m.lax.exp(m.lax.sin(x)), [of(3, 4)]),
    "binary": (lambda m, x, y: m.lax.add(m.lax.mul(x, y), x), [of(3, 4), of(3, 4)]),
    "compared": (lambda m, x, y: m.lax.select(m.lax.lt(x, y), x, y), [of(8), of(8)]),
    "power": (lambda m, x: m.lax.integer_pow(x, 3), [of(5)]),
    "bf16": (lambda m, x: m.lax.neg(x.astype("bfloat16")), [of(5)]),
    "product": (lambda m, x, y: m.lax.dot_general(x, y, DOT), [of(2, 3, 4), of(2, 3, 5)]),
    "layers": (lambda m, x, w: m.lax.tanh(x @ w) @ w, [of(2, 4), of(4, 4)]),
    "convolution": (lambda m, x, k: m.lax.conv_general_dilated(x, k, **CONV),
                    [of(2, 4, 9, 8), of(6, 4, 3, 2)]),
    "groups": (lambda m, x, k: m.lax.conv_general_dilated(
        x, k, (1,), "VALID", batch_group_count=2), [of(4, 3, 9), of(6, 3, 2)]),
    "sum": (lambda m, x: x.sum(1), [of(4, 5)]),
    "cumulative": (lambda m, x: m.lax.cumsum(x, 1), [of(4, 5)]),
    "cumulative, of exponentials": (lambda m, x: m.lax.cumlogsumexp(x, 0), [of(4, 5)]),
    "nested": (lambda m, x: m.jit(lambda y: m.lax.sin(y) * 2)(x) + 1, [of(4)]),
    "custom": (lambda m, x: m.checkpoint(m.lax.cos)(m.lax.sin(x)), [of(4)]),
    "memory": (lambda m, x: [m.lax.sin(m.lax.cos(x)), m.lax.exp(x)], [of(100)]),
    "host": (lambda m, x: m.pure_callback(np.sin, x, x), [of(4)]),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("how", [{}, {"pin_lhs_in_vmem": True}, {"pin_rhs_in_vmem": True}],
                         ids=["", "left", "right"])  # fmt: skip
def test_numbers_are_those_of_jax(name, how):
    fun, args = FUNCTIONS[name]
    if how and name not in ("product", "layers"):
        pytest.skip("no product of matrices")
    types, found = ours.roofline(lambda *xs: fun(sw, *xs), **how)(*args)
    expected_types, expected = theirs.roofline(lambda *xs: fun(jax, *xs), **how)(*args)
    expected = as_dict(expected)
    if name == "layers":  # jax does not count tanh
        expected["unfused_flops"] += 8
        expected["unfused_hbm_bytes"] += 64
    assert as_dict(found) == expected
    shapes = [t.shape for t in sw.tree.leaves(types)]
    assert shapes == [t.shape for t in jax.tree.leaves(expected_types)]


COLLECTIVES = {
    "all_gather": lambda m, x: m.lax.all_gather(x, "x", tiled=True),
    "all_gather of two": lambda m, x: m.lax.all_gather(x, ("x", "y"), tiled=True),
    "psum": lambda m, x: m.lax.psum(x, "x"),
    "psum of two": lambda m, x: m.lax.psum(x, ("x", "y")),
    "reduce_scatter": lambda m, x: m.lax.psum_scatter(x, "x", tiled=True),
    "all_to_all": lambda m, x: m.lax.all_to_all(x, "x", 0, 0, tiled=True),
    "all_to_all of a short one": lambda m, x: m.lax.all_to_all(x, "y", 0, 0, tiled=True),
    "ppermute": lambda m, x: m.lax.ppermute(x, "x", [(0, 1), (1, 3), (2, 2)]),
    "of one": lambda m, x: m.lax.psum(m.lax.ppermute(x, "z", [(0, 0)]), "z"),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name):
    def run(m, library):
        spec = m.sharding.PartitionSpec
        auto = (m.sharding.AxisType.Auto,) * 3
        mesh = m.make_mesh((4, 2, 1), ("x", "y", "z"), axis_types=auto)
        fun = library.roofline(
            lambda x: COLLECTIVES[name](m, x), mesh, spec(("x", "y")), spec(("x", "y"))
        )
        types, found = fun(of(64, 3))
        return types, {k: as_dict(found)[k] for k in ("ici_bytes", "ici_latency")}

    types, found = run(sw, ours)
    assert found == run(jax, theirs)[1] and found["ici_bytes"]
    assert types.sharding.spec == P(("x", "y"))


def test_the_gradient_too():
    def step(w, x):
        return sw.lax.psum(x @ w, "x")

    mesh = sw.make_mesh((4, 2), ("x", "y"))
    specs = (P(None, "y"), P("x", None))
    types, forward, backward = ours.roofline_and_grad(step, mesh, specs, P(None, "y"))(
        of(16, 8), of(32, 16)
    )
    assert types.shape == (8, 8) and types.sharding.spec == P(None, "y")
    assert forward.flops == 2 * 8 * 16 * 4 and backward.flops == 2 * forward.flops
    assert forward.ici_bytes == {"x": 2 * (8 * 4 * 4 // 4) * 3}


def test_loops_and_branches():
    def body(c, x):
        return c @ c, x * 2

    m, xs = of(4, 4), of(10, 3)
    once = ours.roofline(lambda c, x: body(c, x))(m, xs[0])[1]
    looped = ours.roofline(lambda c, xs: sw.lax.scan(body, c, xs))(m, xs)[1]
    assert looped.flops == 10 * once.flops == 10 * 2 * 64
    assert looped.unfused_flops == 10 * once.unfused_flops
    two = ours.roofline(
        lambda p, x: sw.lax.cond(p, lambda x: x + 1, lambda x: sw.numpy.sin(x) * 2, x)
    )(np.bool_(True), xs)[1]
    assert two.unfused_flops == 60
    assert ours.roofline(lambda x: x.max())(xs)[1].unfused_flops == 29


def test_rules_of_users(capsys):
    prim = Primitive("own")
    prim.def_abstract_eval(lambda x, *, n: x)
    f = ours.roofline(lambda x: prim.bind(x, n=3), print_jaxpr=True)
    text = re.escape(
        "roofline: own has no rule and counts as zero. Register one with "
        "`shardwise.experimental.roofline.register_roofline`."
    )
    with pytest.warns(UserWarning, match=f"^{text}$"):
        assert f(of(4))[1] == ours.RooflineResult(peak_hbm_bytes=16)
    assert "own" in capsys.readouterr().out

    @ours.register_roofline(prim)
    def rule(ctx, x, *, n):
        assert isinstance(ctx, ours.RooflineRuleContext) and ctx.primitive is prim
        assert x == ours.RooflineShape(shape=(4,), dtype=np.dtype("float32"))
        return ours.RooflineResult(flops=n * x.size, ici_bytes={"x": x.bytes})

    found = f(of(4))[1]
    assert (found.flops, found.ici_bytes) == (12, {"x": 16})
    ours.register_standard_roofline(prim)
    assert f(of(4))[1].flops == 0


def test_results_are_added_and_multiplied():
    a = ours.RooflineResult(flops=1, ici_bytes={"x": 2}, peak_hbm_bytes=5, hbm_bytes=3)
    b = ours.RooflineResult(flops=2, ici_bytes={"y": 1}, peak_hbm_bytes=4)
    assert a + b == ours.RooflineResult(
        flops=3, ici_bytes={"x": 2, "y": 1}, peak_hbm_bytes=5, hbm_bytes=3
    )
    assert (
        2 * a
        == a * 2
        == ours.RooflineResult(flops=2, ici_bytes={"x": 4}, peak_hbm_bytes=10, hbm_bytes=6)
    )
    assert a + ours.RooflineResult.zeros() == a
    with pytest.raises(TypeError, match=r"^RooflineShape.from_aval takes an array type"):
        ours.RooflineShape.from_aval(3)
    assert ours.RooflineShape.total_bytes([sw.typeof(of(3)), sw.typeof(of(2))]) == 20
