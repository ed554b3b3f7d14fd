"""Programs with symbolic dimensions: called with arguments of some sizes, here, read from a file,
and by JAX, they return what the function returns.
"""

import jax
import jax.export
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import export, lax, nn
from shardwise._src.export.symbolic_dims import InconclusiveDimensionOperation
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday

A, B = export.symbolic_shape("a, b", constraints=["a >= 2", "b >= 8"])
SIZES = {"a": 4, "b": 9}, {"a": 2, "b": 8}


def spec(*shape, dtype=np.float32):
    return sw.ShapeDtypeStruct(shape, dtype)


X, V, SQUARE, TABLE = spec(A, B), spec(A), spec(A, A), spec(4, 8)
I = spec(A, dtype=np.int32)  # noqa: E741
INF = np.float32(-np.inf)

CASES = {
    "sin": (jnp.sin, X), "scalar": (lambda x: x + 1, X), "add": (lambda x, y: x + y, X, spec(B)),
    "sum": (lambda x: x.sum(0), X), "mean": (lambda x: x.mean(), X), "var": (lambda x: x.var(0), X),
    "dot": (lambda x, y: x @ y, X, spec(B, 3)), "T": (lambda x: x.T, X),
    "einsum": (lambda x, y: jnp.einsum("ij,kj->ik", x, y), X, spec(5, B)),
    "ravel": (lambda x: x.reshape(-1), X),
    "reshape": (lambda x: x.reshape(x.shape[0] * x.shape[1]), X),
    "halves": (lambda x: x.reshape(x.shape[0], 2, -1), spec(A, 4)),
    "concatenate": (lambda x: jnp.concatenate([x, x]), X),
    "stack": (lambda x: jnp.stack([x, x], 1), X), "tail": (lambda x: x[1:], X),
    "columns": (lambda x: x[:, :3], X), "strided": (lambda x: x[::2], X),
    "butlast": (lambda x: x[:-1], X), "first": (lambda x: x[0], X), "last": (lambda x: x[-1], X),
    "backwards": (lambda x: x[::-1, 1:-1:3], X), "negative": (lambda x: x[-2:, -5:-1], X),
    "half": (lambda x: x[: x.shape[0] // 2], X), "cut": (lambda x: TEN[: x.shape[0]], X),
    "newaxis": (lambda x: x[:, None], X), "rows": (lambda x, i: x[i], TABLE, I),
    "take": (lambda x, i: jnp.take(x, i, axis=0), X, I), "mask": (lambda x: x[..., None] > 0, X),
    "arange": (lambda x: jnp.arange(x.shape[0]), X),
    "odd": (lambda x: jnp.arange(1, 2 * x.shape[0], 2), X),
    "zeros": (lambda x: jnp.zeros(x.shape), X),
    "full": (lambda x: jnp.full((x.shape[0], 3), 2.0), X),
    "ones_like": (jnp.ones_like, X), "softmax": (nn.softmax, X), "log_softmax": (nn.log_softmax, X),
    "logsumexp": (lambda x: nn.logsumexp(x, 1), X), "relu": (nn.relu, X), "gelu": (nn.gelu, X),
    "norm": (jnp.linalg.norm, X), "max": (lambda x: x.max(0), X),
    "argmax": (lambda x: x.argmax(1), X),
    "sort": (lambda x: jnp.sort(x, 0), X), "argsort": (lambda x: jnp.argsort(x, 0), X),
    "cumsum": (lambda x: jnp.cumsum(x, 0), X), "cummax": (lambda x: lax.cummax(x, 1, True), X),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 0), X),
    "where": (lambda x: jnp.where(x > 0, x, 0), X), "one_hot": (lambda i: nn.one_hot(i, 4), I),
    "eye": (lambda x: jnp.eye(x.shape[0]), X), "tril": (jnp.tril, SQUARE),
    "pad": (lambda x: jnp.pad(x, ((1, 1), (0, 0))), X),
    "grown": (lambda x: lax.pad(x, 0.0, ((0, x.shape[0], 0), (1, -1, 0))), X),
    "flip": (lambda x: jnp.flip(x, 0), X), "roll": (lambda x: jnp.roll(x, 1, 0), X),
    "broadcast_to": (lambda x: jnp.broadcast_to(x, (3, *x.shape)), X),
    "squeeze": (lambda x: jnp.squeeze(x, 0), spec(1, A)),
    "tile": (lambda x: jnp.tile(x, (2, 1)), X),
    "repeat": (lambda x: jnp.repeat(x, 2, axis=0), X),
    "split": (lambda x: jnp.split(x, 2, axis=1), spec(A, 4)),
    "grad": (sw.grad(lambda x: jnp.sin(x).mean()), X),
    "grad of a slice": (sw.grad(lambda x: (x[1:, ::2] ** 2).sum()), X),
    "grad of a gather": (sw.grad(lambda x, i: (x[i] ** 2).sum()), X, I),
    "grad of a scan": (sw.grad(lambda x: lax.scan(lambda c, r: (c * r, c), x[0], x)[0].sum()), X),
    "vmap": (sw.vmap(lambda x: x * 2 + x.sum()), X), "vmap of dot": (sw.vmap(jnp.dot), X, X),
    "jvp": (lambda x: sw.jvp(jnp.sin, (x,), (x,)), X),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c.sum()), jnp.zeros(x.shape[1]), x), X),
    "reversed": (lambda x: lax.scan(lambda c, r: (c + r, c), 0.0 * x[0], x, reverse=True), X),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, x), X),
    "counted": (lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c * 2, x), X),
    "while": (lambda x: lax.while_loop(lambda c: (c**2).sum() < 9, lambda c: c * 2, x), X),
    "cond": (lambda x: lax.cond(x.sum() > 0, lambda x: x, lambda x: -x, x), X),
    "dynamic_slice": (lambda x: lax.dynamic_slice_in_dim(x, 1, 2, axis=1), X),
    "moving": (lambda x, i: lax.dynamic_slice_in_dim(x, i[0], x.shape[0] - 1, axis=0), X, I),
    "update": (lambda x: lax.dynamic_update_slice_in_dim(x, x[:1], 0, axis=0), X),
    "set": (lambda x: x.at[0].set(1.0), X), "add at": (lambda x, i: x.at[i].add(1.0), spec(9), I),
    "conv": (lambda x, w: lax.conv(x, w, (1, 1), "VALID"), spec(A, 3, 8, 8), spec(4, 3, 3, 3)),
    "same": (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), spec(A, 3, B, B),
             spec(4, 3, 3, 3)),
    "pool": (lambda x: lax.reduce_window(x, INF, lax.max, (1, 2, 2), (1, 2, 2), "VALID"),
             spec(A, 8, 8)),
    "layer norm": (lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1)[:, None] + 1), X),
    "attention": (lambda q: nn.dot_product_attention(q, q, q, is_causal=True), spec(A, B, 2, 4)),
    "size as a number": (lambda x: (x * x.shape[0], 3 - x.size / x, jnp.array(x.shape[1]) + 1), X),
    "linspace": (lambda x: jnp.linspace(0, 1, x.shape[0]), X),
    "outer": (lambda x: jnp.outer(x, x), V),
    "matmul": (lambda x, y: x @ y, spec(A, B, 4), spec(A, 4, B)),
    "tensordot": (lambda x: jnp.tensordot(x, x, ((0,), (0,))), X),
    "nonzero": (lambda x: jnp.nonzero(x > 0, size=3, fill_value=-1), X),
    "where true": (lambda x: jnp.where(x > 0, size=2), V),
    "argwhere": (lambda x: jnp.argwhere(x > 0, size=30), X),
    "flatnonzero": (lambda x: jnp.flatnonzero(x > 0, size=x.shape[0]), X),
    "unique": (lambda x: jnp.unique(
        jnp.sign(x), True, True, True, size=3, fill_value=7.0), V),
    "unique rows": (lambda x: jnp.unique(jnp.sign(x), axis=0, size=3), X),
    "intersect1d": (lambda x: jnp.intersect1d(jnp.sign(x), jnp.sign(x) + 1, size=2), V),
    "insert": (lambda x: jnp.insert(x, 1, 3.0, axis=0), X),
    "median": (jnp.median, V), "top_k": (lambda x: lax.top_k(x, 3), X),
    "random": (lambda x: sw.random.normal(sw.random.key(0), x.shape), X),
    "meshgrid": (lambda x, y: jnp.meshgrid(x, y), V, spec(B)),
    "hessian": (sw.hessian(lambda x: (x**3).sum()), V),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.mT + jnp.eye(3)), spec(A, 3, 3)),
    "solve": (lambda x: jnp.linalg.solve(x @ x.mT + jnp.eye(3), x), spec(A, 3, 3)),
    "segment_sum": (lambda x, i: sw.ops.segment_sum(x, i, num_segments=4), X, I),
    "nested": (lambda x: sw.jit(jnp.cumsum)(x[:, 0]) + sw.checkpoint(jnp.sin)(x[:, 1]), X),
    "several": (lambda x, y: x[: y.shape[0], 0] * y, spec(2 * A + 1, B), V),
}  # fmt: skip
TEN = jnp.arange(10.0)


