"""Interpreters: nesting, perturbations, escaped tracers, captures, exceptions, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardwise._src.base.context import ROOT, current
from shardwise._src.base.errors import UnexpectedTracerError
from shardwise._src.core.checker import check_program
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import OPS, Op
from shardwise._src.messages.argument_names import name_of
from shardwise._src.ops.basis import reduce_sum, reshape
from shardwise._src.ops.elementwise import add, cos, exp, mul, sin
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.batch import batch
from shardwise._src.transforms.jvp import push_forward
from shardwise._src.transforms.linearize import linearize
from shardwise._src.transforms.stage import stage
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.transforms.transpose import transpose
from shardwise._src.types.array_type import array_type
from shardwise._src.values.value import Value
from tests.helpers.errors import message as error_of

F32 = np.dtype(np.float32)
VECTOR = array_type((3,), F32)
X = np.float32([0.5, 1.0, -2.0])


def array(x: Any) -> Any:
    return EAGER.array(np.asarray(x, np.float32))


def derivative(fun: Callable) -> Callable:
    """The derivative of a scalar function, as a function."""

    def along_one(x: Any) -> Any:
        one = np.float32(1) if type_of(x).ndim == 0 else np.ones(type_of(x).shape, np.float32)
        _, (t,) = push_forward(lambda a: [fun(a)], [x], [one], current().interpreter)
        return np.float32(0) if t is None else t

    return along_one


def gradient(fun: Callable) -> Callable:
    def back(x: Any) -> Any:
        outs, linear = linearize(lambda a: [fun(a)], [x])
        one = np.ones(type_of(outs[0]).shape, np.float32)
        one = np.float32(1) if one.ndim == 0 else one
        return transpose(linear.program, linear.captured, [one])[0]

    return back


def mapped(fun: Callable) -> Callable:
    def over(x: Any) -> Any:
        (out,), (dim,) = batch(lambda a: [fun(a)], [x], [0], type_of(x).shape[0])
        assert dim == 0
        return out

    return over


def run_staged(fun: Callable) -> Callable:
    """Stages `fun` and evaluates the program under the current interpreter."""

    def run(x: Any) -> Any:
        program, captured = stage(lambda a: [fun(a)], [type_of(x)])
        check_program(program)
        return program(*captured, x)[0]

    return run


# -- nesting --

TRANSFORMS = {"jvp": derivative, "grad": gradient, "vmap": mapped, "stage": run_staged}


def test_second_derivatives():
    x = array(0.7)
    for second in (
        derivative(derivative(sin)),
        gradient(gradient(sin)),
        derivative(gradient(sin)),
        gradient(derivative(sin)),
    ):
        np.testing.assert_allclose(np.asarray(second(x)), -np.sin(0.7), rtol=1e-6)


def test_third_derivative():
    third = derivative(gradient(derivative(lambda x: mul(x, exp(x)))))
    np.testing.assert_allclose(np.asarray(third(array(0.5))), 3.5 * np.exp(0.5), rtol=1e-6)


@pytest.mark.parametrize("first", TRANSFORMS)
@pytest.mark.parametrize("second", TRANSFORMS)
@pytest.mark.parametrize("third", ["stage", "vmap"])
def test_all_transforms_nest(first: str, second: str, third: str):
    """Tests x ↦ sin x · x and its derivatives, elementwise, so that vmap over X changes nothing."""
    names = [first, second, third]
    scalar = names.count("vmap") > 0
    fun: Callable = lambda x: mul(sin(x), x)  # noqa: E731
    for name in names:
        if name == "vmap" and names.index("vmap") != names.index(name):
            continue
        fun = TRANSFORMS[name](fun)
    # The number of batch dimensions that the maps remove.
    depth = names.count("vmap")
    x = np.broadcast_to(X, (2,) * (depth - 1) + (3,)) if depth else X[1]
    order = sum(n in ("jvp", "grad") for n in names)
    s, c = np.sin(x), np.cos(x)
    expected = [s * x, c * x + s, 2 * c - s * x][order]
    assert scalar or depth == 0
    np.testing.assert_allclose(np.asarray(fun(array(x))), expected, rtol=1e-5)


def test_perturbations_are_not_confused():
    """d/dx (x · d/dy (x + y)) is 1; confusing the two tangents gives 2."""

    def inner(x: Any) -> Any:
        return mul(x, derivative(lambda y: add(x, y))(array(1.0)))

    assert float(np.asarray(derivative(inner)(array(3.0)))) == 1
    assert float(np.asarray(gradient(inner)(array(3.0)))) == 1

    def product(x: Any) -> Any:
        return derivative(lambda y: mul(x, mul(y, y)))(x)

    assert float(np.asarray(derivative(product)(array(3.0)))) == 12  # (2x²)' = 4x


def test_a_function_that_ignores_the_inner_variable():
    assert np.asarray(derivative(lambda x: derivative(lambda y: x)(x))(array(2.0))) == 0


def test_batched_outer_values_inside():
    def fun(x: Any) -> Any:
        return mapped(lambda y: mul(x, y))(array(X))

    outer = np.asarray(mapped(fun)(array([1.0, 2.0])))
    np.testing.assert_allclose(outer, np.outer([1, 2], X))


def test_linearize_of_batch_stages_only_the_linear_part():
    seen = []

    def fun(x: Any) -> list:
        out = mapped(lambda y: mul(sin(y), y))(x)
        seen.append(type(out).__name__)
        return [out]

    outs, linear = linearize(fun, [array(X)])
    check_program(linear.program)
    np.testing.assert_allclose(np.asarray(outs[0]), np.sin(X) * X, rtol=1e-6)
    assert {e.op.name for e in linear.program.eqns} == {"mul", "add"}
    (t,) = linear([array([1, 1, 1])])
    np.testing.assert_allclose(np.asarray(t), np.cos(X) * X + np.sin(X), rtol=1e-6)


# -- captured values --


def test_captured_tracers_of_an_outer_stage_become_arguments():
    inner: list[Any] = []

    def outer(x: Any) -> list:
        y = sin(x)
        program, captured = stage(lambda a: [mul(a, y)], [VECTOR])
        inner.append((program, captured))
        return program(*captured, x)

    program, rest = stage(outer, [VECTOR])
    assert rest == []
    held, captured = inner[0]
    assert len(captured) == 1 and held.consts == ()
    assert str(held) == ("{ lambda ; a:f32[3] b:f32[3]. let\n    c:f32[3] = mul b a\n  in (c,) }")
    assert [e.op.name for e in program.eqns] == ["sin", "mul"]


def test_a_value_is_captured_once():
    constant = array(X)
    program, _ = stage(lambda a: [add(mul(a, constant), constant)], [VECTOR])
    assert len(program.consts) == 1


def test_numpy_arrays_can_be_captured():
    program, _ = stage(lambda a: [add(a, X)], [VECTOR])
    assert [type(c) for c in program.consts] == [np.ndarray]
    with pytest.raises(TypeError) as caught:
        stage(lambda a: [add(a, "x")], [VECTOR])
    assert str(caught.value) == "expected an array or a scalar, got 'x' of type str."


# -- escaped tracers --


def escapee(transform: str) -> tuple[Any, int, int]:
    """A tracer whose function has returned, the line that created it, and the line of the call."""
    kept: list[Any] = []
    line = escapee.__code__.co_firstlineno

    def leak(x: Any) -> list:
        kept.append(sin(x))
        return [x]

    if transform == "stage":
        stage(leak, [VECTOR], transform="jit", name="leak")
    elif transform == "jvp":
        push_forward(leak, [array(X)], [array(X)], EAGER, "jvp", "leak")
    else:
        batch(leak, [array(X)], [0], 3, name="leak")
    return kept[0], line + 6, line + {"stage": 10, "jvp": 12, "batch": 14}[transform]


NAMES = {"stage": ("jit", "f32[3]"), "jvp": ("jvp", "f32[3]"), "batch": ("vmap", "f32[]")}
USES = {
    "eager": lambda x: sin(x),
    "stage": lambda x: stage(lambda a: [mul(a, x)], [array_type((), F32)]),
    "jvp": lambda x: push_forward(lambda a: [mul(a, x)], [array(1.0)], [array(1.0)], EAGER),
    "batch": lambda x: batch(lambda a: [mul(a, x)], [array(X)], [0], 3),
    "result": lambda x: stage(lambda a: [x], [VECTOR]),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("transform", NAMES)
def test_escaped_tracers(transform: str, use: str):
    tracer, made, called = escapee(transform)
    name, shown = NAMES[transform]
    assert error_of(UnexpectedTracerError, lambda: USES[use](tracer)) == (
        f"a traced value of type {shown} was used outside the function that it belongs to: "
        f"{name} of leak, called at {__file__}:{called} (escapee), which has ended. The value was "
        f"made at {__file__}:{made} (leak). Return the value from the function instead of storing "
        "it in a variable or object outside."
    )


def test_a_tracer_of_an_inner_function_used_in_the_outer():
    def outer(x: Any) -> list:
        kept: list[Any] = []
        stage(lambda a: kept.append(sin(a)) or [a], [VECTOR])
        return [add(x, kept[0])]

    with pytest.raises(UnexpectedTracerError, match="was used outside the function"):
        stage(outer, [VECTOR])


def test_a_tracer_of_a_sibling_thread_is_refused():
    """The tracer is alive, but does not belong to an ancestor of the program that uses it."""
    errors: list[Any] = []

    def outer(x: Any) -> list:
        def other() -> None:
            try:
                stage(lambda a: [add(a, x)], [VECTOR])
            except UnexpectedTracerError as error:
                errors.append(error)

        worker = threading.Thread(target=other)
        worker.start()
        worker.join()
        return [x]

    stage(outer, [VECTOR])
    assert len(errors) == 1


# -- lifetime of interpreters --


def test_the_context_is_restored_after_exceptions():
    def fail(x: Any) -> list:
        raise KeyError("inside")

    before = current()
    attempts: list[Callable] = [
        lambda: stage(fail, [VECTOR]),
        lambda: push_forward(fail, [array(X)], [array(X)], EAGER),
        lambda: batch(fail, [array(X)], [0], 3),
        lambda: linearize(fail, [array(X)]),
        lambda: stage(lambda a: batch(lambda b: [reshape(b, shape=(5,))], [a], [0], 3), [VECTOR]),
    ]
    for attempt in attempts:
        with pytest.raises((KeyError, TypeError)):
            attempt()
        assert current() is before is ROOT
    np.testing.assert_allclose(np.asarray(sin(array(X))), np.sin(X), rtol=1e-6)


def test_tracers_of_a_failed_function_are_dead():
    kept: list[Any] = []

    def fail(x: Any) -> list:
        kept.append(x)
        raise KeyError

    with pytest.raises(KeyError):
        stage(fail, [VECTOR])
    with pytest.raises(UnexpectedTracerError):
        sin(kept[0])


def test_an_exception_in_a_rule_restores_the_context():
    def broken(*args: Any) -> Any:
        raise ZeroDivisionError

    op = Op("broken", type_rule=lambda op, x: x, jvp=broken, batch=broken)
    try:
        for attempt in (
            lambda: push_forward(lambda a: [op(a)], [array(X)], [array(X)], EAGER),
            lambda: batch(lambda a: [op(a)], [array(X)], [0], 3),
        ):
            with pytest.raises(ZeroDivisionError):
                attempt()
            assert current() is ROOT
    finally:
        del OPS["broken"]


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (
            lambda op: push_forward(lambda a: [op(a)], [array(X)], [array(X)], EAGER),
            "[bare] cannot be used under jvp: its record has no `jvp` rule.",
        ),
        (
            lambda op: batch(lambda a: [op(a)], [array(X)], [0], 3),
            "[bare] cannot be used under vmap: its record has no `batch` rule.",
        ),
        (
            lambda op: op(array(X)),
            "[bare] cannot be used under compilation: its record has no `lower` rule.",
        ),
    ],
)
def test_missing_rules(run: Callable, message: str):
    op = Op("bare", type_rule=lambda op, x: x)
    try:
        assert error_of(NotImplementedError, run, op) == message
    finally:
        del OPS["bare"]


def test_missing_transpose():
    op = Op("bare", type_rule=lambda op, x: x, jvp=lambda op, ps, ts: (op(*ps), op(*ts)))
    try:

        def outer(x: Any) -> list:
            with pytest.raises(NotImplementedError) as caught:
                gradient(lambda a: reduce_sum(op(a), axes=(0,)))(x)
            assert str(caught.value) == (
                "[bare] cannot be used under reverse-mode differentiation: its record has no "
                "`transpose` rule. Only linear functions can be transposed: that "
                "of `linear_transpose`, and custom derivative rules, which must be linear in the "
                "tangents."
            )
            return [x]

        stage(outer, [VECTOR])
    finally:
        del OPS["bare"]


def test_an_op_can_be_named_once():
    with pytest.raises(ValueError) as caught:
        Op("sin", type_rule=lambda op, x: x)
    assert str(caught.value) == "an op named 'sin' already exists"


def test_names_of_functions():
    import functools

    assert name_of(cos) == "Op"
    assert name_of(functools.partial(functools.partial(derivative, sin))) == "derivative"


def test_no_field_of_a_tracer_hides_a_method_of_arrays():
    kinds = [Tracer]
    for kind in kinds:
        kinds += kind.__subclasses__()
        fields = [f for f in kind.__slots__ if f != "aval"]
        assert not [f for f in fields if hasattr(Value, f)], kind
    assert len(kinds) > 2


def test_threads_trace_at_the_same_time():
    """Each thread has its own interpreter; a barrier makes the traces overlap."""
    count = 4
    barrier = threading.Barrier(count, timeout=20)
    found: dict[int, Any] = {}

    def work(number: int) -> None:
        def fun(x: Any) -> list:
            for _ in range(number + 1):
                barrier.wait()
                x = sin(x)
            for _ in range(count - number - 1):
                barrier.wait()
            return [gradient(lambda y: reduce_sum(mul(y, y), axes=(0,)))(x)]

        found[number] = stage(fun, [VECTOR])[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for number, program in found.items():
        check_program(program)
        assert sum(e.op is sin for e in program.eqns) == number + 1
    assert len(found) == count
