"""`checking_leaks`: references to a traced value that outlive its function."""

import gc
import importlib
import re
import sys
import weakref

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import errors, lax
from shardwise._src.messages.leaks import referrer
from tests.helpers.everyday import everyday

V = np.ones(3, np.float32)
LEAKING = "tests.messages.leaking"


@pytest.fixture(scope="module", autouse=True)
def few_objects():
    """Freezes objects from before these tests, as every search queries the collector again.

    Objects that hold leaked values are created later, so searches find them.
    """
    global leaking
    gc.collect()
    gc.freeze()
    sys.modules.pop(LEAKING, None)
    leaking = importlib.import_module(LEAKING)


HELD = {
    "in_a_global": "`STATE['h'][1]` in module leaking",
    "in_an_attribute": "`MODEL.cache['w']` in module leaking",
    "in_a_slot": "`RECORD.last` in module leaking",
    "in_a_class": "`Model.last` in module leaking",
    "in_a_function": "`in_a_function.last` in function in_a_function",
    "in_a_default": "`seen[0]` in function in_a_default",
    "in_a_closure": "`seen[0]` in function _closing_over.<locals>.in_a_closure",
}
TRANSFORMS = {
    "jit": sw.jit,
    "grad": sw.grad,
    "vmap": sw.vmap,
    "jvp": lambda f: lambda v: sw.jvp(f, (v,), (v,)),
    "scan": lambda f: lambda v: lax.scan(lambda c, x: (f(x), None), np.float32(0), v[None]),
}


def caught(run, *args):
    """The message, with locations shown as HERE and this module by its name alone."""
    with sw.checking_leaks(), pytest.raises(errors.LeakedTracerError) as error:
        run(*args)
    text = re.sub(r"\S+:\d+ \(\S+\)", "HERE", str(error.value))
    return text.replace(f"module {LEAKING}", "module leaking")


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_holds_a_value_is_named(held, transform):
    leaking.forget()
    name = "<lambda>" if transform == "scan" else held
    shape = "" if transform == "vmap" else "3"
    text = caught(TRANSFORMS[transform](getattr(leaking, held)), V)
    assert text.startswith(
        f"{transform} of {name}, called at HERE, leaks traced values, which cannot be used after "
        "it has returned: a value of type f32"
    )
    assert f"f32[{shape}], made at HERE, is referenced as {HELD[held]}" in text
    assert text.endswith(". Return values from the function instead of storing them outside.")


def test_variables_of_running_functions_generators_and_exceptions():
    kept = []

    def fun(a):
        kept.append(jnp.sin(a))
        return a.sum()

    assert "is referenced as `kept[0]` in HERE. Return" in caught(sw.jit(fun), V)
    kept.clear()

    def drawing(a):
        def numbers():
            doubled = a * 2
            yield 1
            yield doubled

        kept.append(numbers())
        next(kept[0])
        return a.sum()

    assert "is referenced as `doubled` in generator " in caught(sw.jit(drawing), V)
    kept.clear()

    def failing(a):
        try:
            raise ValueError(a)
        except ValueError as error:
            kept.append(error)
        return a.sum()

    assert "is referenced as `kept[0].args[0]` in HERE" in caught(sw.jit(failing), V)


def test_many_values_are_counted():
    def fun(a):
        leaking.STATE["all"] = [a * i for i in range(9)]
        return a.sum()

    text = caught(sw.jit(fun), V)
    assert text.count("is referenced as") == 5
    assert "; and 4 more. Return" in text
    leaking.forget()


@sw.custom_vjp
def doubled(a):
    return a * 2


doubled.defvjp(lambda a: (a * 2, a), lambda a, ct: (ct * 2 + 0 * a,))


def in_circles(a):
    ring = [jnp.sin(a)]
    ring.append(ring)
    return ring[0].sum()


FINE = {
    "circles": in_circles,
    "custom_vjp": lambda a: doubled(a).sum(),
    "scan": lambda a: lax.scan(lambda c, x: (c + jnp.sin(x) * a, c), a, a)[0].sum(),
    "while_loop": lambda a: lax.fori_loop(0, 3, lambda i, s: jnp.sin(s), a).sum(),
    "cond": lambda a: lax.cond(a[0] > 0, jnp.sin, jnp.cos, a).sum(),
    "jit": lambda a: sw.jit(jnp.sin)(a).var(),
    "indexing": lambda a: a.at[0].set(2)[::2].sum(),
}


@pytest.mark.parametrize("fun", everyday(FINE.values(), 1))
def test_the_library_itself_leaks_nothing(fun):
    transforms = [
        sw.jit,
        sw.grad,
        lambda f: sw.jit(sw.grad(f)),
        lambda f: sw.grad(sw.jit(f)),
        lambda f: sw.vmap(lambda v: f(v * V)),
    ]
    with sw.checking_leaks():
        for transform in transforms:
            transform(fun)(V)


def test_off_by_default_and_no_part_of_what_was_cached_before():
    fun = sw.jit(leaking.in_a_global)
    fun(V)
    leaking.forget()
    fun(V)  # cached: nothing is traced
    assert not leaking.STATE
    assert "jit of in_a_global" in caught(fun, V)
    leaking.forget()


def test_the_flag():
    assert sw.config.check_tracer_leaks is False
    sw.config.update("jax_check_tracer_leaks", True)
    try:
        with pytest.raises(errors.UnexpectedTracerError):
            sw.jit(leaking.in_a_global)(V)
    finally:
        sw.config.update("check_tracer_leaks", False)
        leaking.forget()


def test_holders_of_anything():
    thing = object()
    assert referrer(thing).startswith("as `thing` in ")
    boxes = {"a": ([object()],)}
    assert referrer(boxes["a"][0][0]).startswith("as `boxes['a'][0][0]` in ")


def test_levels_and_traced_values_can_be_weakly_referenced():
    refs = []

    def fun(a):
        refs.extend([weakref.ref(a), weakref.ref(a.interpreter)])
        assert {a.interpreter: 1}[a.interpreter] == 1
        return jnp.sin(a).sum()

    for transform in (sw.jit, sw.grad, sw.vmap):
        transform(fun)(V)
    program = sw.make_jaxpr(lambda a: fun(a))(V)  # the type of fun itself is cached
    assert hash(program) == hash(weakref.ref(program)())
    gc.collect()
    assert len(refs) == 8
    assert not any(ref() for ref in refs)
