"""Programs: their string form, the checker, dead code, constants and literals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.core.checker import ProgramError, check_program
from shardwise._src.core.op import OPS, Op
from shardwise._src.core.program import Equation, Literal, Program, Var
from shardwise._src.core.program_text import _names
from shardwise._src.core.program_tools import equation_count, without_dead_code
from shardwise._src.ops.basis import reduce_sum, reshape
from shardwise._src.ops.cast import convert_element_type
from shardwise._src.ops.elementwise import add, cos, gt, mul, neg, sin
from shardwise._src.ops.shape import split
from shardwise._src.running.eager import EAGER
from shardwise._src.transforms.stage import stage
from shardwise._src.types.array_type import array_type
from tests.helpers.errors import message

F32 = np.dtype(np.float32)
VECTOR = array_type((3,), F32)
MATRIX = array_type((2, 3), F32)


def staged(fun: Any, *types: Any, name: str = "f") -> Program:
    program, captured = stage(fun, types, name=name)
    assert not captured
    check_program(program)
    return program


# -- string form --


def test_text():
    program = staged(lambda x, y: [reduce_sum(mul(sin(x), y), axes=(0,)), neg(y)], MATRIX, MATRIX)
    assert str(program) == (
        "{ lambda ; a:f32[2,3] b:f32[2,3]. let\n"
        "    c:f32[2,3] = sin a\n"
        "    d:f32[2,3] = mul c b\n"
        "    e:f32[3] = reduce_sum[axes=(0,)] d\n"
        "    f:f32[2,3] = neg b\n"
        "  in (e, f) }"
    )


def test_text_of_literals_and_weak_types():
    weak = array_type((), F32, weak_type=True)
    program = staged(lambda x, y: [mul(x, np.float32(2.5)), y, np.int32(3)], VECTOR, weak)
    assert str(program) == (
        "{ lambda ; a:f32[3] b:~f32[]. let\n    c:f32[3] = mul a 2.5:f32[]\n  in (c, b, 3:i32[]) }"
    )


def test_text_of_several_results_and_of_dtypes():
    program = staged(
        lambda x: [
            convert_element_type(o, dtype=np.dtype("bfloat16"))
            for o in split(x, sizes=(1, 2), axis=0)
        ],
        VECTOR,
    )
    assert str(program) == (
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[1] c:f32[2] = split[sizes=(1, 2) axis=0] a\n"
        "    d:bf16[1] = convert_element_type[dtype=bfloat16] b\n"
        "    e:bf16[2] = convert_element_type[dtype=bfloat16] c\n"
        "  in (d, e) }"
    )


def test_text_of_constants():
    constant = EAGER.array(np.ones(3, np.float32))
    program = staged(lambda x: [add(x, constant)], VECTOR)
    assert str(program) == ("{ lambda a:f32[3]; b:f32[3]. let\n    c:f32[3] = add b a\n  in (c,) }")


def test_text_of_nothing():
    assert str(staged(lambda: [])) == "{ lambda ; . let\n  in () }"


def test_variable_names_go_on_after_z():
    names = _names()
    first = [next(names) for _ in range(26 * 27 + 1)]
    assert first[:3] == ["a", "b", "c"]
    assert first[25:29] == ["z", "aa", "ab", "ac"]
    assert first[-2:] == ["zz", "aaa"]
    assert len(set(first)) == len(first)


# -- constants, literals, dead code --


def test_concrete_captured_values_become_constants():
    constant = EAGER.array(np.arange(3, dtype=np.float32))
    unused = EAGER.array(np.zeros(3, np.float32))

    def fun(x: Any) -> list:
        add(x, unused)
        return [add(add(x, constant), constant)]

    program = staged(fun, VECTOR)
    assert [c is constant for c in program.consts] == [True]
    assert program.in_types == (VECTOR,)
    assert [v.aval for v in program.constvars] == [VECTOR]
    (out,) = program(EAGER.array(np.ones(3, np.float32)))
    np.testing.assert_array_equal(np.asarray(out), [1, 3, 5])


def test_scalars_become_literals():
    program = staged(lambda x: [add(x, np.float32(1))], VECTOR)
    (eqn,) = program.eqns
    literal = eqn.invars[1]
    assert isinstance(literal, Literal)
    assert literal.value == 1 and literal.aval == array_type((), F32)
    assert program.consts == ()


@pytest.mark.parametrize(
    ("one", "other"),
    [(np.float32(0.0), np.float32(-0.0)), (np.complex64(1 + 0j), np.complex64(complex(1, -0.0)))],
)
def test_zeros_of_both_signs_are_different_literals(one: Any, other: Any):
    for value in (one, other, one):
        x = array_type((), value.dtype)
        (eqn,) = staged(lambda a, v=value: [add(a, v)], x).eqns
        found = eqn.invars[1].value
        assert np.asarray(found).tobytes() == np.asarray(value).tobytes()


def test_dead_code_goes_and_effects_stay():
    x, y, z = (Var(VECTOR) for _ in range(3))
    live, dead = Equation(sin, [x], [y], {}, None), Equation(cos, [x], [z], {}, None)
    assert without_dead_code([y], [live, dead]) == [live]
    assert without_dead_code([x], [live, dead]) == []
    shout = Op("shout", type_rule=lambda op, x: x, effects=frozenset({"noise"}))
    try:
        noisy = Equation(shout, [z], [Var(VECTOR)], {}, None)
        assert without_dead_code([], [live, dead, noisy]) == [dead, noisy]
        program = Program([x], [y], [live, dead, noisy])
        assert program.effects == {"noise"}
        assert Program([x], [y], [live]).effects == frozenset()
    finally:
        del OPS["shout"]


def test_one_result_of_several_keeps_the_equation():
    program = staged(lambda x: [split(x, sizes=(1, 2), axis=0)[1]], VECTOR)
    assert [e.op.name for e in program.eqns] == ["split"]
    assert equation_count(program) == 1


def test_a_replayed_program_gives_inputs_and_literals_back():
    program = staged(lambda x: [x, np.float32(2), x], VECTOR)
    marker = EAGER.array(np.ones(3, np.float32))
    first, literal, second = program(marker)
    assert first is marker and second is marker and literal == 2


def test_wrong_number_of_arguments():
    program = staged(lambda x, y: [add(x, y)], VECTOR, VECTOR)
    with pytest.raises(ValueError):
        program(EAGER.array(np.ones(3, np.float32)))


# -- the checker --


def message_of(program: Program) -> str:
    with pytest.raises(ProgramError) as caught:
        check_program(program)
    return str(caught.value)


def test_use_before_definition():
    x, y, z = (Var(VECTOR) for _ in range(3))
    second = Equation(cos, [y], [z], {}, None)
    program = Program([x], [z], [second, Equation(sin, [x], [y], {}, None)])
    assert message_of(program) == (
        "equation 0 (cos) uses a variable of type f32[3] before it is defined, in\n"
        "{ lambda ; a:f32[3]. let\n"
        "    c:f32[3] = cos b\n"
        "    b:f32[3] = sin a\n"
        "  in (c,) }"
    )


def test_output_that_is_not_defined():
    assert message_of(Program([], [Var(MATRIX)], [])) == (
        "the outputs uses a variable of type f32[2,3] before it is defined, in\n"
        "{ lambda ; . let\n"
        "  in (a,) }"
    )


def test_second_definition():
    x, y = Var(VECTOR), Var(VECTOR)
    again = [Equation(sin, [x], [y], {}, None), Equation(cos, [x], [y], {}, None)]
    assert message_of(Program([x], [y], again)) == (
        "equation 1 (cos) defines a variable a second time, in\n"
        "{ lambda ; a:f32[3]. let\n"
        "    b:f32[3] = sin a\n"
        "    b:f32[3] = cos a\n"
        "  in (b,) }"
    )
    assert message_of(Program([x, x], [], [])).startswith(
        "an input defines a variable a second time, in\n"
    )


def test_wrong_type():
    x, y = Var(MATRIX), Var(MATRIX)
    program = Program([x], [y], [Equation(gt, [x, x], [y], {}, None)])
    assert message_of(program) == (
        "equation 0 (gt) states (f32[2,3]), but its rule infers (bool[2,3]) for operands "
        "(f32[2,3], f32[2,3]), in\n"
        "{ lambda ; a:f32[2,3]. let\n"
        "    b:f32[2,3] = gt a a\n"
        "  in (b,) }"
    )


def test_wrong_number_of_results():
    x, y = Var(VECTOR), Var(array_type((1,), F32))
    program = Program([x], [y], [Equation(split, [x], [y], {"sizes": (1, 2), "axis": 0}, None)])
    assert message_of(program).startswith(
        "equation 0 (split) states (f32[1]), but its rule infers (f32[1], f32[2]) for operands "
    )


def test_operands_that_the_rule_refuses():
    x = Var(VECTOR)
    program = Program([x], [], [Equation(reshape, [x], [Var(VECTOR)], {"shape": (4,)}, None)])
    assert message(TypeError, check_program, program) == (
        "[reshape] cannot reshape f32[3] (3 elements) to shape (4,) (4 elements)."
    )


def test_old_names_warn() -> None:
    program = sw.jit(lambda x: x + 1).trace(1.0).jaxpr
    (eqn,) = program.eqns
    old = [
        (program, "equations", "eqns"),
        (program, "arguments", "invars"),
        (program, "outputs", "outvars"),
        (program, "constants", "consts"),
        (program, "constant_vars", "constvars"),
        (eqn, "inputs", "invars"),
        (eqn, "outputs", "outvars"),
    ]
    for holder, name, new in old:
        with pytest.warns(DeprecationWarning) as warned:
            assert getattr(holder, name) == getattr(holder, new)
        assert str(warned[0].message) == (
            f"`{name}` of a {type(holder).__name__} is now `{new}`, as in JAX; the old name is "
            "removed in 0.4.0."
        )
        assert warned[0].filename == __file__
