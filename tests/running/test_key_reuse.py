"""`debug_key_reuse`: keys that are used twice are reported; other keys are not."""

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax, random
from shardwise.errors import KeyReuseError
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday

ONES = np.ones(3, np.float32)


@pytest.fixture(autouse=True)
def checking():
    with sw.debug_key_reuse(True):
        yield


def key(seed=0):
    return random.key(seed)


def keys(count):
    return random.split(key(), count)


def both(k1, k2):
    return random.normal(k1) + random.uniform(k2)


def summed(body, init, *args):
    return lax.scan(lambda c, x: (c + body(x), None), init, *args)[0]


# -- reuse that is found --


def eager():
    k = key()
    return both(k, k)


def parts_and_whole():
    ks = keys(3)
    random.normal(ks[0])
    return sw.vmap(random.normal)(ks)


def same_part():
    ks = keys(3)
    return both(ks[0], ks[-3])


def another_shape():
    k = key()
    return both(k.reshape(1)[0], k)


def calls():
    f, k = sw.jit(random.normal), key()
    return f(k) + f(k)


def closed_over():
    k = key()
    f = sw.jit(lambda: random.normal(k))
    return f() + f()


def after_a_loop():
    ks = keys(4)
    summed(random.normal, 0.0, ks)
    return random.normal(ks[3])


def after_a_branch():
    f = sw.jit(lambda p, k: lax.cond(p, random.normal, lambda k: 0.0, k) + random.normal(k))
    return f(True, key())


def in_a_test():
    k = key()
    return lax.while_loop(lambda x: x < random.uniform(k), lambda x: x + 1, 0.0)


