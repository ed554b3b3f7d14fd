"""Sums of products, rearrangements and reductions by logical axes, against NumPy."""

import random
from typing import Annotated

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import named
from shardwise.named import einsum, rearrange, reduce, rename
from shardwise.sharding import AxisType
from tests.helpers.errors import fails
from tests.helpers.everyday import everyday
from tests.helpers.meshes import MESH, mesh_of

RNG = np.random.default_rng(0)
A, B = (RNG.normal(size=s).astype(np.float32) for s in ((4, 6, 8), (8, 2)))
RULES = {"batch": "x", "seq": None, "heads": "y", "head": None, "embed": None, "other": "y"}


def each_way(f, *args):
    """The results of `f` without rules, and by rules over Auto and Explicit axes."""
    yield f(*args)
    for kind in AxisType.Auto, AxisType.Explicit:
        with named.rules(RULES, mesh_of(4, 2, types=(kind, kind))):
            yield sw.jit(f)(*args)


def test_einsum():
    def f(a, b):
        return einsum("batch seq embed, embed other -> other batch seq", a, b)

    plain, *placed = each_way(f, A, B)
    for y in (plain, *placed):
        np.testing.assert_allclose(y, np.einsum("bse,eo->obs", A, B), rtol=1e-4, atol=1e-5)
    assert all(y.sharding.spec.dims(3) == (("y",), ("x",), ()) for y in placed)


@pytest.mark.parametrize("case", everyday(range(24), 3))
def test_einsum_of_any_words_by_any_rules(case):
    rng = random.Random(case)
    words = rng.sample(["batch", "seq", "heads", "head", "embed"], 4)
    size = {word: rng.choice([1, 3, 4, 8]) for word in words}
    rows = [rng.sample(words, rng.randint(1, 3)) for _ in range(rng.randint(1, 3))]
    known = sorted({word for row in rows for word in row})
    out = rng.sample(known, rng.randint(0, len(known)))
    axes = [["x"], ["y"], ["x", "y"]]
    table = dict.fromkeys(words) | {out[0]: rng.choice(axes)} if out else dict.fromkeys(words)
    operands = [RNG.normal(size=[size[w] for w in row]).astype(np.float32) for row in rows]
    letters = {word: "abcd"[i] for i, word in enumerate(words)}
    plain = ",".join("".join(letters[w] for w in row) for row in rows)
    wanted = np.einsum(f"{plain}->{''.join(letters[w] for w in out)}", *operands)
    pattern = f"{', '.join(' '.join(row) for row in rows)} -> {' '.join(out)}"
    kind = rng.choice([AxisType.Auto, AxisType.Explicit])
    with named.rules(table, mesh_of(4, 2, types=(kind, kind))):
        for y in (einsum(pattern, *operands), sw.jit(lambda *xs: einsum(pattern, *xs))(*operands)):
            np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-4, err_msg=pattern)
            if out and size[out[0]] > 1:
                assert y.sharding.spec.dims(len(out))[0] == tuple(table[out[0]])


