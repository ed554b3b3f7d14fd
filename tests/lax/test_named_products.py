"""`pdot`, `xeinsum` and `einsum` with names: over maps, meshes and both, against NumPy's einsum."""

import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise._src.core.checker import check_program
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.comparing import close
from tests.helpers.errors import failing_calls, raised
from tests.helpers.everyday import everyday
from tests.lowering.test_collectives import sent

MESH = Mesh(np.array(sw.devices()).reshape(4, 2), ("i", "j"))
SIZES = {"i": 4, "j": 2, "k": 3} | {"a": 3, "b": 5, "c": 2, "d": 4}
LETTERS = str.maketrans("ijk", "IJK")

SPECS = [
    "{i},{i}->",
    "a{i},a{i}->",
    "a{i},b{i}->ab",
    "a{i},a{j}->{i,j}",
    "ab{i},bc{i}->ac",
    "{i,j},{j,k}->{i,k}",
    "ab{i,j},bc{j}->ac{i}",
    "abc{i},bd{i,j}->dca",
    "a{i,j}->a{j}",
    "ab{i}->b",
    "aab{i,j},b{i}->a{j}",
    "ab{i},cb->ac",
    "a{i},a{j}->",
    "ab{i,j},ba{i,j}->",
    "{i,k},{k,j}->{i,j}",
    "ab{i},bc{i,j},cd{j}->ad",
    "a{i},{i,j},b{j}->ab",
    "a{i},a{i},a{i}->a",
    "ab{i},ab{i}->a{i}",
    "...a{i},a{i}->...",
    "a{i},a{i}",
    "{i}->{i}",
]


def parts(spec):
    """By term: its letters, and its names."""
    left, arrow, right = spec.partition("->")
    terms = re.findall(r"([a-z.]*)(?:\{([^}]*)\})?(?:,|$)", left)[
        : left.replace(" ", "").count("},")
        + (1 if "{" in left else 0)
        + len(re.findall(r"(?:^|,)[a-z.]+(?=,|$)", left))
    ]
    found = [(a, n.split(",") if n else []) for a, n in terms if a or n]
    return found, right if arrow else None


def whole(spec):
    """The same in letters only, with the named axes of each operand first, as capitals."""
    ins, right = parts(spec)
    texts = ["".join(n).translate(LETTERS) + a for a, n in ins]
    if right is None:
        return ",".join(texts) + "->"
    a, names = right.partition("{")[::2]
    names = names.rstrip("}").replace(",", "")
    dots = "..." if "..." in a else ""
    return ",".join(texts) + "->" + names.translate(LETTERS) + dots + a.replace("...", "")


