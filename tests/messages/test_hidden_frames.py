"""The frames in tracebacks of programs that fail in a user's function, or at run time.

The library has no frames above or between the user's frames, whichever of its functions calls the
user's function; below, it has at most a few.
"""

import traceback

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import export, lax
from shardwise._src.messages.source import is_own
from shardwise.experimental import checkify, io_callback
from shardwise.experimental.maps import xmap
from shardwise.experimental.ode import odeint
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:4]), ("i",))
X = np.ones(4, np.float32)
SHOWN = 4  # library frames after the user's last one


def fails(x, *rest):
    raise KeyError("of the user")


LOG = sw.custom_jvp(jnp.log)
LOG.defjvp(fails)


def large(x):
    return jnp.ones(1 << 21)[:, None] * jnp.ones(1 << 21)


CALLS = {
    "jit": lambda: sw.jit(fails)(X),
    "grad": lambda: sw.grad(fails)(X),
    "hessian": lambda: sw.hessian(fails)(X),
    "vmap": lambda: sw.vmap(fails)(X),
    "pmap": lambda: sw.pmap(fails)(X),
    "xmap": lambda: xmap(fails, in_axes=["i"], out_axes=["i"])(X),
    "shard_map": lambda: sw.shard_map(fails, mesh=MESH, in_specs=P(), out_specs=P())(X),
    "checkpoint": lambda: sw.checkpoint(fails)(X),
    "custom_jvp": lambda: sw.jvp(LOG, (X,), (X,)),
    "scan": lambda: lax.scan(fails, X, X),
    "while_loop": lambda: lax.while_loop(lambda x: True, fails, X),
    "cond": lambda: lax.cond(X[0] > 0, fails, fails, X),
    "reduce": lambda: lax.reduce(X, np.float32(0), fails, (0,)),
    "associative_scan": lambda: lax.associative_scan(fails, X),
    "piecewise": lambda: jnp.piecewise(jnp.asarray(X), [X > 0], [fails]),
    "fromfunction": lambda: jnp.fromfunction(fails, (3,)),
    "vectorize": lambda: jnp.vectorize(fails)(X),
    "minimize": lambda: sw.scipy.optimize.minimize(fails, jnp.asarray(X), method="BFGS"),
    "odeint": lambda: odeint(fails, jnp.asarray(X), jnp.arange(3.0)),
    "tree.map": lambda: sw.tree.map(fails, [X]),
    "tree.reduce": lambda: sw.tree.reduce(fails, [X, X]),
    "checkify": lambda: checkify.checkify(fails)(X),
    "explain": lambda: sw.explain(fails)(X),
    "export": lambda: export.export(sw.jit(fails))(X),
    "lower": lambda: sw.jit(fails).lower(X),
    "eval_shape": lambda: sw.eval_shape(fails, X),
    "make_jaxpr": lambda: sw.make_jaxpr(fails)(X),
    "pure_callback": lambda: sw.pure_callback(fails, X, X),
    "io_callback": lambda: io_callback(fails, X, X),
    "callback in jit": lambda: np.asarray(sw.jit(lambda x: sw.pure_callback(fails, x, x))(X)),
    "make_array_from_callback": lambda: sw.make_array_from_callback(
        (4,), sw.NamedSharding(MESH, P("i")), fails
    ),
    "memory": lambda: jnp.zeros(1 << 42),
    "memory, read": lambda: np.asarray(large(X)),
    "memory, printed": lambda: repr(large(X)),
    "memory, awaited": lambda: sw.block_until_ready([large(X)]),
    "memory in jit": lambda: sw.jit(lambda: jnp.zeros(1 << 42))(),
    "memory of device_put": lambda: sw.device_put(np.broadcast_to(np.float32(1), (1 << 42,))),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_frames(name, again):
    if again:
        with pytest.raises((KeyError, RuntimeError)):
            CALLS[name]()
    with pytest.raises((KeyError, RuntimeError)) as caught:
        CALLS[name]()
    own = [is_own(f.filename) for f in traceback.extract_tb(caught.value.__traceback__)]
    assert own[0] is False
    last = max(i for i, ours in enumerate(own) if not ours)
    assert not any(own[:last]), traceback.extract_tb(caught.value.__traceback__)
    assert len(own) - 1 - last <= SHOWN
    assert caught.value.__context__ is None or caught.value.__suppress_context__
