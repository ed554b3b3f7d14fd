"""Functions that leak a traced value, each in a different way, for test_leaks.py."""

import shardwise.numpy as jnp

STATE = {}


class Record:
    __slots__ = ("last",)


class Model:
    pass


MODEL, RECORD = Model(), Record()


def in_a_global(a):
    STATE["h"] = [a, jnp.sin(a)]
    return a.sum()


def in_an_attribute(a):
    MODEL.cache = {"w": jnp.sin(a)}
    return a.sum()


def in_a_slot(a):
    RECORD.last = jnp.sin(a)
    return a.sum()


def in_a_class(a):
    Model.last = jnp.sin(a)
    return a.sum()


def in_a_function(a):
    in_a_function.last = jnp.sin(a)
    return a.sum()


def in_a_default(a, seen=[]):  # noqa: B006 (that is the mistake)
    seen.append(jnp.sin(a))
    return a.sum()


def _closing_over():
    seen = []

    def in_a_closure(a):
        seen.append(jnp.sin(a))
        return a.sum()

    return in_a_closure


in_a_closure = _closing_over()


def forget():
    STATE.clear()
    vars(MODEL).clear()
    RECORD.last = Model.last = in_a_function.last = None
    in_a_default.__defaults__[0].clear()
    in_a_closure.__closure__[0].cell_contents.clear()
