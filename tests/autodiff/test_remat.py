"""checkpoint: values and derivatives of jax under every transform, saved residuals, and memory."""

import functools
import re

import jax
import jax.ad_checkpoint
import numpy as np
import pytest
from jax._src.ad_checkpoint import saved_residuals as jax_saved_residuals

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import ad_checkpoint, checkpoint_policies
from shardwise._src.core.checker import check_program
from shardwise.ad_checkpoint import Offloadable, checkpoint_name, saved_residuals
from tests.helpers.comparing import close
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tests.helpers.same_as_jax import JAX, OURS, same_as_jax

W = np.random.RandomState(0).standard_normal((3, 3)).astype(np.float32)
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def name_in(lib):
    return checkpoint_name if lib is OURS else jax.ad_checkpoint.checkpoint_name


def layers(lib, w, x):
    """Two products, with named intermediate values."""
    name = name_in(lib)
    h = name(lib.np.sin(x @ w), "first")
    h = lib.np.tanh(h @ w)
    h = name(h @ w, "second")
    return lib.np.sum(lib.np.sin(h) ** 2)


def policy_in(lib, policy):
    if policy is None:
        return None
    name, *args = policy
    found = getattr(lib.root.checkpoint_policies, name)
    args = [policy_in(lib, a) if isinstance(a, tuple) else a for a in args]
    return found(*args) if args else found


POLICIES = [
    None,
    ("nothing_saveable",),
    ("everything_saveable",),
    ("dots_saveable",),
    ("dots_with_no_batch_dims_saveable",),
    ("save_only_these_names", "first"),
    ("save_any_names_but_these", "first"),
    ("save_anything_except_these_names", "first"),
    ("save_from_both_policies", ("dots_saveable",), ("save_only_these_names", "first")),
]


def scanned(lib, w, x):
    """A scan of layers."""
    name = name_in(lib)

    def step(c, w):
        return name(lib.np.sin(c @ w), "first"), None

    return lib.np.sum(lib.lax.scan(step, x, lib.np.stack([w, w * 0.5, w]))[0] ** 2)


def chosen(lib, w, x):
    """A branch with a product, and one without."""
    name = name_in(lib)

    def yes(w, x):
        return lib.np.sin(name(lib.np.sin(x @ w), "first"))

    return lib.np.sum(lib.lax.cond(x[0, 0] < 0, yes, lambda w, x: lib.np.cos(x), w, x) ** 2)


def called(lib, w, x):
    """Nested jit, called twice."""
    inner = lib.root.jit(lambda w, x: lib.np.sin(x @ w))
    return lib.np.sum(inner(w, inner(w, x)))


FUNCTIONS = {f.__name__: f for f in (layers, scanned, chosen, called)}

# -------------------------------------------------------------------------- transforms


def test_every_transform():
    """One checkpoint inside another, with a policy and a scan inside."""

    def f(lib, w, x):
        def step(c, w):
            return lib.np.sin(c @ w), None

        policy = lib.root.checkpoint_policies.dots_saveable
        inner = functools.partial(lib.root.checkpoint, policy=policy)(
            lambda w, x: lib.lax.scan(step, x, lib.np.stack([w, w]))[0]
        )
        return lib.root.checkpoint(lambda x: lib.np.sum(inner(w, x)))(x)

    same_as_jax(f, W, X, axes=(None, 0))


def slopes_as_jax(f, *args):
    """First and second derivatives of a function to scalars, eagerly and under jit."""

    def of(lib):
        slope = lib.root.grad(functools.partial(f, lib), (0, 1))
        twice = lib.root.grad(lambda *a: lib.np.sum(lib.np.sin(slope(*a)[0])), (0, 1))
        return slope, twice

    for i, (ours, theirs) in enumerate(zip(of(OURS), of(JAX), strict=True)):
        wanted = jax.jit(theirs)(*args)
        close(sw.jit(ours)(*args), wanted)
        if not i:
            close(ours(*args), wanted)


@pytest.mark.parametrize("name", everyday(["chosen", "called"], 1))
def test_derivatives(name):
    f = FUNCTIONS[name]
    slopes_as_jax(lambda lib, *a: lib.root.checkpoint(functools.partial(f, lib))(*a), W, X)


def test_inside_scan():
    def f(lib, w, x):
        @functools.partial(lib.root.checkpoint, prevent_cse=False)
        def step(c, w):
            return lib.np.tanh(c @ w), lib.np.sum(c)

        c, ys = lib.lax.scan(step, x, lib.np.stack([w, w * 0.5, w]))
        return lib.np.sum(c) + lib.np.sum(ys**2)

    slopes_as_jax(f, W, X)