def operands(spec, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for a, names in parts(spec)[0]:
        dims = [SIZES[c] for c in [*names, *a.replace("...", "cb" if "..." in a else "")]]
        found.append(rng.standard_normal(dims).astype(np.float32))
    return found


def order_of(spec):
    every = dict.fromkeys(n for _, names in parts(spec)[0] for n in names)
    right = parts(spec)[1] or ""
    out = right.partition("{")[2].rstrip("}").split(",") if "{" in right else []
    return list(every), out


def over_maps(spec, f, keep=()):
    """`f`, mapped over all names of the spec except `keep`: results have the mapped axes first."""
    every, out = order_of(spec)
    ins = [n for _, n in parts(spec)[0]]
    order = [n for n in [*out, *[n for n in every if n not in out]] if n not in keep]
    mapped = f
    for level in reversed(range(len(order))):
        name, left = order[level], order[level:]
        rows = [[n for n in names if n in left] for names in ins]
        axes = tuple([row.index(name) if name in row else None for row in rows])
        mapped = sw.vmap(mapped, axes, 0 if name in out else None, axis_name=name)
    return mapped


def over_mesh(spec, f, names=("i", "j"), **options):
    every, out = order_of(spec)
    ins = [n for _, n in parts(spec)[0]]
    here = [n for n in every if n in names]

    def part(*args):
        given = []
        for x, own in zip(args, ins, strict=True):
            gone = tuple([d for d, n in enumerate(own) if n in here])
            given.append(jnp.squeeze(x, gone))
        found = over_maps(spec, f, keep=here)(*given)
        return jnp.expand_dims(found, tuple([d for d, n in enumerate(out) if n in here]))

    def spec_of(own):
        return P(*[n if n in here else None for n in own])

    return sw.shard_map(
        part,
        mesh=MESH,
        in_specs=tuple(map(spec_of, ins)),
        out_specs=spec_of(out),
        axis_names={*here},
        **options,
    )


WAYS = {
    "maps": over_maps,
    "mesh": over_mesh,
    "unchecked mesh": lambda spec, f: over_mesh(spec, f, check_vma=False),
    "both": lambda spec, f: over_mesh(spec, f, ("j",)) if "j" in order_of(spec)[0] else None,
}


@pytest.mark.parametrize("way", everyday(WAYS, 2))
def test_against_numpy(way):
    given, runs = {}, {}
    for spec in SPECS:
        run = WAYS[way](spec, lambda *xs, spec=spec: lax.xeinsum(spec, *xs))
        if run is not None and order_of(spec)[0]:
            given[spec], runs[spec] = operands(spec), run
    found = sw.jit(lambda xs: {spec: run(*xs[spec]) for spec, run in runs.items()})(given)
    for spec, xs in given.items():
        np.testing.assert_allclose(
            np.asarray(found[spec]), np.einsum(whole(spec), *xs), rtol=1e-3, atol=1e-4, err_msg=spec
        )


@pytest.mark.parametrize("way", ["maps", "mesh"])
def test_derivatives(way):
    specs = ["ab{i,j},bc{j}->ac{i}", "a{i},a{j}->{i,j}", "a{i},{i,j},b{j}->ab"]
    given = {spec: operands(spec) for spec in specs}

    def slopes(f):
        def loss(xs):
            return sum([jnp.sum(jnp.sin(f(spec)(*xs[spec]))) for spec in specs])

        return lambda xs: (sw.grad(loss)(xs), sw.jvp(loss, (xs,), (xs,)))

    einsums = slopes(lambda spec: lambda *xs: jnp.einsum(whole(spec), *xs))
    named = slopes(lambda spec: WAYS[way](spec, lambda *xs: jnp.einsum(spec, *xs)))
    check_program(sw.jit(named).trace(given).program)
    close(sw.jit(named)(given), sw.jit(einsums)(given), 2e-3)


def test_eagerly():
    spec = "ab{i,j},bc{j}->ac{i}"
    xs = operands(spec)
    for way in ("maps", "mesh"):
        got = WAYS[way](spec, lambda *xs: jnp.einsum(spec, *xs))(*xs)
        np.testing.assert_allclose(
            np.asarray(got), np.einsum(whole(spec), *xs), rtol=1e-3, atol=1e-4
        )


def test_pdot_of_dimensions_and_names():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 3, 5, 2)), rng.standard_normal((4, 2, 3, 7))
    x, y = x.astype(np.float32), y.astype(np.float32)
    wanted = np.einsum("iabc,icad->cbd", x, y)

    def f(x, y):
        return lax.pdot(x, y, "i", pos_contract=[[0], [1]], pos_batch=[[-1], [0]])

    got = sw.vmap(f, axis_name="i", out_axes=None)(x, y)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    on_devices = sw.shard_map(
        lambda x, y: f(x[0], y[0]), mesh=MESH, in_specs=P("i"), out_specs=P(), axis_names={"i"}
    )
    np.testing.assert_allclose(sw.jit(on_devices)(x, y), wanted, rtol=1e-4, atol=1e-5)
    sums = sw.vmap(lambda x: lax.pdot(x, 2.0, "i"), axis_name="i", out_axes=None)(x)
    np.testing.assert_allclose(sums, 2 * x.sum(0), rtol=1e-4, atol=1e-5)
    same = sw.vmap(
        lambda _: lax.pdot(x[0, 0, 0], y[0, :, 0, 0], "i", ((0,), (0,))),
        axis_name="i",
        out_axes=None,
    )(np.zeros(4))
    np.testing.assert_allclose(same, 4 * x[0, 0, 0] @ y[0, :, 0, 0], rtol=1e-4)


@pytest.mark.parametrize("dtype", [np.int8, np.complex64, jnp.bfloat16, bool])
def test_dtypes(dtype):
    x = (np.arange(12).reshape(4, 3) % 3).astype(dtype)
    wanted = jnp.einsum("ia,ib->ab", x, x)
    for way in ("maps", "mesh"):
        got = WAYS[way]("a{i},b{i}->ab", lambda x, y: lax.xeinsum("a{i},b{i}->ab", x, y))(x, x)
        close(got, wanted, 1e-2)
    mixed = sw.vmap(lambda x: lax.pdot(x, x.real + 0.5, "i"), axis_name="i", out_axes=None)(x)
    assert mixed.dtype == (x + x.real + np.float32(0.5)).dtype or dtype is jnp.bfloat16


