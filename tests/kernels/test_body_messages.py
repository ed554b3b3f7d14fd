"""What users read who write a kernel's body like a function of arrays."""

import re

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.errors import TracerBoolConversionError, UnexpectedTracerError
from shardwise.kernels import Block, call, program_id, when
from tests.kernels.kernels import like

ROWS = Block((4, 4), lambda i: (i, 0))
X = np.ones((8, 4), np.float32)


def launched(body, x=X, **options):
    f = call(body, like(8, 4), grid=2, in_specs=ROWS, out_specs=ROWS, **options)
    return f(x)


def text_of(kind, run):
    with pytest.raises(kind) as found:
        run()
    return re.sub(r"\S*test_body_messages.py:\d+", "FILE", str(found.value))


def test_branches_on_indices():
    def body(x, out):
        if program_id(0) == 0:
            out[...] = x[...]

    assert text_of(TracerBoolConversionError, lambda: launched(body)) == (
        "bool() at FILE (body) needs the value of a traced array of type bool[], which is not known "
        "while tracing (kernels.call of body, called at FILE (launched)). The value was made at "
        "FILE (body). Use `shardwise.kernels.when` to run a part of the kernel for some programs "
        "only, `shardwise.numpy.where` to choose by value, `shardwise.lax.while_loop` to repeat."
    )


def test_refs_and_values_after_the_kernel():
    stored = []

    def body(x, out):
        stored.append((x, x[...]))
        out[...] = x[...]

    launched(body)
    ref, value = stored[0]
    assert text_of(ValueError, lambda: ref[...]) == (
        "Ref{f32[4,4]}, made at FILE (launched), is used where it cannot be reached: it belongs to "
        "kernels.call of body, called at FILE (launched). Use the array that the launch returns "
        "instead of storing the ref outside."
    )
    assert text_of(UnexpectedTracerError, lambda: value + 1) == (
        "a traced value of type f32[4,4] was used outside the function that it belongs to: "
        "kernels.call of body, called at FILE (launched), which has ended. The value was made at "
        "FILE (body). Write the value to a result of the kernel instead of storing it in a "
        "variable or object outside."
    )


@pytest.mark.parametrize("operation", [
    lambda x: x + 1, lambda x: np.float32(2) * x, lambda x: np.ones(4) - x, lambda x: x @ x,
    lambda x: -x, lambda x: abs(x), lambda x: x > 0, lambda x: x <= 0, lambda x: 2**x, jnp.sin,
    lambda x: x // 2, float, bool, lambda x: 5 % x, lambda x: x & 1, np.sin, lambda x: x == 0,
    lambda x: x.at[...] + 1, lambda x: jnp.where(x != np.float32(0), 1, 2),
])  # fmt: skip
def test_arithmetic_with_refs(operation):
    def body(x, out):
        out[...] = operation(x)

    text = text_of(TypeError, lambda: launched(body))
    assert text.removeprefix("sin: ") == (
        "Ref{f32[4,4]} is a ref, not an array: read its value with `ref[...]`."
    )


def test_when_without_a_condition():
    def body(x, out):
        @when
        def part():
            out[...] = x[...]

    text = text_of(TypeError, lambda: launched(body))
    assert text.startswith("when: the condition is one boolean; got <function")
    assert text.endswith(". Write `@when(condition)` above the function.")


def test_arguments():
    def body(x, out):
        out[...] = x[...]

    assert text_of(TypeError, lambda: launched(body, parallel=True)) == (
        "kernel body: parallel is a list of axes of the grid, by number or name, such as (0, 1); "
        "got True of type bool."
    )
    keys = sw.random.split(sw.random.key(0), (8, 4))
    assert text_of(TypeError, lambda: launched(body, keys)) == (
        "kernel body: an argument has the type key<fry>[8,4], of PRNG keys, which kernels cannot "
        "load. Pass the bits, `random.key_data(key)`, and (on CPUs) make the key in the kernel: "
        "`random.wrap_key_data(ref[...])`."
    )
