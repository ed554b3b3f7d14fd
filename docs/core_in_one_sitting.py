"""The core of shardwise in one sitting.

    python docs/core_in_one_sitting.py

This is a program to read from top to bottom. It builds a new op and new transforms, and explains
the parts of the core that they use. Each step ends with assertions, so that this text cannot become
outdated. Files that a step names are under shardwise/_src/, and short: open them next to this one.

    1 values and types      4 programs                 7 batching
    2 an op                 5 forward mode             8 lowering and running
    3 interpreters          6 reverse mode             9 all of it at once
"""

from __future__ import annotations

import numpy as np

import shardwise as sw
from shardwise import lax
from shardwise._src.arrays.signature import signature
from shardwise._src.base.context import current
from shardwise._src.core.checker import check_program
from shardwise._src.core.infer import infer, type_of
from shardwise._src.core.interpreter import Interpreter
from shardwise._src.core.op import Op, is_linear
from shardwise._src.core.program import Program, Var, eval_program
from shardwise._src.ops import elementwise
from shardwise._src.ops.basis import broadcast_in_dim, move_axis, reduce_sum
from shardwise._src.ops.elementwise import add, cos, mul, sin
from shardwise._src.ops.reduce import reduce_max
from shardwise._src.running.eager import EAGER
from shardwise._src.running.plan import build
from shardwise._src.transforms.batch import batch
from shardwise._src.transforms.entering import Inside
from shardwise._src.transforms.jvp import push_forward
from shardwise._src.transforms.linearize import linearize
from shardwise._src.transforms.stage import stage
from shardwise._src.transforms.tracer import Tracer
from shardwise._src.transforms.transpose import transpose
from shardwise._src.types.array_type import array_type
from shardwise._src.types.dims import Dims

# ==================================================================================================
# 1  Values and types (types/array_type.py, core/infer.py)
#
# The library computes with values: arrays, tracers that represent arrays while a function is
# transformed, and host scalars. Each has a type. Types are interned: equal types are the same
# object, so every cache below compares identities. The type of a Python scalar is weak (`~`): it
# adopts the dtype of the other operand.

x = sw.device_put(np.array([1.0, 2.0, 3.0], np.float32))
assert repr(type_of(x)) == "f32[3]"
assert repr(type_of(2.0)) == "~f32[]"
assert type_of(x) is array_type((3,), np.dtype("float32"))

# ==================================================================================================
# 2  An op (core/op.py)
#
# An op is one record with everything the system knows about it. Most ops are defined in one line
# (ops/families.py: `sin = unary("sin", INEXACT, hlo="sine", jvp=lambda t, x, out: ...)`). This one
# is written out: the outer product of two vectors, which is not an op of shardwise.
#
# Rules get the op itself, then its arguments: arrays by position, static metadata by keyword. They
# call ops, never operators, because they run in the context in which the op was used: eagerly, or
# in a trace.


def outer_type(op, x, y):
    """The type of the result; error messages begin with the op's name."""
    if x.ndim != 1 or y.ndim != 1 or x.dtype != y.dtype:
        raise TypeError(
            "[outer] takes two vectors of one dtype; got "
            f"{x.str_short(True)} and {y.str_short(True)}."
        )
    return array_type((*x.shape, *y.shape), x.dtype)


def outer_dims(op, x, y):
    """How dimensions correspond, as in einsum: i,j->ij. It determines shardings."""
    return Dims((("i",), ("j",)), (("i", "j"),))


def outer_lower(op, e, ins, outs, x, y):
    """StableHLO text. `e` is the emitter, x and y are the names of SSA values."""
    a, b, out = e.ty(ins[0]), e.ty(ins[1]), e.ty(outs[0])
    rows = e.let(f"stablehlo.broadcast_in_dim {x}, dims = [0] : ({a}) -> {out}")
    columns = e.let(f"stablehlo.broadcast_in_dim {y}, dims = [1] : ({b}) -> {out}")
    return e.let(f"stablehlo.multiply {rows}, {columns} : {out}")


def outer_jvp(op, primals, tangents):
    """(result, tangent). A tangent of None is a symbolic zero, which is not part of the program."""
    (x, y), (tx, ty) = primals, tangents
    terms = []
    if tx is not None:
        terms.append(outer(tx, y))
    if ty is not None:
        terms.append(outer(x, ty))
    return outer(x, y), terms[0] if len(terms) == 1 else add(*terms)