def in_a_map():
    mesh = Mesh(np.array(sw.devices()[:2]), ("x",))
    f = sw.shard_map(lambda ks: sw.vmap(both)(ks, ks), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    return f(keys(4))


TWICE = {
    "eager": eager,
    "split": lambda: (lambda k: (random.split(k), random.normal(k)))(key()),
    "jit": lambda: sw.jit(lambda k: both(k, k))(key()),
    "arguments": lambda: (lambda k: sw.jit(both)(k, k))(key()),
    "calls": calls,
    "closed over": closed_over,
    "nested jit": lambda: sw.jit(lambda k: sw.jit(random.normal)(k) + random.normal(k))(key()),
    "same part": same_part,
    "same part in jit": lambda: sw.jit(lambda ks: both(ks[1], ks[1]))(keys(2)),
    "parts and whole": parts_and_whole,
    "another shape": another_shape,
    "scan": lambda: (lambda k: summed(lambda _: random.normal(k), 0.0, None, 3))(key()),
    "fori_loop": lambda: (lambda k: lax.fori_loop(0, 3, lambda i, c: c + random.normal(k), 0.0))(
        key()
    ),
    "test of a loop": in_a_test,
    "after a loop": after_a_loop,
    "after a branch": after_a_branch,
    "shard_map": in_a_map,
    "gradient": lambda: sw.grad(lambda x, k: (x * both(k, k)).sum())(ONES, key()),
}


@pytest.mark.parametrize("name", everyday(TWICE, 4))
def test_used_twice(name):
    with pytest.raises(KeyReuseError, match=r"a key is used at .*test_key_reuse.py:\d+"):
        TWICE[name]()


def test_a_key_of_the_program_itself():
    def draw(seed):
        k = random.key(seed)
        return both(k, k)

    for f in (sw.jit(draw), sw.jit(lambda n: sw.jit(draw)(n) * 2)):
        with pytest.raises(KeyReuseError, match="already used"):
            f(0)


def test_message():
    k = key()
    random.normal(k)
    with pytest.raises(KeyReuseError) as caught:
        random.uniform(k)
    text = str(caught.value)
    assert text.count("test_key_reuse.py") == 2 and text.startswith("uniform: a key is used at ")
    assert text.endswith(
        "(test_message). Make new keys with `shardwise.random.split` or `fold_in`; `clone` "
        "allows a key to be used again on purpose. The flag debug_key_reuse enables this check."
    )
    assert issubclass(KeyReuseError, TypeError)


# -- uses that are allowed --


def split():
    k1, k2 = random.split(key())
    return both(k1, k2) + random.normal(random.clone(k1))


def carried():
    def body(carry, _):
        k, total = carry
        k, new = random.split(k)
        return (k, total + random.normal(new)), None

    (k, total), _ = lax.scan(body, (key(), 0.0), None, length=3)
    return total + random.normal(k)


def branches():
    f = sw.jit(lambda p, k: lax.cond(p, random.normal, random.uniform, k))
    return f(True, key())


def again_in_reverse():
    f = sw.checkpoint(lambda x, k: jnp.sin(x * random.normal(k, (3,))).sum())
    return sw.grad(f)(ONES, key(1)) + sw.jit(sw.grad(f))(ONES, key(2))


def map_over_a_mesh():
    mesh = Mesh(np.array(sw.devices()[:2]), ("x",))
    draw = lambda ks: sw.vmap(random.normal)(ks)  # noqa: E731
    return sw.shard_map(draw, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(keys(4))


ONCE = {
    "split": split,
    "parts": lambda: (lambda ks: [random.normal(ks[i]) for i in (0, 1, -1)])(keys(3)),
    "parts in jit": lambda: sw.jit(lambda ks: both(ks[0], ks[1]))(keys(2)),
    "slices": lambda: (lambda ks: [sw.vmap(random.normal)(ks[a:b]) for a, b in [(0, 2), (2, 4)]])(
        keys(4)
    ),
    "fold_in": lambda: (lambda k: [random.normal(random.fold_in(k, i)) for i in range(3)])(key()),
    "carried": carried,
    "rows": lambda: summed(random.normal, 0.0, keys(4)),
    "folded in a loop": lambda: (
        lambda k: lax.fori_loop(0, 3, lambda i, c: c + random.normal(random.fold_in(k, i)), 0.0)
    )(key()),
    "places in a loop": lambda: (
        lambda ks: lax.fori_loop(0, 3, lambda i, c: c + random.normal(ks[i]), 0.0)
    )(keys(3)),
    "branches": branches,
    "gradient": lambda: sw.grad(lambda x, k: (x * random.normal(k, (3,))).sum())(ONES, key()),
    "again in reverse": again_in_reverse,
    "vmap": lambda: sw.vmap(random.normal)(keys(3)),
    "shard_map": map_over_a_mesh,
    "data": lambda: (random.key_data(key()), key() == key()),
    "raw": lambda: (lambda k: both(k, k))(random.PRNGKey(0)),
}


@pytest.mark.parametrize("name", everyday(ONCE, 4))
def test_used_once(name):
    ONCE[name]()


@pytest.mark.parametrize(
    "draw",
    everyday(
        [
            lambda k: random.gamma(k, 1.0, (3,)),
            lambda k: random.poisson(k, 3.0),
            lambda k: random.permutation(k, 5),
            lambda k: random.dirichlet(k, ONES),
            lambda k: random.choice(k, 5),
            lambda k: random.multinomial(k, 5, ONES / 3),
            lambda k: random.binomial(k, 5, 0.5),
            lambda k: random.ball(k, 3),
            lambda k: random.t(k, 3.0),
            lambda k: random.randint(k, (3,), 0, 5),
            lambda k: random.orthogonal(k, 3),
            lambda k: random.categorical(k, ONES),
        ],
        2,
    ),
)
def test_samplers_use_keys_once(draw):
    k = key()
    draw(k)
    with pytest.raises(KeyReuseError):
        draw(k)


def test_nothing_is_checked_by_default():
    with sw.debug_key_reuse(False):
        eager()
        assert random.clone(k := key()) is k