def filled(t, sizes):
    shape = tuple(n if isinstance(n, int) else n.at(sizes) for n in t.shape)
    count = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return count % 3 if t.dtype == np.int32 else np.cos(count * 1.7).astype(t.dtype)


@pytest.mark.parametrize("name", everyday(CASES, 4))
def test_sizes_of_calls(name):
    fun, *types = CASES[name]
    jitted = sw.jit(fun)
    made = export.export(jitted)(*types)
    data = made.serialize()
    read, by_jax = export.deserialize(data), jax.export.deserialize(data)
    assert read.in_avals == made.in_avals or str(read.in_avals) == str(made.in_avals)
    for sizes in SIZES:
        args = [filled(t, sizes).astype(t.dtype) for t in types]
        want = jitted(*args)
        close(made.call(*args), want)
        close(sw.jit(read.call)(*args), want)
        close(by_jax.call(*args), want)


def test_types_and_the_module():
    made = export.export(sw.jit(lambda x: (x[1:].sum(1), x.T)))(X)
    assert [t.str_short(True) for t in made.out_avals] == ["f32[a - 1]", "f32[b,a]"]
    text = made.mlir_module()
    assert "func.func public @main(%arg0: tensor<?x?xf32>)" in text
    assert "jax.uses_shape_polymorphism = true" in text and made.uses_global_constants
    assert text.count("@shape_assertion") == 6  # both sizes, at least 1 each, two constraints