def outer_transpose(op, ct, x, y):
    """Cotangents of the arguments in which the call is linear, passed as `Linear(type)`."""
    if is_linear(x):
        across = broadcast_in_dim(y, shape=type_of(ct).shape, dims=(1,))
        return [reduce_sum(mul(ct, across), axes=(1,)), None]
    down = broadcast_in_dim(x, shape=type_of(ct).shape, dims=(0,))
    return [None, reduce_sum(mul(ct, down), axes=(0,))]


def outer_batch(op, mapped, args, dims):
    """The op on values with a batch dimension each (None: without one); see step 7."""
    (x, y), (dx, dy) = args, dims
    x = move_axis(x, dx, 0) if dx is not None else broadcast_in_dim(
        x, shape=(mapped.size, *type_of(x).shape), dims=(1,))  # fmt: skip
    y = move_axis(y, dy, 0) if dy is not None else broadcast_in_dim(
        y, shape=(mapped.size, *type_of(y).shape), dims=(1,))  # fmt: skip
    shape = (mapped.size, type_of(x).shape[1], type_of(y).shape[1])
    wide_x = broadcast_in_dim(x, shape=shape, dims=(0, 1))
    wide_y = broadcast_in_dim(y, shape=shape, dims=(0, 2))
    return mul(wide_x, wide_y), 0


outer = Op(
    "outer",
    type_rule=outer_type,
    dims=outer_dims,
    lower=outer_lower,
    jvp=outer_jvp,
    transpose=outer_transpose,
    batch=outer_batch,
)

y = sw.device_put(np.array([10.0, 100.0], np.float32))
assert np.array_equal(np.asarray(outer(x, y)), [[10, 100], [20, 200], [30, 300]])
assert repr(infer(outer, (type_of(x), type_of(y)), {})) == "f32[3,2]"
try:
    outer(x, outer(x, y))
except TypeError as error:
    assert str(error) == "[outer] takes two vectors of one dtype; got f32[3] and f32[3,2]."

# `testing/check_op.py` takes such a record and some samples, and tests all of its rules: against
# NumPy, against finite differences, against a loop instead of `vmap`, and with every sharding of
# every factor.

# ==================================================================================================
# 3  Interpreters (core/interpreter.py, base/context.py)
#
# Calling an op passes it to the current interpreter, which is in the context: `Op.__call__` does
# nothing else. The eager interpreter evaluates: it compiles the op and runs it. A transform is an
# interpreter with a parent, the interpreter that was current before. It does its part and passes
# ops on to the parent. So transforms nest without levels: an op is passed from parent to parent
# until an interpreter handles it.
#
# This is a complete transform: on which arguments does each value depend? It needs a tracer, for
# the values that it tracks, and one method.

assert current().interpreter is EAGER


class DependsTracer(Tracer):
    """A value of the parent, and the names of the arguments that it was computed from."""

    __slots__ = ("value", "names")

    def __init__(self, interpreter, value, names):
        self.interpreter, self.value, self.names = interpreter, value, names
        self.aval = type_of(value)


class Depends(Interpreter):
    def process(self, op, args, params):
        mine = [isinstance(a, DependsTracer) and a.interpreter is self for a in args]
        values = [a.value if own else a for a, own in zip(args, mine, strict=True)]
        names = frozenset().union(*[a.names for a, own in zip(args, mine, strict=True) if own])
        out = self.parent.process(op, tuple(values), params)
        if op.multiple:
            return [DependsTracer(self, o, names) for o in out]
        return DependsTracer(self, out, names)


def depends(fun, **arguments):
    """The names that the result of `fun` depends on."""
    interpreter = Depends(current().interpreter, "depends", fun.__name__)
    with interpreter.entered():
        tracers = {k: DependsTracer(interpreter, v, frozenset([k])) for k, v in arguments.items()}
        return set(fun(**tracers).names)


def curve(a, b, c):
    unused = mul(b, c)  # noqa: F841
    return add(sin(a), mul(c, 2.0))


assert depends(curve, a=x, b=x, c=x) == {"a", "c"}