def test_custom_rules_inside():
    def f(lib, w, x):
        @lib.root.custom_vjp
        def product(x, w):
            return x @ w

        # A factor of 3 that the function does not have shows that the rule is used.
        product.defvjp(
            lambda x, w: (x @ w, (x, w)),
            lambda kept, ct: (3.0 * ct @ kept[1].T, 3.0 * kept[0].T @ ct),
        )

        @lib.root.custom_jvp
        def sine(x):
            return lib.np.sin(x)

        sine.defjvps(lambda t, out, x: 5.0 * t * lib.np.cos(x))
        run = lib.root.checkpoint(lambda w, x: lib.np.sum(sine(product(sine(x), w))))
        return lib.root.grad(run, (0, 1))(w, x)

    close(f(OURS, W, X), f(JAX, W, X))
    close(sw.jit(lambda w, x: f(OURS, w, x))(W, X), f(JAX, W, X))


def test_values_from_outside():
    def f(lib, w, x):
        return lib.root.checkpoint(lambda x: lib.np.sum(lib.np.sin(x @ w) * X))(x)

    slopes_as_jax(f, W, X)


def test_trees_static_arguments_and_keywords():
    def f(lib, w, x):
        def block(flag, params, *, scale, kind):
            y = params["x"] @ params["w"] if flag == "product" else params["x"]
            return {"y": lib.np.sin(y) * scale if kind else y, "none": None}

        wrapped = lib.root.checkpoint(block, static_argnums=(0,), static_argnames="kind")
        found = wrapped("product", {"w": w, "x": x}, scale=2.0, kind=[1])
        assert found["none"] is None
        return lib.np.sum(lib.np.sin(found["y"]))

    slopes_as_jax(f, W, X)


def test_static_arguments_are_told_apart_by_class_and_sign():
    """Equal ones are not the same: 0.0 and -0.0, (1,) and (1.0,)."""
    g = sw.checkpoint(lambda x, s: swnp.copysign(x, s), static_argnums=1)
    assert [float(y) for y in sw.jit(lambda x: [g(x, 0.0), g(x, -0.0)])(2.0)] == [2.0, -2.0]
    h = sw.checkpoint(lambda x, s: x * s[0], static_argnums=1)
    found = sw.jit(lambda x: [h(x, (1,)), h(x, (1.0,))])(np.int32(2))
    assert [y.dtype for y in found] == ["int32", "float32"]


def test_outside_of_transforms_arrays_come_and_go():
    f = sw.checkpoint(lambda d, on: (d["x"].reshape(1) if on else 0, 2.5), static_argnums=1)
    rows = [((1,), 1.5), ((), 2.5)]
    for x, (shape, value) in zip(f({"x": 1.5}, True), rows, strict=True):
        assert isinstance(x, sw.Array) and (x.shape, x.weak_type) == (shape, True)
        assert x.item() == value


def test_prevent_cse_by_argument():
    f = sw.checkpoint(lambda x, y: swnp.sin(swnp.sin(x) * y), prevent_cse=(False, True))
    g = jax.checkpoint(lambda x, y: jax.numpy.sin(jax.numpy.sin(x) * y), prevent_cse=(False, True))
    np.testing.assert_allclose(sw.jit(sw.grad(f))(2.0, 3.0), jax.grad(g)(2.0, 3.0), rtol=1e-6)


def test_prevent_cse_is_a_prefix_of_the_arguments():
    def loss(lib, x, **options):
        f = lib.root.checkpoint(lambda tree: tree["x"] @ tree["w"], **options)
        return lib.np.sum(f({"w": x, "x": x[0]}))

    for prefix in (({"w": False, "x": True},), [True], (True,)):
        same_as_jax(
            lambda lib, x, p=prefix: lib.root.grad(lambda x: loss(lib, x, prevent_cse=p))(x), W
        )


def cosines(op, *types, **params):
    return str(op) == "cos"


@pytest.mark.parametrize("loop", [True, False])
def test_nothing_is_recomputed_in_loops_and_branches_that_is_not_needed(loop):
    def f(x):
        if loop:
            return sw.lax.scan(lambda c, _: (swnp.sin(c), swnp.sin(c)), x, None, length=3)
        return sw.lax.cond(x > 0, swnp.sin, lambda x: x, x)

    text = str(sw.linearize(sw.checkpoint(f, policy=cosines), 4.0)[1].func.args[0])
    assert " mul " in text and " cos " not in text and " sin " not in text


