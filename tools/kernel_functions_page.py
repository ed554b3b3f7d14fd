"""Writes docs/kernels-functions.md: which functions compile in kernels for GPUs and TPUs.

    python tools/kernel_functions_page.py

Each expression is the body of a kernel over blocks of f32[16,128], which is lowered for both; no
machine is needed. A test compares the page with some of them every day.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import shardwise as sw
from shardwise._src.control.expand import expanded
from shardwise._src.core.program import Program
from shardwise._src.core.program_tools import walk
from shardwise._src.kernels.on_gpu.triton_call import triton_call
from shardwise._src.kernels.on_gpu.triton_launch import triton_kernel
from shardwise._src.runtime.platforms import CUDA, TPU, Platform

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "kernels-functions.md"

# Expressions of the blocks x, y (f32), i (i32), the index of the program `n`, and refs `x_ref`.
EXPRESSIONS = {
    "Elementwise": """
        x + y; x - y; x * y; x / y; x // y; x % y; x ** 2; x ** y; -x; x < y; (x > 0) & (y > 0);
        i & 7; i | 1; i ^ i; ~i; i << 1; i >> 1; jnp.abs(x); jnp.sign(x); jnp.floor(x);
        jnp.ceil(x); jnp.round(x); jnp.trunc(x); jnp.sqrt(x); lax.rsqrt(x); jnp.cbrt(x);
        jnp.square(x); jnp.reciprocal(x); jnp.exp(x); jnp.exp2(x); jnp.expm1(x); jnp.log(x);
        jnp.log2(x); jnp.log10(x); jnp.log1p(x); jnp.sin(x); jnp.cos(x); jnp.tan(x);
        jnp.arcsin(x); jnp.arccos(x); jnp.arctan(x); jnp.arctan2(x, y); jnp.sinh(x); jnp.cosh(x);
        jnp.tanh(x); jnp.arcsinh(x); jnp.arccosh(x); jnp.arctanh(x); jnp.hypot(x, y);
        jnp.logaddexp(x, y); jnp.maximum(x, y); jnp.minimum(x, y); jnp.clip(x, 0, 1);
        jnp.where(x > 0, x, y); jnp.isnan(x); jnp.isfinite(x); jnp.isinf(x); jnp.nan_to_num(x);
        jnp.fmod(x, y); jnp.copysign(x, y); jnp.nextafter(x, y); jnp.ldexp(x, i); jnp.sinc(x);
        lax.erf(x); lax.erfc(x); lax.erf_inv(x); lax.lgamma(x); lax.digamma(x);
        lax.population_count(i); lax.clz(i); lax.integer_pow(x, 3); lax.reduce_precision(x, 8, 7);
        x.astype(jnp.bfloat16); x.astype(jnp.int32); i.astype(jnp.float32); x.astype(jnp.float16);
        x.astype(jnp.float8_e4m3fn); i.astype(jnp.int8); lax.bitcast_convert_type(x, jnp.int32);
        jnp.real(lax.complex(x, y))
    """,
    "Activations": """
        nn.relu(x); nn.sigmoid(x); nn.silu(x); nn.gelu(x); nn.softplus(x); nn.softmax(x);
        nn.log_softmax(x); nn.leaky_relu(x); nn.elu(x); nn.swish(x); nn.logsumexp(x, 1);
        nn.one_hot(i[:, 0], 128)
    """,
    "Reductions": """
        jnp.sum(x); jnp.sum(x, 0); jnp.sum(x, 1); jnp.sum(x, 1, keepdims=True); jnp.max(x, 1);
        jnp.min(x, 0); jnp.prod(x, 1); jnp.mean(x, 1); jnp.var(x, 1); jnp.any(x > 0, 1);
        jnp.all(x > 0, 1); jnp.argmax(x, 1); jnp.argmin(x, 0); jnp.cumsum(x, 1);
        jnp.cumprod(x, 1); lax.cummax(x, 1); jnp.linalg.norm(x, axis=1); jnp.sort(x, 1);
        jnp.argsort(x, 1); lax.top_k(x, 2)[0]; jnp.median(x, 1); jnp.unique(x, size=4);
        jnp.bincount(i[:, 0], length=16)
    """,
    "Products": """
        x @ y.T; x.T @ y; jnp.dot(x, y.T); jnp.einsum('ij,kj->ik', x, y);
        jnp.outer(x[:, 0], y[0]);
        x.astype(jnp.bfloat16) @ y.T.astype(jnp.bfloat16);
        lax.dot(i.astype(jnp.int8), i.T.astype(jnp.int8), preferred_element_type=jnp.int32);
        jnp.convolve(x[0], y[0]); jnp.linalg.inv(x[:, :16]); jnp.linalg.cholesky(x[:, :16]);
        jnp.fft.rfft(x).real
    """,
    "Shapes": """
        x.T; x[None]; x[:, None]; x.reshape(8, 256); x.reshape(16, 4, 32); x.ravel();
        jnp.broadcast_to(x[:, :1], (16, 128)); jnp.swapaxes(x, 0, 1); jnp.concatenate([x, y]);
        jnp.concatenate([x, y], 1); jnp.stack([x, y]); jnp.split(x, 2)[0]; jnp.repeat(x, 2, 0);
        jnp.tile(x, (2, 1)); jnp.flip(x, 0); jnp.flip(x, 1); jnp.roll(x, 1, 0); jnp.roll(x, 1, 1);
        jnp.pad(x, 1); jnp.arange(128); jnp.zeros((16, 128)); jnp.eye(16); jnp.tril(x);
        jnp.triu(x); jnp.diag(x[:, :16]); lax.broadcasted_iota(jnp.int32, (16, 128), 1)
    """,
    "Indexing of values": """
        x[0]; x[:8]; x[:, :64]; x[::2]; x[n]; lax.dynamic_slice(x, (n, 0), (8, 128)); x[i[:, 0]];
        jnp.take_along_axis(x, i % 16, 0); jnp.take(x, i[0] % 16, 0); x.at[0].set(1);
        x.at[n].add(1); x.at[i[:, 0] % 16].add(1)
    """,
    "Indexing of refs": """
        x_ref[...]; x_ref[0]; x_ref[:8]; x_ref[:, :64]; x_ref[::2]; x_ref[n]; x_ref[ds(n * 8, 8)];
        x_ref[ds(n, 8)]; x_ref[:, n]; x_ref[:, ds(n, 64)]; x_ref[i_ref[0, 0]];
        x_ref[i_ref[...][:, 0] % 16]; x_ref.reshape(8, 256)[...]; x_ref.bitcast(jnp.int32)[...]
    """,
    "Control flow": """
        lax.cond(n > 0, lambda: x, lambda: y); lax.select(x > 0, x, y);
        lax.switch(n, [lambda: x, lambda: y, lambda: x + y]);
        lax.fori_loop(0, 4, lambda k, c: c + x, y); lax.fori_loop(0, n, lambda k, c: c + x, y);
        lax.while_loop(lambda c: jnp.sum(c) > 0, lambda c: c - 1, x);
        lax.scan(lambda c, v: (c + v, c), x[0], x)[0]; lax.map(lambda row: row * 2, x);
        jax.vmap(jnp.sin)(x); jax.jit(jnp.sin)(x); jax.grad(lambda v: jnp.sum(v * v))(x);
        jax.checkpoint(jnp.sin)(x); lax.associative_scan(jnp.add, x, axis=1)
    """,
    "Random numbers": """
        jax.random.bits(jax.random.wrap_key_data(jnp.zeros(2, jnp.uint32)), (16, 128));
        jax.random.uniform(jax.random.key(0), (16, 128));
        jax.random.normal(jax.random.key(0), (16, 128));
        jax.random.bernoulli(jax.random.key(0), 0.5, (16, 128))
    """,
}


def expressions() -> list[tuple[str, str]]:
    """Pairs of a section and an expression."""
    return [
        (section, " ".join(text.split()))
        for section, texts in EXPRESSIONS.items()
        for text in texts.split(";")
    ]


def reasons(expression: str) -> tuple[str, str]:
    """Why an expression does not compile for GPUs, and for TPUs; "" if it does."""
    types = [sw.ShapeDtypeStruct((16, 128), dtype) for dtype in ("float32", "float32", "int32")]
    out = sw.eval_shape(lambda *xs: _value(expression, [*map(sw.new_ref, xs)], 0), *types)
    shape = (*[1] * (2 - out.ndim), *out.shape)

    def body(x_ref: Any, y_ref: Any, i_ref: Any, out: Any) -> None:
        y = _value(expression, (x_ref, y_ref, i_ref), sw.kernels.program_id(0))
        out[...] = sw.numpy.reshape(y, shape) if y.ndim < 2 else y

    whole = sw.kernels.Block()
    launch = sw.kernels.call(
        body, sw.ShapeDtypeStruct(shape, out.dtype), grid=2, in_specs=whole, out_specs=whole
    )
    try:
        program = sw.make_jaxpr(launch)(*types)
    except ValueError as error:
        return _first(error), _first(error)
    return _reason(program, CUDA), _reason(program, TPU)


def _value(expression: str, refs: Sequence[Any], n: Any) -> Any:
    scope = {"jnp": sw.numpy, "lax": sw.lax, "nn": sw.nn, "jax": sw, "ds": sw.kernels.ds, "n": n}
    for name, ref in zip("xyi", refs, strict=True):
        scope[f"{name}_ref"] = ref
        if re.search(rf"\b{name}\b", expression):
            scope[name] = ref[...]
    return eval(expression, scope)


def _reason(program: Program, platform: Platform) -> str:
    try:
        for eqn in walk(expanded(program, platform)):
            if eqn.op is triton_call:  # modules for TPUs are written when the op expands
                p, types = eqn.params, [a.aval for a in eqn.invars]
                triton_kernel(p["body"], p["maps"], p["launch"], p["parallel"], types, platform)
    except NotImplementedError as error:
        return _first(error)
    return ""


def _first(error: Exception) -> str:
    """The first sentence of a message, without the kernel's name."""
    text = str(error).partition("\n")[0].removeprefix("kernel body")
    text = text.removeprefix(" cannot be compiled for GPUs").lstrip(" :").partition(". ")[0]
    for compiler in (", the compiler of kernels for TPUs", " in kernels for GPUs"):
        text = text.replace(compiler, "")
    return text.rstrip(".").replace("|", "\\|")


HEADER = """\
# Functions in kernels

This page is written by `tools/kernel_functions_page.py`. On CPUs, the body of a kernel may call
every function of the library. Triton and Mosaic, the compilers of kernels for GPUs and TPUs, know
some operations only; others are an error when the program is lowered. Each expression below is the
body of a kernel over blocks `x` and `y` of f32[16,128] and `i` of i32[16,128]; `x_ref` is the ref
of `x`, `n` the index of the program. Blocks of other sizes and dtypes may have limits of their own,
which the errors state.
"""


def page() -> str:
    parts = [HEADER]
    for section in EXPRESSIONS:
        own = [e for s, e in expressions() if s == section]
        rows = [(e, *reasons(e)) for e in own]
        everywhere = ", ".join(f"`{e}`" for e, *why in rows if not any(why))
        parts.append(f"## {section}\n\nOn GPUs and TPUs: {everywhere}.\n")
        others = [row for row in rows if any(row[1:])]
        if others:
            lines = ["| expression | on GPUs | on TPUs |", "|---|---|---|"]
            for e, *why in others:
                marks = [text or "yes" for text in why]
                lines.append(f"| `{e}` | {marks[0]} | {marks[1]} |")
            parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")