def test_special_values_are_those_of_products():
    x = np.array([[np.nan, 1], [2, np.inf], [0, 1], [1, 1]], np.float32)
    y = np.array([1, 0, 5, 1], np.float32)
    with np.errstate(invalid="ignore"):
        wanted = np.einsum("ia,i->a", x, y)
    for way in ("maps", "mesh"):
        got = WAYS[way]("a{i},{i}->a", lambda x, y: lax.xeinsum("a{i},{i}->a", x, y))(x, y)
        np.testing.assert_array_equal(np.asarray(got), wanted)


def test_a_mapped_axis_is_one_product_and_an_axis_of_the_mesh_one_sum():
    spec = "ab{i},bc{i}->ac"
    xs = operands(spec)
    f = over_maps(spec, lambda *xs: lax.xeinsum(spec, *xs))
    assert [eqn.op.name for eqn in sw.jit(f).trace(*xs).program.eqns] == ["dot_general"]
    assert sent(over_mesh(spec, lambda *xs: lax.xeinsum(spec, *xs)), *xs) == {"all-reduce": 1}


def test_in_control_flow():
    xs = np.random.default_rng(0).standard_normal((4, 3, 5)).astype(np.float32)

    def f(x):
        def step(total, row):
            return total + lax.pdot(row, x, "i", ((0,), (1,))), None

        return lax.scan(sw.checkpoint(step), jnp.zeros(3), x)[0]

    total = lambda xs: jnp.sum(sw.vmap(f, axis_name="i", out_axes=None)(xs) ** 2)  # noqa: E731
    plain = lambda xs: jnp.sum(jnp.einsum("iab,icb->c", xs, xs) ** 2)  # noqa: E731
    close(sw.jit(sw.value_and_grad(total))(xs), sw.jit(sw.value_and_grad(plain))(xs), 1e-3)


X = np.ones((4, 3, 5), np.float32)
MISTAKES = """
lax.pdot(x, x, "i", ((0,), (1,)))
    ValueError: shardwise.lax.pdot: the dimensions of pos_contract must be pairs of equal size; got
    (3,) and (5,), (0,) of f32[3,5] and (1,) of f32[3,5].
lax.pdot(x, x, "i", ((2,), (1,)))
    ValueError: shardwise.lax.pdot: pos_contract for x=2 is not a dimension of f32[3,5]: it must be
    from -2 to 1.
lax.pdot(x, x, "i", ((0,), (0,)), ((0,), (0,)))
    ValueError: shardwise.lax.pdot: pos_contract and pos_batch must contain each dimension of x
    once; got (0,) and (0,).
lax.pdot(x, x, "i", (0,))
    TypeError: shardwise.lax.pdot: pos_contract must be a pair of sequences, of dimensions of x and
    of y; got (0,) of type tuple.
lax.pdot(x, x, "k")
    NameError: shardwise.lax.pdot: unbound axis name: k. The axes in scope are: 'i'. To bind an
    axis name, wrap the call in a map: `shardwise.vmap(f, axis_name='k')` or `shardwise.shard_map`.
lax.xeinsum(3, x)
    TypeError: shardwise.lax.xeinsum: spec must be a string, such as 'a{i},a{i}->'; got 3 of type
    int.
lax.xeinsum("ab{i},b{i}->a", x)
    ValueError: shardwise.lax.xeinsum: 2 terms for 1 operand, in 'ab{i},b{i}->a'.
lax.xeinsum("ab{i->a", x)
    ValueError: shardwise.lax.xeinsum: a brace is not closed, in 'ab{i->a'.
lax.xeinsum("a{i}b->a", x)
    ValueError: shardwise.lax.xeinsum: axis names must come last, separated by commas; got 'a{i}b',
    in 'a{i}b->a'.
lax.xeinsum("ab{k}->a", x)
    NameError: shardwise.lax.xeinsum: unbound axis name: k. The axes in scope are: 'i'. To bind an
    axis name, wrap the call in a map: `shardwise.vmap(f, axis_name='k')` or `shardwise.shard_map`.
lax.xeinsum("ab->a{i}", x)
    ValueError: shardwise.lax.xeinsum: the result has the axis 'i', which no operand has, in
    'ab->a{i}'.
jnp.einsum("ab{i}->c", x)
    ValueError: shardwise.numpy.einsum: the result has 'c', which no operand has, in 'ab{i}->c'.
jnp.einsum("a{i}->a", x)
    ValueError: shardwise.numpy.einsum: operand 0 has 2 dimensions, but its term 'a' has 1, in
    'a{i}->a'.
"""


@failing_calls(MISTAKES)
def test_messages(call, error):
    f = sw.vmap(lambda x: eval(call, globals(), {"x": x}), axis_name="i")
    assert raised(f, X) == error