def test_a_function_is_staged_once():
    calls = []

    @sw.checkpoint
    def f(x):
        calls.append(1)
        return swnp.sum(swnp.sin(x))

    for _ in range(3):
        sw.grad(f)(X)
    assert len(calls) == 1
    assert float(f(X)) == pytest.approx(float(np.sin(X).sum()), abs=1e-6)  # eager: it just runs
    assert len(calls) == 2


# --------------------------------------------------------------------- saved residuals


@pytest.mark.parametrize("policy", everyday(POLICIES, 2), ids=lambda p: p[0] if p else "None")
@pytest.mark.parametrize("name", ["layers", "scanned", "called"])
def test_as_many_residuals_as_jax_keeps(name, policy):
    def kept(lib, find):
        f = lib.root.checkpoint(
            functools.partial(FUNCTIONS[name], lib), policy=policy_in(lib, policy)
        )
        return sorted(t.str_short(True) for t, _ in find(f, W, X)), f

    ours, f = kept(OURS, saved_residuals)
    theirs, g = kept(JAX, jax_saved_residuals)
    if (name, len(theirs)) == ("scanned", 5):
        theirs.remove("f32[2,3]")  # x, which no remaining equation uses
    assert ours == theirs
    close(sw.jit(sw.grad(f, (0, 1)))(W, X), jax.jit(jax.grad(g, (0, 1)))(W, X))
    check_program(sw.jit(sw.grad(f, (0, 1))).trace(W, X).program)


@pytest.mark.parametrize(
    "policy",
    everyday([("dots_saveable",), ("save_only_these_names", "first")], 1),
    ids=lambda p: p[0],
)
def test_what_is_saved_in_a_branch(policy):
    policy = policy_in(OURS, policy)
    f = sw.checkpoint(functools.partial(chosen, OURS), policy=policy)
    found = [t.str_short(True) for t, _ in saved_residuals(f, W, X)]
    assert found == ["f32[3,3]", "f32[2,3]", "f32[2,3]"]
    for x in (X, X + 2):
        wanted = jax.grad(functools.partial(chosen, JAX), (0, 1))(W, x)
        close(sw.grad(f, (0, 1))(W, x), wanted)
        close(sw.jit(sw.grad(f, (0, 1)))(W, x), wanted)


def test_the_program_of_a_gradient_holds_what_is_saved():
    def dots(policy):
        f = sw.checkpoint(functools.partial(layers, OURS), policy=policy)
        program = sw.jit(sw.grad(f)).trace(W, X).program
        inside = [e.params["program"] for e in program.eqns if e.op.name == "checkpoint"]
        return len(inside), str(inside[0]).count("dot_general")

    # Three products of the function, and five of the gradient in w.
    assert dots(None) == (1, 3 + 5)
    assert dots(checkpoint_policies.dots_saveable) == (1, 5)
    assert dots(checkpoint_policies.save_only_these_names("second")) == (1, 2 + 5)


def test_print_saved_residuals(capsys):
    def f(w, x):
        return swnp.sum(swnp.sin(checkpoint_name(x @ w, "product")))

    ad_checkpoint.print_saved_residuals(f, W, x=X)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["f32[3,3] from the argument w", "f32[2,3] from the argument x"]
    assert re.fullmatch(r"f32\[2,3\] output of cos from .*test_remat.py:\d+ \(f\)", lines[2])
    ad_checkpoint.print_saved_residuals(
        sw.checkpoint(f, policy=checkpoint_policies.save_only_these_names("product")), W, X
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["f32[3,3] from the argument w", "f32[2,3] from the argument x"]
    assert re.fullmatch(r"f32\[2,3\] named 'product' from .*test_remat.py:\d+ \(\w+\)", lines[2])
    assert len(lines) == 3


def test_policies_with_equal_names_are_one():
    p = checkpoint_policies
    one, other = p.save_only_these_names("a", "b"), p.save_only_these_names("b", "a")
    assert one == other and hash(one) == hash(other)
    named = {
        "names_which_can_be_saved": ["a"],
        "names_which_can_be_offloaded": ["b"],
        "offload_src": "device",
        "offload_dst": "pinned_host",
    }
    make = p.save_and_offload_only_these_names
    assert make(**named) is make(**named)


# ----------------------------------------------------------------------- offloading


@pytest.mark.parametrize("name", everyday(["layers", "scanned", "chosen"], 1))
def test_offloading(name):
    policy = checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=["second"],
        names_which_can_be_offloaded=["first"],
        offload_src="device",
        offload_dst="pinned_host",
    )
    f = functools.partial(FUNCTIONS[name], OURS)
    g = sw.jit(sw.grad(sw.checkpoint(f, policy=policy), (0, 1)))
    text = str(g.trace(W, X).program)
    assert "to_memory[space=Space.Host]" in text and "to_memory[space=Space.Device]" in text
    wanted = jax.grad(functools.partial(FUNCTIONS[name], JAX), (0, 1))(W, X)
    close(g(W, X), wanted)
    close(sw.grad(sw.checkpoint(f, policy=policy), (0, 1))(W, X), wanted)