# It composes with transforms for which it has no code. Under `jit`, its parent is the stager of
# step 4; a gradient inside it passes it the ops of the derivative.


def slope(a, b, c):
    return sw.grad(lambda v: reduce_sum(mul(mul(v, b), sin(c)), axes=(0,)))(a)


assert depends(slope, a=x, b=x, c=x) == {"b", "c"}  # linear in a, so independent of it
seen = []
sw.jit(lambda v: seen.append(depends(curve, a=v, b=v, c=1.0)) or v)(x)
assert seen == [{"a", "c"}]

# ==================================================================================================
# 4  Programs (core/program.py, transforms/stage.py, core/checker.py)
#
# The stager is an interpreter that runs nothing: it records the ops. Its result is a `Program`:
# typed variables and equations (JAX's jaxpr). Programs print, can be run op by op, and are checked:
# any pass over programs ends with `check_program` in its tests.


def model(v):
    return [mul(sin(v), 2.0)]


program, captured = stage(model, [type_of(x)])
assert (
    str(program)
    == """\
{ lambda ; a:f32[3]. let
    b:f32[3] = sin a
    c:f32[3] = mul b 2.0:~f32[]
  in (c,) }"""
)
check_program(program)
assert np.allclose(np.asarray(program(x)[0]), 2 * np.sin(np.asarray(x)))

# A pass is a function from programs to programs. This one eliminates common subexpressions.


def without_repeats(program):
    known, renamed, kept = {}, {}, []
    for eqn in program.eqns:
        inputs = [renamed.get(a, a) if isinstance(a, Var) else a for a in eqn.invars]
        names = [id(a) if isinstance(a, Var) else (a.value, a.aval) for a in inputs]
        key = (eqn.op, *names, *eqn.params.items())
        if key in known and not eqn.effects:
            renamed.update(zip(eqn.outvars, known[key], strict=True))
        else:
            known[key] = eqn.outvars
            kept.append(eqn.replace(invars=inputs))
    outputs = [renamed.get(a, a) if isinstance(a, Var) else a for a in program.outvars]
    return Program(program.inputs, outputs, kept, program.consts, program.name)


wasteful, _ = stage(lambda v: [add(mul(sin(v), cos(v)), mul(sin(v), cos(v)))], [type_of(x)])
lean = without_repeats(wasteful)
check_program(lean)
assert (len(wasteful.eqns), len(lean.eqns)) == (7, 4)
assert np.array_equal(np.asarray(lean(x)[0]), np.asarray(wasteful(x)[0]))

# Ops such as `scan` contain programs. A transform enters them by one rule of these ops, `enter`,
# which passes a state of the transform through these programs. So a transform without any code for
# loops and branches works in them. This one records the largest magnitude of all intermediate
# values.


class Largest(Inside):
    name, key = "largest", ()
    types = (array_type((), np.dtype(np.float32)),)

    def has(self, program):
        return True

    def run(self, program, args, state):
        (most,) = state

        def evaluate(eqn, values):
            nonlocal most
            if eqn.op.programs:
                outs, (most,) = self.enter(eqn, values, [most])
                return outs
            out = eqn.op(*values, **eqn.params)
            outs = out if eqn.op.multiple else [out]
            for value in outs:
                if type_of(value).dtype == np.float32:
                    axes = tuple(range(type_of(value).ndim))
                    most = elementwise.max(most, reduce_max(elementwise.abs(value), axes=axes))
            return outs

        return eval_program(program, args, evaluate), [most]

    def join(self, state, states):
        return [elementwise.max(state[0], reduce_max(states[0], axes=(0,)))]


def largest(fun, *args):
    program, _ = stage(fun, [type_of(a) for a in args])
    _, (most,) = Largest().run(program, args, [np.float32(0)])
    return float(most)


def repeated(v):
    turn = lambda c, _: (lax.cond(c[0] > 5, lambda c: c, lambda c: 3 * c, c), None)  # noqa: E731
    return [reduce_sum(lax.scan(turn, v, None, length=4)[0], axes=(0,)) / 100]


assert largest(repeated, sw.numpy.ones(2)) == 18  # the carry is 1, 3, 9, 9, and their sum 18
mesh = sw.make_mesh((1,), ("i",))
parts = sw.shard_map(lambda v: 3 * v, mesh=mesh, in_specs=sw.P("i"), out_specs=sw.P("i"))
assert largest(lambda v: [parts(v) / 4], sw.numpy.ones(2)) == 3

