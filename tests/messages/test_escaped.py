"""Traced values that are used outside the function that they belong to."""

import re
import threading

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import errors, lax
from tests.helpers.errors import line

V = np.ones(3, np.float32)
X = np.ones((8, 4), np.float32)


def leak(transform):
    """A tracer that escaped its function."""
    kept = []

    def keep(a):
        b = jnp.sin(a)  # the line of keep
        kept.append(b)
        return b.sum()

    transform(keep)(V)  # the line of leak
    return kept[0]


def at(transform):
    """A transform of a function, called for its value or derivative at V."""
    return lambda fun: lambda v: transform(fun, v)


TRANSFORMS = {
    "jit": sw.jit,
    "grad": sw.grad,
    "vmap": sw.vmap,
    "jvp": at(lambda f, v: sw.jvp(f, (v,), (v,))),
    "vjp": at(sw.vjp),
    "linearize": at(sw.linearize),
    "jacfwd": sw.jacfwd,
    "scan": at(lambda f, v: lax.scan(lambda c, x: (f(x), None), np.float32(0), v[None])),
    "cond": at(lambda f, v: lax.cond(v[0] > 0, f, f, v)),
    "while_loop": at(lambda f, v: lax.while_loop(lambda s: s[0] < 0, lambda s: s + f(s), v)),
}
CALLED_BY_USER = ("jit", "grad", "vmap", "jacfwd")
USES = {
    "an op": lambda t: t + 1,
    "numpy": np.asarray,
    "bool": lambda t: bool(t[0] if t.ndim else t),
    "an op in jit": lambda t: sw.jit(lambda: t * 2)(),
    "an argument of jit": lambda t: sw.jit(lambda a: a)(t),
    "a result of jit": lambda t: sw.jit(lambda: t)(),
    "an op in grad": lambda t: sw.grad(lambda a: (a * t).sum())(1.0),
    "an op in vmap": lambda t: sw.vmap(lambda a: a * t)(V),
    "an argument of grad": lambda t: sw.grad(jnp.sum)(t),
    "device_put": lambda t: sw.device_put(t, sw.devices()[0]),
    "a static argument": lambda t: sw.jit(lambda a: a, static_argnums=0)(t),
    "within a static argument": lambda t: sw.jit(lambda a: a, static_argnums=0)((t, 1)),
    "scan": lambda t: lax.scan(lambda c, x: (c + t.sum(), x), 0.0, V),
    "cond": lambda t: lax.cond(True, lambda: t, lambda: t + 1),
    "a list": lambda t: jnp.array([t, t]),
    "a shape": jnp.zeros,
    "a slice": lambda t: jnp.zeros(3)[t:],
    "an axis": lambda t: jnp.sum(V, axis=t),
    "a loop": list,
    "float": float,
    "format": lambda t: f"{t:.2f}",
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_leaked_tracers_name_transform_function_call_and_line(transform):
    tracer = leak(TRANSFORMS[transform])
    shape = "" if transform == "vmap" else "3"
    for name, use in USES.items():
        if name == "bool" and transform != "vmap":
            continue
        with pytest.raises(errors.UnexpectedTracerError) as caught:
            use(tracer)
        message = re.sub(re.escape(__file__), "FILE", str(caught.value))
        if transform in CALLED_BY_USER:
            called = f"FILE:{line('# the line of ' + 'leak')} (leak)"
            message = message.replace(f"{transform} of keep, called at {called}", "WHO")
        else:
            called = rf"{transform} of \S+, called at FILE:\d+ \(<lambda>\)"
            message = re.sub(called, "WHO", message)
        where = f"FILE:{line('# the line of ' + 'keep')} (keep)"
        assert message == (
            f"a traced value of type f32[{shape}] was used outside the function that it belongs "
            f"to: WHO, which has ended. The value was made at {where}. Return the value from the "
            "function instead of storing it in a variable or object outside."
        ), name


class Model:
    pass


def through_an_attribute(model):
    def fun(a):
        model.state = {"h": a * 2}
        return a.sum()

    sw.grad(fun)(V)
    return model.state["h"]


def through_an_exception():
    def fun(a):
        raise KeyError(a * 2)

    try:
        sw.jit(fun)(V)
    except KeyError as error:
        return error.args[0]


def through_a_generator():
    kept = []

    def fun(a):
        kept.append(a * i for i in (1, 2))
        return a.sum()

    sw.grad(fun)(V)
    return next(kept[0])


def through_a_thread():
    kept = []

    def fun(a):
        worker = threading.Thread(target=lambda: kept.append(a))
        worker.start()
        worker.join()
        return a.sum()

    sw.vmap(fun)(X)
    return kept[0]


@pytest.mark.parametrize(
    "way",
    [
        lambda: through_an_attribute(Model()),
        through_an_exception,
        through_a_generator,
        through_a_thread,
    ],
)
def test_ways_out(way):
    with pytest.raises(errors.UnexpectedTracerError, match=r"of fun, called at .* has ended\."):
        way() + 1


@pytest.mark.parametrize("rule", ["fwd", "bwd", "jvp"])
def test_values_that_leave_derivative_rules(rule):
    kept = []

    def keep(a):
        kept.append(a * 3)
        return a * 2

    if rule == "jvp":
        f = sw.custom_jvp(lambda a: a * 2)
        f.defjvp(lambda p, t: (p[0] * 2, keep(t[0])))
    else:
        f = sw.custom_vjp(lambda a: a * 2)
        first, second = (keep, lambda ct: ct * 2)[:: 1 if rule == "fwd" else -1]
        f.defvjp(lambda a: (first(a), None), lambda _, ct: (second(ct),))
    sw.jit(sw.grad(lambda a: f(a).sum()))(V)
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        kept[0] + 1
    assert f"made at {__file__}:{line('kept.append(a * 3)')} (keep)" in str(caught.value)


def test_a_value_in_a_thread_beside_its_function():
    found = []

    def fun(a):
        def other():
            with pytest.raises(errors.UnexpectedTracerError) as caught:
                a + 1
            found.append(str(caught.value))

        worker = threading.Thread(target=other, name="worker")
        worker.start()
        worker.join()
        return a

    sw.jit(fun)(V)
    assert re.sub(r"called at \S+ \(\w+\)", "called HERE", found[0]) == (
        "a traced value of type f32[3] was used in thread 'worker', but it belongs to a function "
        "that is being traced in another one: jit of fun, called HERE. Start threads outside of "
        "transformed functions, or pass them arrays."
    )


def test_a_leaked_argument():
    kept = []
    sw.jit(lambda a: kept.append(a) or a)(V)
    with pytest.raises(errors.UnexpectedTracerError, match="jit of <lambda>, called at"):
        kept[0] + 1
    assert repr(kept[0]) == "jit tracer f32[3]"