def test_offloading_products():
    policy = checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    f = functools.partial(layers, OURS)
    g = sw.jit(sw.grad(sw.checkpoint(f, policy=policy)))
    assert str(g.trace(W, X).program).count("to_memory[space=Space.Host]") == 3
    close(g(W, X), jax.grad(functools.partial(layers, JAX))(W, X))


# --------------------------------------------------------------------------- memory


N, DEPTH = 128, 12


def chain(wrap):
    def block(ws, x):
        for w in ws:
            x = swnp.tanh(x @ w)
        return x

    def loss(x, ws):
        for i in range(0, DEPTH, 4):
            x = wrap(block)(ws[i : i + 4], x)
        return swnp.sum(x)

    return loss


def compiled(wrap, *args):
    found = sw.jit(sw.grad(chain(wrap))).lower(*args).compile()
    dots = len(re.findall(r" dot\(|custom-call\(.*matmul", found.as_text()))
    return found.memory_analysis().temp_size_in_bytes, dots


def chain_args():
    ws = [np.eye(N, dtype=np.float32) + 0.01 * i for i in range(DEPTH)]
    return np.full((N, N), 0.01, np.float32), ws


def test_memory_goes_down_and_products_are_computed_again():
    args = chain_args()
    plain, dots = compiled(lambda f: f, *args)
    less, more_dots = compiled(sw.checkpoint, *args)
    assert dots == 2 * DEPTH
    assert more_dots == 3 * DEPTH - 4  # the last block does not run forwards: x is not needed
    assert less < 0.7 * plain
    merged, merged_dots = compiled(functools.partial(sw.checkpoint, prevent_cse=False), *args)
    assert (merged, merged_dots) == (plain, dots)
    close(sw.jit(sw.grad(chain(sw.checkpoint)))(*args), sw.jit(sw.grad(chain(lambda f: f)))(*args))


def test_memory_goes_down_on_several_devices():
    mesh = sw.sharding.Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))
    place = lambda x, *spec: sw.device_put(x, sw.NamedSharding(mesh, sw.P(*spec)))  # noqa: E731
    x, ws = chain_args()
    args = place(x, "x", None), [place(w, None, "y") for w in ws]
    plain, _ = compiled(lambda f: f, *args)
    less, _ = compiled(sw.checkpoint, *args)
    assert less < 0.7 * plain
    got = sw.jit(sw.grad(chain(sw.checkpoint)))(*args)
    close(got, sw.jit(sw.grad(chain(lambda f: f)))(x, ws))
    assert got.sharding.device_set == set(mesh.devices.flat)


def test_uneven_and_explicit_shards():
    mesh = sw.make_mesh((4,), ("x",))
    x = np.linspace(-1, 1, 21, dtype=np.float32).reshape(7, 3)
    f, plain = functools.partial(layers, OURS), functools.partial(layers, JAX)
    for made in (mesh, sw.sharding.Mesh(mesh.devices, ("x",))):
        given = x[:4] if made is mesh else x
        placed = sw.device_put(given, sw.NamedSharding(made, sw.P("x")))
        got = sw.jit(sw.grad(sw.checkpoint(f), (0, 1)))(W, placed)
        close(got, jax.grad(plain, (0, 1))(W, given))
        assert got[1].sharding.is_equivalent_to(placed.sharding, 2)


# --------------------------------------------------------------------------- effects


def test_effects_happen_once():
    seen = []

    @sw.checkpoint
    def f(x):
        y = swnp.sin(x)
        sw.debug.callback(lambda v: seen.append(float(v)), y)
        return swnp.sin(y)

    sw.jit(sw.grad(f))(np.float32(0))
    sw.effects_barrier()
    assert seen == [0.0]