def test_a_contraction_over_a_split_axis():
    def f(a, b):
        return einsum("batch other, other embed -> batch embed", a, b)

    for y in each_way(f, A[:, :2, 0], B.T):
        np.testing.assert_allclose(y, A[:, :2, 0] @ B.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(einsum("batch seq embed -> ", A), A.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    "pattern, sizes, wanted",
    [
        ("batch seq embed -> embed batch seq", {}, A.transpose(2, 0, 1)),
        ("batch seq (heads head) -> batch heads seq head", {"heads": 2},
         A.reshape(4, 6, 2, 4).transpose(0, 2, 1, 3)),
        ("batch seq (heads head) -> (batch heads) seq head", {"head": 4},
         A.reshape(4, 6, 2, 4).transpose(0, 2, 1, 3).reshape(8, 6, 4)),
        ("batch seq embed -> batch 1 (seq embed) 1", {}, A.reshape(4, 1, 48, 1)),
        ("batch seq embed -> seq (embed batch)", {}, A.transpose(1, 2, 0).reshape(6, 32)),
    ],
)  # fmt: skip
def test_rearrange(pattern, sizes, wanted):
    for y in each_way(lambda x: rearrange(pattern, x, **sizes), A):
        np.testing.assert_array_equal(y, wanted)


def test_a_pattern_reads_no_sizes_around_it():
    """They are in no cache key: a jitted function would keep using those of its first caller."""

    @sw.jit
    def split(x):
        return rearrange("batch seq (heads head) -> heads batch seq head", x)

    @named.checked
    def f(x: Annotated[sw.Array, "batch seq embed"], w: Annotated[sw.Array, "heads head"]):
        return split(x)

    message = (
        "rearrange: the sizes of 'heads' and 'head' in 'batch seq (heads head)' are unknown. Pass "
        "all but one: rearrange(pattern, x, heads=...)."
    )
    fails(ValueError, message, f, A, np.ones((4, 2)))


def test_uneven_sizes():
    for y in each_way(lambda x: einsum("batch seq embed -> batch embed", x), A[:3]):
        np.testing.assert_allclose(y, A[:3].sum(1), rtol=1e-4, atol=1e-5)


def test_reduce_takes_a_function():
    with pytest.raises(TypeError) as caught:
        reduce("batch seq embed -> batch", A, by="mean")
    assert str(caught.value) == (
        "reduce: by must be a function of an array and `axis`, such as `shardwise.numpy.mean`; got "
        "'mean' of type str."
    )


def test_reduce():
    for y in each_way(lambda x: reduce("batch seq embed -> embed batch", x, by=snp.max), A):
        np.testing.assert_array_equal(y, A.max(1).T)
    for y in each_way(lambda x: reduce("batch seq embed -> batch 1 embed", x, snp.mean), A):
        np.testing.assert_allclose(y, A.mean(1, keepdims=True), rtol=1e-4, atol=1e-5)


def test_rename_sends_an_axis_elsewhere():
    with named.rules(RULES, MESH):
        y = sw.jit(lambda x: rename("batch seq embed -> batch other embed", x))(A)
    assert y.sharding.spec.dims(3) == (("x",), ("y",), ())
    np.testing.assert_array_equal(y, A)


@pytest.mark.parametrize(
    "fun, message",
    [
        (lambda: einsum("a b c, c d -> a e", A, B),
         "einsum: 'e' of 'a b c, c d -> a e' is in the result only."),
        (lambda: einsum("a b c -> a", A, B), "einsum: 'a b c -> a' is for 1 operand; got 2."),
        (lambda: einsum("a b c, a d -> b", A, B),
         "einsum: 'a' is 4 in operand 0, f32[4,6,8] as 'a b c', but 8 in operand 1, f32[8,2] as "
         "'a d'. Within a function, an axis has one size; use another name for another "
         "axis."),
        (lambda: einsum("a _ c -> a", A),
         "einsum: `_` in 'a _ c': in a pattern, each axis needs a name."),
        (lambda: einsum("a b -> a", A),
         "einsum: operand 0 is 'a b', which names 2 axes; got f32[4,6,8], which has 3."),
        (lambda: rearrange("a b c -> a b", A),
         "rearrange: 'c' of 'a b c -> a b' is on one side only. Both sides of the arrow must have "
         "the same axes."),
        (lambda: rearrange("a b -> b a", A),
         "rearrange: 'a b' has 2 dimensions; got f32[4,6,8]."),
        (lambda: rearrange("a b (c d) -> a b c d", A),
         "rearrange: the sizes of 'c' and 'd' in 'a b (c d)' are unknown. Pass all but one: "
         "rearrange(pattern, x, c=...)."),
        (lambda: rearrange("a b (c d) -> a b c d", A, c=3),
         "rearrange: a dimension of f32[4,6,8], of size 8, cannot be split into (c d) with c=3."),
        (lambda: rearrange("a b c -> a c b", A, c=3),
         "rearrange: 'c' is 8 in f32[4,6,8] as 'a b c', but 3 was given."),
        (lambda: rearrange("a b c -> a c b", A, d=3),
         "rearrange: got a size for 'd', which is not in 'a b c -> a c b'."),
        (lambda: reduce("a b c -> a e", A, snp.sum),
         "reduce: 'e' of 'a b c -> a e' is in the result only."),
        (lambda: rename("a b c -> a b", A),
         "rename: the two sides of 'a b c -> a b' must have the same number of axes."),
    ],
)  # fmt: skip
def test_patterns_that_do_not_fit(fun, message):
    fails(ValueError, message, fun)
