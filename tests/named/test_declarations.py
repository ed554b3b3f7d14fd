"""Logical axes of arguments and results: sizes are compared, values sharded, in all transforms."""

from typing import Annotated

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import Array, lax, named
from shardwise.named import axes, checked, einsum
from tests.helpers.errors import fails
from tests.helpers.meshes import MESH

Stream = Annotated[Array, "batch embed"]
Up, Down = Annotated[Array, "embed mlp"], Annotated[Array, "mlp embed"]
RULES = {"batch": "x", "mlp": "y", "embed": None, "layers": None}
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@checked
def mlp(x: Stream, up: Up, down: Down) -> Stream:
    hidden = einsum("batch embed, embed mlp -> batch mlp", x, up)
    return einsum("batch mlp, mlp embed -> batch embed", snp.tanh(hidden), down)


@checked
def of_tree(x: Stream, weights: Annotated[dict, {"w": "embed mlp"}], scale: float = 1.0):
    return (x @ weights["w"]) * scale


X, UP, DOWN = normal(8, 4), normal(4, 6), normal(6, 4)
WANTED = np.tanh(X @ UP) @ DOWN


def test_without_rules_words_are_checked_only():
    np.testing.assert_allclose(mlp(X, UP, DOWN), WANTED, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(of_tree(X, weights={"w": UP}, scale=2), 2 * X @ UP, rtol=1e-5)
    assert mlp.__name__ == "mlp"


@pytest.mark.parametrize("how", [lambda f: f, sw.jit, lambda f: sw.jit(sw.checkpoint(f))])
def test_values_are_placed(how):
    with named.rules(RULES, MESH):
        y = how(mlp)(X, UP, DOWN)
    np.testing.assert_allclose(y, WANTED, rtol=1e-4, atol=1e-5)
    assert y.sharding.spec.dims(2) == (("x",), ())


def test_gradients():
    def loss(*args):
        return snp.sum(mlp(*args) ** 2)

    plain = sw.grad(loss, (0, 1, 2))(X, UP, DOWN)
    with named.rules(RULES, MESH):
        placed = sw.jit(sw.grad(loss, (0, 1, 2)))(X, UP, DOWN)
    for a, b in zip(plain, placed, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    assert [g.sharding.spec.dims(2) for g in placed] == [
        (("x",), ()), ((), ("y",)), (("y",), ())
    ]  # fmt: skip


def test_scan_over_layers():
    up, down = normal(3, 4, 6), normal(3, 6, 4)

    def stack(x, up, down):
        return lax.scan(lambda x, w: (x + mlp(x, *w), None), x, (up, down))[0]

    wanted = X
    for u, d in zip(up, down, strict=True):
        wanted = wanted + np.tanh(wanted @ u) @ d
    with named.rules(RULES, MESH):
        y = sw.jit(stack)(X, up, down)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    assert y.sharding.spec.dims(2) == (("x",), ())


def test_vmap_over_a_word():
    @checked
    def one(x: Annotated[Array, "embed"], up: Annotated[Array, "embed mlp"]):
        hidden = einsum("embed, embed mlp -> mlp", x, up)
        return hidden, hidden - lax.pmean(hidden, "batch")

    takes, gives = ("embed batch", "embed mlp"), ("batch mlp", "mlp batch")
    f = named.vmap(one, "batch", takes, gives)
    wanted = X @ UP
    with named.rules(RULES, MESH):
        for g in (f, sw.jit(f)):
            y, centred = g(X.T, UP)
            np.testing.assert_allclose(y, wanted, rtol=1e-5)
            np.testing.assert_allclose(centred, (wanted - wanted.mean(0)).T, atol=1e-5)
            assert y.sharding.spec.dims(2) == (("x",), ("y",))
            assert centred.sharding.spec.dims(2) == (("y",), ("x",))
        text = sw.jit(f).lower(X.T, UP).as_text()
    assert '[{"x"}, {"y"}]' in text  # also inside, where the function only names `mlp`


def test_trees_may_leave_values_unspoken():
    tree = {"a": X, "key": sw.random.key(0)}
    with named.rules(RULES, MESH):
        placed = axes(tree, {"a": "batch _", "key": None})
    assert placed["key"] is tree["key"]
    assert placed["a"].sharding.spec.dims(2) == (("x",), ())


def test_another_number_of_dimensions():
    message = "mlp: x is 'batch embed', which names 2 axes; got f32[8,4,1], which has 3."
    fails(ValueError, message, mlp, X[..., None], UP, DOWN)
    message = "of_tree: weights['w'] is 'embed mlp', which names 2 axes; got f32[4], which has 1."
    fails(ValueError, message, of_tree, X, {"w": UP[:, 0]})


def test_a_word_of_two_sizes():
    message = (
        "mlp: 'mlp' is 6 in up, f32[4,6] as 'embed mlp', but 5 in down, f32[5,4] as 'mlp embed'. "
        "Within a function, an axis has one size; use another name for another axis."
    )
    fails(ValueError, message, mlp, X, UP, DOWN[:5])
    fails(ValueError, message, sw.jit(mlp), X, UP, DOWN[:5])


def test_words_hold_inside_of_the_call_and_not_outside():
    @checked
    def outer(x: Stream) -> Stream:
        axes(x[:2], "embed _")  # 2, where it is 4
        return x

    message = (
        "axes: 'embed' is 4 in x, f32[8,4] as 'batch embed', but 2 in x, f32[2,4] as 'embed _'. "
        "Within a function, an axis has one size; use another name for another axis."
    )
    fails(ValueError, message, outer, X)

    @checked
    def calls(x: Stream) -> Stream:
        mlp(x.T, normal(8, 6), normal(6, 8))  # there, `embed` is a different axis
        return x

    calls(X)


def test_a_result_is_checked():
    @checked
    def turned(x: Stream) -> Stream:
        return x.T

    message = (
        "turned: 'batch' is 8 in x, f32[8,4] as 'batch embed', but 4 in result, f32[4,8] as "
        "'batch embed'. Within a function, an axis has one size; use another name for "
        "another axis."
    )
    fails(ValueError, message, turned, X)


def test_a_tree_of_another_structure():
    message = (
        "of_tree: the axes of weights must be a pytree prefix of the values that it describes, "
        "with one entry for each value or for a whole subtree: weights has the key 'w', which the "
        "value lacks; the value has the key 'v', which weights lacks."
    )
    with pytest.raises(ValueError) as caught:
        of_tree(X, {"v": UP})
    assert str(caught.value).startswith(message[:90])


def test_a_call_that_does_not_fit():
    message = "mlp: missing a required argument: 'down'."
    fails(TypeError, message, mlp, X, UP)


def test_annotations_without_words():
    def plain(x: Array) -> Array:
        return x

    def unknown(x: "Nowhere") -> Array:  # noqa: F821
        return x

    message = (
        "checked: no annotation of plain has logical axes. Write them as in "
        "`x: Annotated[Array, 'batch embed']`."
    )
    fails(TypeError, message, checked, plain)
    message = (
        "checked: an annotation of unknown cannot be read: name 'Nowhere' is not defined. Define "
        "what annotations name at the top of the module."
    )
    fails(TypeError, message, checked, unknown)


def test_mistakes_of_vmap():
    def f(x):
        return axes(x, "batch")

    message = "named.vmap of f: no argument has the axis 'seq'; got 'batch embed'."
    fails(ValueError, message, named.vmap, f, "seq", ("batch embed",), "seq")
    message = "named.vmap of f has axes for 1 argument; got 2."
    fails(TypeError, message, named.vmap(f, "batch", ("batch embed",), "batch embed"), X, X)
    message = (
        "axes: x, f32[4] as 'batch' has 'batch', which `shardwise.named.vmap` maps here: a value "
        "inside has no such axis. Leave it out."
    )
    fails(ValueError, message, named.vmap(f, "batch", ("batch embed",), "batch embed"), X)
    message = (
        "axes: by the rules, 'batch' and 'other' are both sharded over mesh axis 'x', which can "
        "shard only one of them. Choose another for one; or, if it should be sharded only where "
        "parameters and states are stored, use `stored('x')`."
    )
    g = named.vmap(lambda x: axes(x, "other"), "batch", ("batch embed",), "batch embed")
    with named.rules(RULES | {"other": "x"}, MESH):
        fails(ValueError, message, g, X)