def test_a_call_whose_result_is_saved_happens_once():
    seen = []

    def told(v):
        seen.append(float(v))
        return np.float32(3)

    @sw.checkpoint
    def f(x):
        y = sw.experimental.io_callback(told, np.float32(0), sw.lax.stop_gradient(x))
        return swnp.sin(x) * y

    assert sw.jit(sw.grad(f))(np.float32(0)) == 3
    sw.effects_barrier()
    assert seen == [0.0]


# ---------------------------------------------------------------------------- errors


def test_messages():
    def f(x):
        return x if x > 0 else -x

    assert message(TypeError, sw.checkpoint, 1) == ("checkpoint: fun must be a function; got 1.")
    assert message(TypeError, sw.checkpoint, f, prevent_cse=2) == (
        "checkpoint: prevent_cse must be True or False, or a tuple with pytrees of them; got 2."
    )
    assert message(TypeError, sw.checkpoint, f, policy="dots") == (
        "checkpoint: policy must be a function; got 'dots'."
    )
    assert message(ValueError, sw.grad(sw.checkpoint(f, static_argnums=1)), 1.0) == (
        "checkpoint of f: static_argnums=1 refers to argument 1, but the function was called with "
        "1 positional argument."
    )
    assert message(TypeError, sw.checkpoint(f), "a") == (
        "checkpoint of f: x is 'a' of type str, which is not an array. Name arguments that are "
        "constants in static_argnums or static_argnames."
    )
    assert message(TypeError, sw.checkpoint(lambda x: "text"), 1.0) == (
        "checkpoint: the result of <lambda> is 'text' of type str, which is not an array."
    )
    assert message(TypeError, sw.grad(sw.checkpoint(lambda x: "text")), 1.0) == (
        "checkpoint: the result of <lambda> is 'text' of type str, which is not an array."
    )
    found = message(sw.errors.TracerBoolConversionError, sw.grad(sw.checkpoint(f)), 1.0)
    assert found.endswith("or mark the argument static with `static_argnums`.")
    strange = sw.checkpoint(swnp.sin, policy=lambda *a, **p: Offloadable("device", "disk"))
    assert message(ValueError, sw.grad(strange), 1.0) == (
        "checkpoint: a policy can only offload from 'device' to 'pinned_host'; got "
        "Offloadable(src='device', dst='disk')."
    )
    assert message(
        ValueError,
        checkpoint_policies.save_and_offload_only_these_names,
        names_which_can_be_saved=["a"],
        names_which_can_be_offloaded=["a"],
        offload_src="device",
        offload_dst="pinned_host",
    ) == (
        "save_and_offload_only_these_names: a value is saved or offloaded, not both; both lists "
        "contain 'a'."
    )


def test_recomputation_has_no_dead_code():
    def save_cos(op, *types, **params):
        return op.name == "cos"

    def looped(x):
        return sw.lax.scan(lambda c, _: (swnp.sin(c), swnp.sin(c)), x, None, length=3)

    def chosen(x):
        return sw.lax.cond(x > 0, swnp.sin, lambda x: x, x)

    for f in (looped, chosen):
        derivative = sw.linearize(sw.checkpoint(f, policy=save_cos), 4.0)[1]
        text = str(sw.make_jaxpr(derivative)(1.0))
        assert " sin " not in text and " cos " not in text
        nothing = sw.linearize(sw.checkpoint(f), 4.0)[1]
        assert " cos " in str(sw.make_jaxpr(nothing)(1.0))
    assert sw.checkpoint(lambda d: d["a"] * 2, prevent_cse=({"a": False},))({"a": 1.0}) == 2.0


def test_the_first_run_computes_only_results_and_saved_values():
    sine = sw.custom_vjp(lambda x: swnp.sin(x))
    sine.defvjp(
        lambda x: (swnp.sin(x), checkpoint_name(swnp.cos(x), "cos")), lambda cos, ct: (cos * ct,)
    )
    for names, here in (((), False), (("cos",), True)):
        policy = sw.checkpoint_policies.save_only_these_names(*names)
        f = sw.checkpoint(sine, policy=policy)
        first = sw.jit(lambda x, f=f: sw.vjp(f, x)).trace(np.float32(2)).jaxpr
        y, back = sw.vjp(f, np.float32(2))
        assert (" cos " in str(first), " cos " in str(sw.make_jaxpr(back)(y))) == (here, not here)
