"""`dot_product_attention(implementation="cudnn")`: the calls that it becomes. No GPU is needed."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import nn
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message
from tests.helpers.targets import mesh_on, needs_cuda, needs_tpu, on

BF16 = jnp.bfloat16
CALL = re.compile(r'custom_call @(__cudnn\S+?)\(.*?backend_config = ("(?:[^"\\]|\\.)*"), (.*)')


def array(*shape, dtype=BF16):
    return np.zeros(shape, dtype)


Q, K = array(8, 32, 4, 16), array(8, 32, 2, 16)
BIAS, MASK = array(1, 4, 32, 32), array(8, 1, 32, 32, dtype=bool)
LENGTHS = array(8, dtype=np.int32)


def attend(*args, **options):
    return nn.dot_product_attention(*args, implementation="cudnn", **options)


def gradients(f, count=3):
    def loss(*args):
        return jnp.sum(jnp.square(f(*args).astype(np.float32)))

    return sw.grad(loss, argnums=tuple(range(count)))


def calls(f, *args):
    """The calls in a program for one GPU: name, configuration, and types."""
    text = sw.jit(f).lower(*[on("h100", x) for x in args]).as_text()
    found = []
    for name, config, rest in CALL.findall(text):
        fields = json.loads(json.loads(config))["cudnn_fmha_backend_config"]
        found.append((name.removeprefix("__cudnn$fmha"), fields, rest))
    return found


def results(rest):
    return re.findall(r"tensor<(\w+)>", rest.rpartition("->")[2])


@needs_cuda
def test_a_call():
    ((name, fields, rest),) = calls(lambda q, k, v: attend(q, k, v, is_causal=True), Q, Q, Q)
    assert name == "Softmax" and fields["mask_type"] == "CAUSAL"
    assert (fields["fmha_scale"], fields["sliding_window_length"]) == (0.25, 0)
    shape = fields["intermediate_tensor_shape"]
    assert (shape["element_type"], shape["dimensions"]) == ("BF16", ["8", "4", "32", "32"])
    assert results(rest) == ["8x4x32x16xbf16", "0xui8"]
    assert "result_layouts = [dense<[3, 1, 2, 0]>" in rest


@needs_cuda
def test_derivatives():
    first, second = calls(gradients(attend), Q, K, K)
    assert (first[0], second[0]) == ("Softmax", "SoftmaxBackward")
    assert results(first[2]) == ["8x4x32x16xbf16", "8x4x32xf32", "0xui8"]
    assert results(second[2]) == ["8x4x32x16xbf16", *["8x2x32x16xbf16"] * 2, "0xui8"]


@needs_cuda
def test_derivatives_of_a_bias():
    f = gradients(lambda q, k, v, bias: attend(q, k, v, bias), 4)
    first, second = calls(f, Q, Q, Q, BIAS)
    assert (first[0], second[0]) == ("ScaleBiasSoftmax", "ScaleBiasSoftmaxBackward")
    assert results(second[2])[3] == "1x4x32x32xbf16"


OPTIONS = {
    "mask": (dict(mask=MASK), "ScaleBiasSoftmax", "NO_MASK", 0),
    "both": (dict(mask=MASK, bias=BIAS, is_causal=True), "ScaleBiasSoftmax", "CAUSAL", 0),
    "lengths": (dict(key_value_seq_lengths=LENGTHS), "Softmax", "PADDING", 0),
    "causal": (dict(query_seq_lengths=LENGTHS, is_causal=True), "Softmax", "PADDING_CAUSAL", 0),
    "window": (dict(local_window_size=(7, 0)), "Softmax", "CAUSAL", 8),
}


@needs_cuda
@pytest.mark.parametrize("name", OPTIONS)
def test_options(name):
    options, target, mask, window = OPTIONS[name]
    arrays = {k: v for k, v in options.items() if isinstance(v, np.ndarray)}
    rest = {k: v for k, v in options.items() if k not in arrays}

    def f(q, *given):
        return attend(q, q, q, **dict(zip(arrays, given, strict=True)), **rest)

    ((found, fields, _),) = calls(f, Q, *arrays.values())
    assert (found, fields["mask_type"], fields["sliding_window_length"]) == (target, mask, window)


@needs_cuda
def test_a_mapped_axis_is_a_part_of_the_batch():
    wide = array(3, 8, 32, 4, 16)
    ((_, fields, _),) = calls(sw.vmap(attend, in_axes=(0, None, None)), wide, Q, Q)
    assert fields["intermediate_tensor_shape"]["dimensions"] == ["24", "4", "32", "32"]


@needs_cuda
def test_without_a_batch_and_with_sums():
    q = Q[0]
    ((_, _, rest),) = calls(lambda q: attend(q, q, q, return_residual=True), q)
    assert results(rest) == ["1x4x32x16xbf16", "1x4x32xf32", "0xui8"]


@needs_cuda
@pytest.mark.parametrize("heads", [4, 2])
def test_batch_and_heads_are_split_without_communication(heads):
    mesh = mesh_on("h100:8", (4, 2), ("x", "y"))
    k = array(8, 32, heads, 16)
    args = [on(mesh, a, "x", None, "y") for a in (Q, k, k)]
    hlo = sw.jit(gradients(attend)).lower(*args).compile().as_text()
    assert re.search(r"= \(bf16\[2,2,32,16\]\S*, f32\[2,2,32\]\S*, u8\[\d*\]\S*\) custom-call", hlo)
    assert not re.search(r" (all-gather|all-reduce|all-to-all|collective-permute)", hlo)


@needs_cuda
def test_the_derivative_of_a_bias_is_summed_over_the_batch():
    mesh = mesh_on("h100:8", (8,), ("x",))
    args = [*[on(mesh, Q, "x")] * 3, on(mesh, BIAS)]
    f = gradients(lambda q, k, v, bias: attend(q, k, v, bias), 4)
    hlo = sw.jit(f).lower(*args).compile().as_text()
    assert len(re.findall(r" all-reduce(?:-start)?\(", hlo)) == 1


@needs_cuda
def test_in_a_shard_map():
    mesh = mesh_on("h100:8", (8,), ("x",))
    f = sw.shard_map(gradients(attend), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    text = sw.jit(f).lower(*[on(mesh, Q, "x")] * 3).as_text()
    assert len(CALL.findall(text)) == 2


def on_the_cpu():
    return sw.jit(attend)(Q, Q, Q)


def test_other_platforms():
    wanted = (
        "dot_product_attention: implementation='cudnn' needs an NVIDIA GPU; this program is for "
        "the platform '{}'. Use implementation='xla', or None."
    )
    assert message(ValueError, on_the_cpu) == wanted.format("cpu")


@needs_tpu
def test_on_a_tpu():
    args = [on("tpu-v5e", Q)] * 3
    assert "for the platform 'tpu'" in message(ValueError, sw.jit(attend).lower, *args)


def test_messages():
    start, end = (
        "dot_product_attention: implementation='cudnn' ",
        " Use implementation='xla', or None.",
    )
    single = array(8, 32, 4, 16, dtype=np.float32)
    assert message(ValueError, attend, single, single, single) == (
        f"{start}takes arrays of bfloat16 or float16; got f32[8,32,4,16], f32[8,32,4,16]. Convert "
        f"them.{end}"
    )
    narrow = array(8, 32, 4, 12)
    assert message(ValueError, attend, narrow, narrow, narrow) == (
        f"{start}takes heads whose size is a multiple of 8 and at most 256; got bf16[8,32,4,12], "
        f"bf16[8,32,4,12].{end}"
    )
    odd = array(8, 31, 4, 16)
    assert message(ValueError, lambda: attend(odd, Q, Q, mask=MASK[:, :, :31])) == (
        f"{start}with a bias or mask takes even numbers of queries and keys; got "
        f"bf16[8,31,4,16], bf16[8,32,4,16].{end}"
    )
    assert message(ValueError, lambda: attend(Q, Q, Q, local_window_size=(4, 4))) == (
        f"{start}supports a local window to the left only, such as (4, 0); got (4, 4).{end}"
    )
    f = gradients(lambda q, k, v, bias: attend(q, k, v, bias), 4)
    assert message(NotImplementedError, sw.eval_shape, f, Q, Q, Q, BIAS[:, :1]) == (
        f"{start}has derivatives with respect to `bias` only if it is of shape (1, 4, 32, 32), for "
        f"all of the batch; got bf16[1,1,32,32].{end}"
    )
    many = sw.vmap(f, in_axes=(0, None, None, None))
    assert message(NotImplementedError, sw.eval_shape, many, Q[None], Q, Q, BIAS) == (
        f"{start}has no derivative with respect to `bias` under vmap.{end}"
    )
