"""Elementwise ops: one line each. `t` is the tangent, `ct` the cotangent, `out` the result."""

from __future__ import annotations

from shardwise.ops.families import INEXACT, NUMERIC, ANY, add, binary, comparison, lit, unary

# -- arithmetic --

neg = unary("neg", NUMERIC, hlo="negate", jvp="linear", transpose=lambda ct, x: neg(ct))
sub = binary(
    "sub", NUMERIC, hlo="subtract",
    jvp=(lambda t, x, y, out: t, lambda t, x, y, out: neg(t)),
    transpose=(lambda ct, x, y: ct, lambda ct, x, y: neg(ct)),
)
mul = binary(
    "mul", ANY, hlo="multiply",
    jvp=(lambda t, x, y, out: mul(t, y), lambda t, x, y, out: mul(x, t)),
    transpose=(lambda ct, x, y: mul(ct, y), lambda ct, x, y: mul(x, ct)),
)
div = binary(
    "div", NUMERIC, hlo="divide",
    jvp=(lambda t, x, y, out: div(t, y), lambda t, x, y, out: mul(div(neg(out), y), t)),
    transpose=(lambda ct, x, y: div(ct, y), None),
)

# -- exponentials, trigonometry --

exp = unary("exp", INEXACT, hlo="exponential", jvp=lambda t, x, out: mul(t, out))
log = unary("log", INEXACT, jvp=lambda t, x, out: div(t, x))
sin = unary("sin", INEXACT, hlo="sine", jvp=lambda t, x, out: mul(t, cos(x)))
cos = unary("cos", INEXACT, hlo="cosine", jvp=lambda t, x, out: neg(mul(t, sin(x))))
tanh = unary("tanh", INEXACT, jvp=lambda t, x, out: mul(t, sub(lit(1, out), mul(out, out))))

# -- comparison --

eq = comparison("eq", "EQ")
gt = comparison("gt", "GT")