def test_derivatives():
    made = export.export(sw.jit(lambda x, i: (jnp.sin(x[i]) ** 2).mean(0)))(X, I)
    data = made.serialize(vjp_order=1)
    args = [filled(t, SIZES[0]).astype(t.dtype) for t in (X, I)]
    loss = lambda f: lambda x: f(x, args[1])[:3].sum()  # noqa: E731
    want = sw.grad(loss(lambda x, i: (jnp.sin(x[i]) ** 2).mean(0)))(args[0])
    close(sw.grad(loss(export.deserialize(data).call))(args[0]), want)
    close(jax.grad(loss(jax.export.deserialize(data).call))(args[0]), want)


def test_platforms():
    def fun(x):
        return lax.platform_dependent(x, cpu=lambda x: x[1:] * 2, default=lambda x: x[1:])

    made = export.export(sw.jit(fun), platforms=("cuda", "cpu"))(X)
    x = filled(X, SIZES[0])
    for call in (made.call, jax.export.deserialize(made.serialize()).call):
        close(call(x), jnp.asarray(x[1:] * 2))


def test_functions_of_platforms():
    """Each platform has its own function in the module, traced for that platform only."""

    def fun(x):
        return lax.platform_dependent(x, cpu=lax.sin, cuda=lax.cos, tpu=lax.sin)

    x = np.arange(3, dtype=np.float32)
    for platforms, names in (
        (("cpu",), ["sine"]),
        (("cuda",), ["cosine"]),
        (("cpu", "tpu"), ["sine"]),
        (("cuda", "cpu"), ["sine", "cosine"]),
    ):
        made = export.export(sw.jit(fun), platforms=platforms)(x)
        text = made.mlir_module()
        assert [n for n in ("sine", "cosine") if f"stablehlo.{n} " in text] == names
        if "cpu" in platforms:
            close(made.call(x), jnp.sin(x))
            close(jax.export.deserialize(made.serialize()).call(x), jnp.sin(x))
    close(sw.jit(fun)(x), jnp.sin(x))
    both = sw.jit(lambda x: lax.platform_dependent(x, cuda=lax.cos, rocm=lax.sin))
    text = export.export(both, platforms=("cuda", "rocm"))(x).mlir_module()
    assert "stablehlo.cosine " in text and "stablehlo.sine " in text
    with pytest.raises(NotImplementedError) as failure:
        export.export(both, platforms=("cuda", "tpu"))(x)
    assert str(failure.value) == (
        "platform_dependent: there is no function for 'tpu', on which this runs, and no default; "
        "got cuda, rocm."
    )


