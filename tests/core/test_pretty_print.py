"""`pretty_print` of programs: the output in addition to names, ops and parameters."""

import pathlib

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp

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
      body={ lambda ; a:f32[] b:f32[]. let
          c:f32[] = add a b
        in (c, a) }
      num_consts=0
      num_carry=1
      length=3
      reverse=False
      unroll=1
    ] d a
  in (e, f) }"""


def test_plain(program):
    assert program.pretty_print() == PLAIN == str(program)
    assert program.pretty_print(custom_pp_eqn_rules=False, use_color=False, width=200) == PLAIN


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
    assert found[6] == f"          c:f32[] = add a b           # {HERE}:{add} (body) []"
    assert [text.partition("#")[0].rstrip() for text in found] == PLAIN.splitlines()


def test_without_types(program):
    found = program.pretty_print(print_shapes=False).splitlines()
    assert found[:2] == ["{ lambda ; a. let", "    b = sin a"]
    assert found[4:6] == ["    e f = scan[", "      body={ lambda ; a b. let"]


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

    lines = sw.make_jaxpr(chosen)(0, 1.0).pretty_print(print_shapes=False).splitlines()
    assert [line for line in lines if "lambda" in line or ") }" in line] == [
        "{ lambda ; a b. let",
        "      branches=({ lambda ; a. let",
        "        in (b,) } { lambda ; a. let",
        "        in (b,) })",
        "  in (d,) }",
    ]


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