# ==================================================================================================
# 5  Forward mode (transforms/jvp.py)
#
# A JVP tracer pairs a value with its tangent. For an op on such values the interpreter calls the
# op's `jvp` rule with its parent current; on other values the op passes through.

(value,), (tangent,) = push_forward(lambda v: [outer(v, y)], [x], [x], current().interpreter)
assert np.array_equal(np.asarray(tangent), np.asarray(value))  # linear in v

(value,), (tangent,) = push_forward(lambda v: [sin(y)], [x], [x], current().interpreter)
assert tangent is None  # a symbolic zero: nothing was computed for it

# ==================================================================================================
# 6  Reverse mode (transforms/linearize.py, transforms/transpose.py)
#
# Reverse mode is forward mode run backwards, in two steps. `Linearize` is a stager that records
# only ops on its own tracers, which are the tangents of a JVP on top of it. So the function itself
# runs immediately, in the parent, and the recorded program is linear in the tangents:

outs, linear = linearize(lambda v: [mul(sin(v), v)], [x])
assert (
    str(linear.program)
    == """\
{ lambda ; a:f32[3] b:f32[3] c:f32[3] d:f32[3]. let
    e:f32[3] = mul d a
    f:f32[3] = mul e b
    g:f32[3] = mul c d
    h:f32[3] = add f g
  in (h,) }"""
)

# a, b and c are the residuals cos(v), v and sin(v): already computed, stored in `linear.captured`.
# Transposition processes the linear equations in reverse order. The `transpose` rule of an op maps
# a cotangent of its result to cotangents of the arguments in which it is linear.

v, ones = np.asarray(x), np.ones(3, np.float32)
(ct,) = transpose(linear.program, linear.captured, [ones])
assert np.allclose(np.asarray(ct), np.cos(v) * v + np.sin(v))
(same,) = sw.vjp(lambda v: mul(sin(v), v), x)[1](ones)
assert np.array_equal(np.asarray(same), np.asarray(ct))

# ==================================================================================================
# 7  Batching (transforms/batch.py)
#
# A batch tracer is a value with one dimension more than its type has. The `batch` rule defines the
# op on such values, and returns the position of the batch dimension of its result.

several = outer(x, y)  # f32[3,2]: three vectors, as one value with the batch dimension 0
(products,), (dim,) = batch(lambda row: [outer(row, y)], [several], [0], 3)
assert dim == 0
assert repr(type_of(products)) == "f32[3,2,2]"
for row, product in zip(np.asarray(several), np.asarray(products), strict=True):
    assert np.array_equal(product, np.outer(row, np.asarray(y)))

# ==================================================================================================
# 8  Lowering and running (lowering/module.py, running/executable.py)
#
# A program and the shardings of its arguments become the text of a StableHLO module, by each op's
# `lower` rule; the text is compiled. The type and the sharding of an array together are its
# *signature*, which is also interned. Executables are cached by the signatures of their arguments.

assert x._sig is signature(type_of(x), x.sharding, x.committed)
program, _ = stage(lambda v, w: [outer(sin(v), w)], [type_of(x), type_of(y)])
executable = build(program, [x._sig, y._sig])
assert "stablehlo.sine %arg0 : tensor<3xf32>" in executable.text
assert np.allclose(np.asarray(executable([x, y])[0]), np.outer(np.sin(v), np.asarray(y)))

# Eager execution works in the same way: `outer(x, y)` in step 2 staged one equation, compiled it,
# and cached the executable by the op and the signatures of its arguments.

assert any(key[0] is outer for key in EAGER.cache)

# ==================================================================================================
# 9  All of it at once
#
# The public transforms only flatten pytrees, check arguments, and run these interpreters.


def energy(u):
    return reduce_sum(sin(outer(u, u)), axes=(0, 1))


gradients = sw.jit(sw.vmap(sw.grad(energy)))(several)
for row, gradient in zip(np.asarray(several), np.asarray(gradients), strict=True):
    expected = 2 * np.cos(np.outer(row, row)) @ row
    assert np.allclose(gradient, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())

if __name__ == "__main__":
    print("every assertion of the tour holds")