def test_64_bits():
    with sw.enable_x64(True):
        made = export.export(sw.jit(lambda x: (x.shape[0] * jnp.arange(x.shape[0]), x.mean())))(
            spec(A, dtype=np.float64)
        )
        x = np.arange(5.0)
        close(made.call(x), (jnp.arange(5) * 5, jnp.array(2.0)))


def test_wrong_calls():
    made = export.export(sw.jit(lambda x, y: x[0] + y))(X, spec(B))
    assert message(
        ValueError, lambda: made.call(np.ones((3, 9), np.float32), np.ones(8, np.float32))
    ) == (
        "call of the exported <lambda>: dimension 0 of args[1] must be b, which is 9 for a = 3, "
        "b = 9; got 8, in f32[8]."
    )
    assert message(
        ValueError, lambda: made.call(np.ones((1, 9), np.float32), np.ones(9, np.float32))
    ) == (
        "call of the exported <lambda>: the constraint a - 2 >= 0 of the export does not hold for "
        "a = 1, b = 9."
    )


def exported(fun, *shapes, dtype=np.float32, **options):
    specs = [sw.ShapeDtypeStruct(export.symbolic_shape(s, **options), dtype) for s in shapes]
    return export.export(sw.jit(fun))(*specs)


@pytest.mark.parametrize("inner, outer", [
    ("3, a, b", "3, 4, c"), ("3, 4, 3*a", "3, 4, 6*c"), ("3, a, a + 8", "3, c + 2, c + 10"),
    ("3, a, b", "3, c, c"), ("3, 4, 12", "3, 4, 12"), ("3, a, a + b", "3, 4, 12"),
])  # fmt: skip
def test_calls_with_symbolic_sizes(inner, outer):
    def rows(x):
        return x.reshape(-1, x.shape[1])

    called = exported(rows, inner)
    twice = exported(lambda x: exported(called.call, outer).call(x) + rows(x), outer)
    x = np.arange(144, dtype=np.float32).reshape(3, 4, 12)
    x = x[:, :, :4] if outer == "3, c, c" else x
    close(export.deserialize(twice.serialize()).call(x), 2 * rows(x))
    close(sw.jit(twice.call)(x), 2 * rows(x))


@pytest.mark.parametrize("inner, outer", [
    ("3, a, a", "3, 4, c"), ("3, 4, 5*a", "3, 4, c"), ("3, a, a + b", "3, c, c"),
    ("3, a, a + b", "3, 4, c"), ("3, 4, 12 + a", "3, 4, 12"), ("3, a, a + b", "c, 4, 12"),
])  # fmt: skip
def test_calls_with_symbolic_sizes_that_may_not_fit(inner, outer):
    with pytest.raises(ValueError, match=r"call of the exported sin: .*args\[0\]"):
        exported(exported(jnp.sin, inner).call, outer)


@pytest.mark.parametrize("constraints", [["max(a, b) == b"], ["max(a, b) == 4", "a == b"]])
def test_equalities_are_checked(constraints):
    made = exported(lambda x: x, "a, b", constraints=constraints)
    made.call(np.ones((4, 4), np.float32))
    with pytest.raises(ValueError, match=r"the constraint max\(a, b\) == [4b] of the export"):
        made.call(np.ones((3, 2 if "a == b" not in constraints else 3), np.float32))


