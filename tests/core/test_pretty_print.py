"""`pretty_print` of programs: the output in addition to names, ops and parameters."""

import pathlib

import jax
import jax.numpy
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.program import Var

HERE = pathlib.Path(__file__)


def normed(x):
    with sw.named_scope("outer"):
        y = jnp.sin(x) * 2.0

    def body(c, v):
        return c + v, c

    return sw.lax.scan(body, y.sum(), x)


@pytest.fixture
def program():
    return sw.make_jaxpr(normed)(np.ones(3, np.float32))


PLAIN = """\
{ lambda ; a:f32[3]. let
    b:f32[3] = sin a
    c:f32[3] = mul b 2.0:f32[]
    d:f32[] = reduce_sum[axes=(0,)] c
    e:f32[] f:f32[3] = scan[
      jaxpr={ lambda ; g:f32[] h:f32[]. let i:f32[] = add g h in (i, g) }
      num_consts=0
      num_carry=1
      length=3
      reverse=False
      unroll=1
    ] d a
  in (e, f) }"""


def test_plain(program):
    assert program.pretty_print() == PLAIN == str(program)
    assert program.pretty_print(custom_pp_eqn_rules=False, use_color=False, width=80) == PLAIN
    wide = program.pretty_print(width=200).splitlines()
    assert len(wide) == 6 and " unroll=1] d a" in wide[4]


def test_lines_and_names_in_scope_are_at_the_end(program):
    lines = HERE.read_text().splitlines()

    def line(text):
        return lines.index(text) + 1

    sin = line("        y = jnp.sin(x) * 2.0")
    scan = line("    return sw.lax.scan(body, y.sum(), x)")
    add = line("        return c + v, c")
    found = program.pretty_print(source_info=True, name_stack=True).splitlines()
    assert found[1:5] == [
        f"    b:f32[3] = sin a                  # {HERE}:{sin} (normed) [outer]",
        f"    c:f32[3] = mul b 2.0:f32[]        # {HERE}:{sin} (normed) [outer]",
        f"    d:f32[] = reduce_sum[axes=(0,)] c # {HERE}:{scan} (normed) []",
        f"    e:f32[] f:f32[3] = scan[          # {HERE}:{scan} (normed) []",
    ]
    assert found[6] == f"          i:f32[] = add g h           # {HERE}:{add} (body) []"
    plain = [text.partition("#")[0].rstrip() for text in found]
    plain[5:8] = [f"{plain[5]} {plain[6].strip()} {plain[7].strip()}"]
    assert plain == PLAIN.splitlines()


def test_without_types(program):
    found = program.pretty_print(print_shapes=False).splitlines()
    assert found[:2] == ["{ lambda ; a. let", "    b = sin a"]
    assert found[4:6] == [
        "    e f = scan[",
        "      jaxpr={ lambda ; g h. let i = add g h in (i, g) }",
    ]


def test_effects():
    def told(x):
        sw.debug.print("{}", x)
        return x

    found = sw.make_jaxpr(told)(np.float32(1)).pretty_print(print_effects=True).splitlines()
    assert found[1].lstrip().startswith("debug_callback[callback=")
    assert found[-1] == "  in (a,) : { Debug, callback } }"
    pure = sw.make_jaxpr(lambda x: x)(np.float32(1))
    assert pure.pretty_print(print_effects=True).endswith("in (a,) : {  } }")


def test_long_parameters_are_on_lines_of_their_own():
    program = sw.make_jaxpr(lambda x: x.sum(0))(np.ones(3, np.float32))
    assert program.pretty_print(width=30) == (
        "{ lambda ; a:f32[3]. let\n    b:f32[] = reduce_sum[\n      axes=(0,)\n    ] a\n  in (b,) }"
    )


def test_branches_follow_each_other():
    def chosen(i, x):
        return sw.lax.switch(i, [jnp.sin, jnp.cos], x)

    assert (
        sw.make_jaxpr(chosen)(np.int32(0), 1.0).pretty_print(print_shapes=False)
        == """\
{ lambda ; a b. let
    c = cond[
      branches=(
        { lambda ; d. let e = sin d in (e,) }
        { lambda ; f. let g = cos f in (g,) }
      )
    ] a b
  in (c,) }"""
    )


def plus(lib, n):
    return lib.jit(lambda x: x + n)


def of_two_callers(lib):
    f = plus(lib, 1)
    g = lib.jit(lambda x: f(x) * f(x))
    return lambda x: lib.jit(lambda x: f(g(x)))(x) + f(x)


def of_one_name(lib):
    f, g = plus(lib, 1), plus(lib, 2)
    return lambda x: f(x) * g(x) * f(x) * g(x)


def of_shared_callers(lib):
    f = plus(lib, 1)
    g = lib.jit(lambda x: f(x) * f(x))
    return lambda x: g(x) + g(x)


def with_a_constant(lib):
    k = lib.numpy.arange(3.0)
    f = lib.jit(lambda x: x + k)
    return lambda x: f(x) * f(x)


def with_unused_results(lib):
    f = lib.jit(lambda x: (x + 1, x * 2))
    return lambda x: f(x)[0] + f(f(x)[1])[0]


@pytest.mark.parametrize(
    "make", [of_two_callers, of_one_name, of_shared_callers, with_a_constant, with_unused_results]
)
def test_functions_that_are_called_twice_are_printed_once_as_in_jax(make):
    x = np.ones(3, np.float32)
    closed = jax.make_jaxpr(make(jax))(x)
    live, _ = jax.interpreters.partial_eval.dce_jaxpr(closed.jaxpr, [True])
    assert str(sw.make_jaxpr(make(sw))(x)) == str(closed.replace(jaxpr=live))


def test_programs_that_share_variables_have_unambiguous_names():
    program = sw.make_jaxpr(lambda a, b: sw.jit(lambda x, y: x - y)(a, b))(1.0, 2.0)
    (call,) = program.eqns
    inner = call.params["jaxpr"]
    y, z, out = inner.invars[1], Var(inner.in_types[0]), Var(inner.out_types[0])
    eqns = [inner.eqns[0].replace(invars=[y, z], outvars=[out])]
    other = inner.replace(invars=[y, z], eqns=eqns, outvars=[out])
    again = call.replace(params={"program": other}, outvars=[Var(out.aval)])
    text = str(program.replace(eqns=[call, again], outvars=[*call.outvars, *again.outvars]))
    assert "sub a b in" in text and "b:~f32[] b:~f32[]" not in text and " sub b " in text


def test_programs_with_many_shared_calls_are_printed_quickly():
    f = sw.jit(lambda x: x + 1)
    for _ in range(40):
        f = sw.jit(lambda x, f=f: f(x) * f(x))
    assert str(sw.make_jaxpr(f)(1.0)).count("jit[") == 81


def test_colours(program):
    found = program.pretty_print(use_color=True, source_info=True)
    assert "\033[1mlambda\033[0m ; a:\033[36mf32[3]\033[0m. \033[1mlet\033[0m\n" in found
    assert "\033[90m# " in found


def test_equations_and_variables_by_themselves(program):
    sin, mul, *_ = program.eqns
    assert str(sin) == "b:f32[3] = sin a"
    assert str(mul) == "b:f32[3] = mul a 2.0:f32[]"
    (x,) = sin.invars
    assert repr(x) == f"Var(id={id(x)}):float32[3]"
    assert repr(mul.invars[1]) == "Literal(2.0)"


def test_equations_are_bound_again_in_their_context(program):
    for eqn in program.eqns:
        assert eqn.effects == frozenset()
        with eqn.ctx.manager:
            assert eqn.ctx.compute_type is None
