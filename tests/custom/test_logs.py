"""Values that backward rules log: `custom_vjp.defvjp_with_logs`, `custom_gradient(with_logs=True)`.

The release of jax that is the oracle of other tests does not have them.
"""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as swnp
from shardwise import lax
from tests.helpers.comparing import close
from tests.helpers.errors import message

X = np.float32([0.5, 1.0, 2.0])


def sine(name):
    """sin, whose rule logs its argument and the cotangent under a name."""
    f = sw.custom_vjp(swnp.sin)
    f.defvjp_with_logs(
        lambda x: (swnp.sin(x), x), lambda x, ct: ((ct * swnp.cos(x),), {name: {"x": x, "ct": ct}})
    )
    return f


f = sine("f")
TRANSFORMS = {
    "plain": f,
    "jit": sw.jit(f),
    "checkpoint": sw.checkpoint(f),
    "jit of checkpoint": sw.jit(sw.checkpoint(f)),
    "vmap": sw.vmap(f),
    "scan": lambda xs: lax.scan(lambda c, x: (c, f(x)), None, xs)[1],
    "jit of reverse scan": sw.jit(
        lambda xs: lax.scan(lambda c, x: (c, sw.jit(f)(x)), None, xs, reverse=True)[1]
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_logs(name):
    ct = swnp.asarray(X * 2)
    back = sw.vjp(TRANSFORMS[name], X)[1]
    wanted = ((X * 2 * np.cos(X),), {"f": {"ct": X * 2, "x": X}})
    for found in (
        back.with_logs(ct),
        sw.jit(lambda back, ct: back.with_logs(ct))(back, ct),
        sw.jit(lambda x: sw.vjp(TRANSFORMS[name], x)[1].with_logs(ct))(X),
        sw.vmap(lambda x, ct: sw.vjp(f, x)[1].with_logs(ct))(X, ct),
    ):
        close(found, wanted)
    close(back(ct), wanted[0])  # without logs


def test_names():
    back = sw.vjp(lambda x: sine("a")(sine("b")(sine("a")(x))), 0.5)[1]
    (dx,), logs = back.with_logs(1.0)
    assert set(logs) == {"a", "b"} and logs["a"]["x"] == 0.5  # of the first call
    assert dx == back(1.0)[0]
    ref = sw.new_ref(0.0)
    cts, logs = back.with_logs.with_refs(ref)(1.0)
    assert logs["a"]["x"] == 0.5 and ref[...] == dx and isinstance(cts[0], sw.ad.GradRef)
    assert sw.vjp(swnp.cos, 0.5)[1].with_logs(1.0)[1] == {}


def test_custom_gradient():
    @sw.custom_gradient(with_logs=True)
    def g(x, y):
        return x * y, lambda ct: ((ct * y, ct * x), {"g": ct})

    assert g(3.0, 4.0) == 12 and sw.grad(g)(3.0, 4.0) == 4
    cts, logs = sw.vjp(g, 3.0, 4.0)[1].with_logs(2.0)
    assert cts == (8, 6) and logs == {"g": 2}
    silent = sw.custom_gradient(lambda x: (x, lambda ct: (ct, None)), with_logs=True)
    assert sw.vjp(silent, 3.0)[1].with_logs(2.0) == ((2,), {})


def test_a_ref_as_an_argument():
    g = sw.custom_vjp(lambda ref, x: x * 2)
    g.defvjp_with_logs(lambda ref, x: (x * 2, ref), lambda ref, ct: ((None, ct), {"ref": ref[...]}))
    ref = sw.new_ref(5.0)
    assert sw.vjp(lambda x: g(ref, x), 1.0)[1].with_logs(1.0) == ((1,), {"ref": 5})


def test_messages():
    branch = lambda x: lax.cond(x > 0, f, lambda x: x, x)  # noqa: E731
    back = sw.vjp(branch, 1.0)[1]
    assert message(NotImplementedError, back.with_logs, 1.0) == (
        "with_logs: a backward rule in sin logs values inside of a branch, a `shard_map` or a "
        "kernel, which do not return logs. Log them outside of it, or write them to a ref."
    )
    close(back(1.0), (np.cos(np.float32(1)),))
    wrong = sw.custom_vjp(lambda x: x)
    wrong.defvjp_with_logs(lambda x: (x, None), lambda _, ct: ((ct,), 3))
    assert message(TypeError, sw.grad(wrong), 1.0) == (
        "<lambda>, the bwd rule of custom_vjp function <lambda>, must return logs as a dict, or "
        "None, after its cotangents; it returned 3 of type int."
    )
    wrong.defvjp_with_logs(lambda x: (x, None), lambda _, ct: ct)
    assert "must return a pair (cotangents, logs)" in message(TypeError, sw.grad(wrong), 1.0)