def test_what_depends():
    a, b = export.symbolic_shape("a, b")
    assert message(
        InconclusiveDimensionOperation, lambda: export.export(sw.jit(lambda x: x[3]))(spec(a))
    ) == (
        "whether a > 3 depends on the sizes of symbolic dimensions. Add a constraint, as "
        "in symbolic_shape(..., constraints=['a >= 4'])."
    )
    assert message(
        sw.errors.BroadcastError,
        lambda: export.export(sw.jit(lambda x, y: x + y))(spec(a), spec(b)),
    ) == (
        "add: shapes (a,) and (b,) do not broadcast together: from the last dimension backwards, "
        "sizes must be equal or 1."
    )
    assert message(ValueError, lambda: export.export(sw.jit(lambda x: x + 1))(spec(a * b))) == (
        "shardwise.export.export: <lambda>: no argument has a dimension that determines a and b, "
        "such as a or 2*a + 1."
    )
    assert message(
        InconclusiveDimensionOperation,
        lambda: export.export(sw.jit(lambda x: x.reshape(4, -1)))(spec(a, 3)),
    ) == (
        "whether mod(3*a, 4) is 0 depends on the sizes of symbolic dimensions. Add a "
        "constraint: 'mod(3*a, 4) >= 1', or 'mod(3*a, 4) == 0'."
    )
    (c,) = export.symbolic_shape("c", constraints=["mod(3*c, 4) == 0"])
    made = export.export(sw.jit(lambda x: x.reshape(4, -1)))(spec(c, 3))
    assert made.call(np.ones((4, 3), np.float32)).shape == (4, 3)


def test_sizes_exist_in_exported_functions_only():
    (n,) = export.symbolic_shape("n")
    text = (
        "the type f32[n] has a symbolic dimension, which has a size in exported functions only: "
        "call `shardwise.export.export(jit(f))`."
    )
    unknown = InconclusiveDimensionOperation
    assert message(unknown, jnp.ones, (n,)) == f"ones: {text}"
    assert message(unknown, sw.jit(lambda: jnp.ones((n,)))) == text


def test_what_needs_numbers():
    (a,) = export.symbolic_shape("a")
    with pytest.raises(NotImplementedError) as failure:
        export.export(sw.jit(lambda x, w: lax.conv(x, w, (2, 2), "SAME")))(
            spec(1, 3, a, a), spec(4, 3, 3, 3)
        )
    assert str(failure.value) == (
        "shardwise.export.export: conv_general_dilated of types f32[1,3,a,a], f32[4,3,3,3], "
        "f32[1,4,- floordiv(- a, 2),- floordiv(- a, 2)] requires concrete sizes when it is "
        "compiled, so it cannot be exported with symbolic dimensions there. Export it for concrete "
        "sizes."
    )
    assert message(TypeError, lambda: sw.jit(lambda x: x + a)(1.0)) == (
        "the symbolic dimension a has a value in exported functions only: call "
        "`shardwise.export.export(jit(f))`."
    )
    assert message(
        InconclusiveDimensionOperation, lambda: export.export(sw.jit(lambda x: [*x]))(spec(a, 3))
    ) == (
        "an integer is required, but the symbolic dimension a has no value before an "
        "exported function is called. Inside an exported function, use it as the size of a "
        "dimension, or in arithmetic with arrays."
    )


def test_scopes_are_not_mixed():
    (a,), (b,) = export.symbolic_shape("a"), export.symbolic_shape("b")
    assert message(ValueError, lambda: export.export(sw.jit(lambda x, y: x))(spec(a), spec(b))) == (
        "shardwise.export.export: the symbolic dimensions a of args[0] and b of args[1] have "
        "different scopes. Create them with one call of `symbolic_shape` or "
        "`symbolic_args_specs`, or pass `scope`."
    )


def test_over_devices():
    mesh = sw.make_mesh((4,), ("x",))
    place = sw.NamedSharding(mesh, sw.P(None, "x"))
    with pytest.raises(NotImplementedError) as failure:
        split = sw.ShapeDtypeStruct((A, 8), np.float32, sharding=place)
        export.export(sw.jit(lambda x: x + 1))(split)
    assert str(failure.value) == (
        "f32[a,8@x] has symbolic dimensions, and is on 4 devices: functions with such dimensions "
        "can only be exported for one device. Export it for concrete sizes."
    )


def test_symbolic_types_may_name_their_device():
    (n,) = export.symbolic_shape("n")
    place = sw.sharding.SingleDeviceSharding(sw.devices()[0])
    found = export.export(sw.jit(lambda x: x[1:]))(sw.ShapeDtypeStruct((n,), "f", sharding=place))
    np.testing.assert_array_equal(found.call(np.arange(4, dtype="f")), [1, 2, 3])
