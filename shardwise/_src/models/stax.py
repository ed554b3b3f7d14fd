"""Neural networks as pairs of functions.

    init, apply = serial(Conv(32, (3, 3), padding="SAME"), Relu, Flatten, Dense(10), LogSoftmax)
    shape, params = init(random.key(0), (-1, 28, 28, 1))       # -1: any batch
    apply(params, images)

A *layer* is a pair: `init(rng, input_shape)` returns (output shape, parameters), `apply(params,
inputs, rng=None)` returns the outputs. Names of layers and of layer constructors are in CamelCase.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from shardwise._src.base.named import named
from shardwise._src.lax.conv_general import (
    conv_general_dilated,
    conv_general_shape_tuple,
    conv_transpose,
    conv_transpose_shape_tuple,
)
from shardwise._src.lax.elementwise_operators import add, max
from shardwise._src.lax.reduce_windows import reduce_window, reduce_window_shape_tuple
from shardwise._src.nn.activations import elu, gelu, leaky_relu, relu, selu, sigmoid, softplus
from shardwise._src.nn.initializers import glorot_normal, normal, ones, zeros
from shardwise._src.nn.normalize import log_softmax, softmax, standardize
from shardwise._src.numpy.creation import ones as ones_of
from shardwise._src.numpy.joining import concatenate
from shardwise._src.numpy.ordering.searching import where
from shardwise._src.numpy.products.contractions import dot
from shardwise._src.numpy.shapes import expand_dims
from shardwise._src.numpy.unary import exp, tanh
from shardwise._src.random.draws import bernoulli
from shardwise._src.random.keys import split

glorot, randn, logsoftmax = glorot_normal, normal, log_softmax
_GLOROT, _NORMAL, _SMALL = glorot_normal(), normal(), normal(1e-6)
Shape = Any  # a tuple of sizes; a list of tuples for several inputs
Layer = tuple[Callable[..., tuple[Shape, Any]], Callable[..., Any]]


def Dense(out_dim: int, W_init: Any = _GLOROT, b_init: Any = _NORMAL) -> Layer:
    """A dense layer: a matrix product with the last dimension, and a bias."""

    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        k1, k2 = split(rng)
        params = W_init(k1, (input_shape[-1], out_dim)), b_init(k2, (out_dim,))
        return (*input_shape[:-1], out_dim), params

    return init, lambda params, inputs, **kwargs: dot(inputs, params[0]) + params[1]


def _convolution(name: str, doc: str, shape_of: Callable, run: Callable) -> Callable[..., Layer]:
    def layer(
        dimension_numbers: Any,
        out_chan: int,
        filter_shape: Sequence[int],
        strides: Any = None,
        padding: Any = "VALID",
        W_init: Any = None,
        b_init: Any = _SMALL,
    ) -> Layer:
        inputs_order, kernel_order, outputs_order = orders = dimension_numbers
        steps = strides or (1,) * len(filter_shape)
        make = W_init or glorot_normal(kernel_order.index("I"), kernel_order.index("O"))

        def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
            sizes = iter(filter_shape)
            known = {"O": out_chan, "I": input_shape[inputs_order.index("C")]}
            kernel = tuple([known[c] if c in known else next(sizes) for c in kernel_order])
            bias = tuple([out_chan if c == "C" else 1 for c in outputs_order])
            k1, k2 = split(rng)
            at = inputs_order.index("N"), outputs_order.index("N")
            find = lambda s: shape_of(s, kernel, steps, padding, orders)  # noqa: E731
            return _of_any_batch(find, input_shape, *at), (make(k1, kernel), b_init(k2, bias))

        def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
            return run(inputs, params[0], steps, padding, dimension_numbers=orders) + params[1]

        return init, apply

    return named(layer, name, doc)


def _of_any_batch(shape_of: Callable, shape: Shape, before: int, after: int) -> Shape:
    """The shape of an output; the batch size may be -1, for any."""
    size, given = shape[before], list(shape)
    given[before] = abs(size)
    out = list(shape_of(given))
    return (*out[:after], size, *out[after + 1 :])


GeneralConv = _convolution(
    "GeneralConv",
    "A convolution with these dimension numbers, and a bias; see `lax.conv_general_dilated`.",
    conv_general_shape_tuple,
    conv_general_dilated,
)
GeneralConvTranspose = _convolution(
    "GeneralConvTranspose",
    "A transposed convolution, with a bias; see `lax.conv_transpose`.",
    conv_transpose_shape_tuple,
    conv_transpose,
)
Conv = functools.partial(GeneralConv, ("NHWC", "HWIO", "NHWC"))
Conv1DTranspose = functools.partial(GeneralConvTranspose, ("NHC", "HIO", "NHC"))
ConvTranspose = functools.partial(GeneralConvTranspose, ("NHWC", "HWIO", "NHWC"))


def BatchNorm(
    axis: Any = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Any = zeros,
    gamma_init: Any = ones,
) -> Layer:
    """Normalizes to mean 0, variance 1 over `axis`; then scales (`scale`), shifts (`center`)."""
    axes = axis if isinstance(axis, Sequence) else (axis,)

    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        shape = tuple([n for i, n in enumerate(input_shape) if i not in axes])
        k1, k2 = split(rng)
        beta = beta_init(k1, shape) if center else ()
        return input_shape, (beta, gamma_init(k2, shape) if scale else ())

    def apply(params: Any, x: Any, **kwargs: Any) -> Any:
        beta, gamma = params
        z = standardize(x, tuple(axes), epsilon=epsilon)
        z = expand_dims(gamma, tuple(axes)) * z if scale else z
        return z + expand_dims(beta, tuple(axes)) if center else z

    return init, apply


def elementwise(fun: Callable, **fun_kwargs: Any) -> Layer:
    """An elementwise function of the inputs, without parameters."""
    return _without_parameters(lambda s: s, lambda x: fun(x, **fun_kwargs))


def _without_parameters(shape_of: Callable, run: Callable) -> Layer:
    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        return shape_of(input_shape), ()

    return init, lambda params, inputs, **kwargs: run(inputs)


Tanh = elementwise(tanh)
Relu = elementwise(relu)
Exp = elementwise(exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)


def _pool(
    name: str, doc: str, fold: Callable, first: float, mean: bool = False
) -> Callable[..., Layer]:
    def layer(
        window_shape: Sequence[int],
        strides: Any = None,
        padding: str = "VALID",
        spec: str | None = None,
    ) -> Layer:
        n = len(window_shape)
        others = (0, n + 1) if spec is None else (spec.index("N"), spec.index("C"))
        window, steps = list(window_shape), list(strides or (1,) * n)
        for i in sorted(others):
            window.insert(i, 1)
            steps.insert(i, 1)

        def shape_of(shape: Shape) -> Shape:
            find = functools.partial(
                reduce_window_shape_tuple,
                window_dimensions=window,
                window_strides=steps,
                padding=padding,
            )
            return _of_any_batch(find, shape, others[0], others[0])

        def run(x: Any) -> Any:
            out = reduce_window(x, first, fold, window, steps, padding)
            if not mean:
                return out
            one = ones_of([1 if i in others else s for i, s in enumerate(x.shape)], x.dtype)
            return out / reduce_window(one, 0.0, add, window, steps, padding)

        return _without_parameters(shape_of, run)

    return named(layer, name, doc)


MaxPool = _pool(
    "MaxPool",
    """The maximum of each window of spatial dimensions.

    spec: the order of dimensions; None: "N", the spatial dimensions, "C".
    """,
    max,
    -math.inf,
)
SumPool = _pool("SumPool", "The sum of each window; see `MaxPool`.", add, 0.0)
AvgPool = _pool(
    "AvgPool", "The mean of each window, without padding; see `MaxPool`.", add, 0.0, mean=True
)
Flatten = _without_parameters(
    lambda shape: (shape[0], math.prod(shape[1:])), lambda x: x.reshape((x.shape[0], -1))
)
Identity = elementwise(lambda x: x)
FanInSum = _without_parameters(lambda shapes: shapes[0], sum)


def FanOut(num: int) -> Layer:
    """Returns the input `num` times, as a list."""
    return _without_parameters(lambda shape: [shape] * num, lambda x: [x] * num)


def FanInConcat(axis: int = -1) -> Layer:
    """Concatenates several inputs along `axis`."""

    def shape_of(shapes: Shape) -> Shape:
        out = list(shapes[0])
        out[axis] = sum(shape[axis] for shape in shapes)
        return tuple(out)

    return _without_parameters(shape_of, lambda xs: concatenate(xs, axis))


def Dropout(rate: float, mode: str = "train") -> Layer:
    """Keeps elements with probability `rate`, divided by it; identity unless mode is "train"."""

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rng = kwargs.get("rng")
        if rng is None:
            raise ValueError(
                "Dropout needs a key: call the apply function with one, as apply(params, inputs, "
                "rng=shardwise.random.key(0))."
            )
        if mode != "train":
            return inputs
        return where(bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return Identity[0], apply


# -- combinators --


def _rngs(kwargs: dict[str, Any], count: int) -> Any:
    rng = kwargs.pop("rng", None)
    return [None] * count if rng is None else split(rng, count)


def serial(*layers: Layer) -> Layer:
    """Composes layers sequentially."""

    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        params = []
        for first, _ in layers:
            rng, own = split(rng)
            input_shape, found = first(own, input_shape)
            params.append(found)
        return input_shape, params

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rngs = _rngs(kwargs, len(layers))
        for (_, run), own, rng in zip(layers, params, rngs, strict=True):
            inputs = run(own, inputs, rng=rng, **kwargs)
        return inputs

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Applies each layer to its own input; returns a list of outputs."""

    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        rows = zip(layers, split(rng, len(layers)), input_shape, strict=True)
        shapes, params = zip(*[layer[0](own, shape) for layer, own, shape in rows], strict=True)
        return shapes, params

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        rows = zip(layers, params, inputs, _rngs(kwargs, len(layers)), strict=True)
        return [layer[1](own, x, rng=rng, **kwargs) for layer, own, x, rng in rows]

    return init, apply


def shape_dependent(make_layer: Callable[[Shape], Layer]) -> Layer:
    """A layer constructed from the input shape."""

    def init(rng: Any, input_shape: Shape) -> tuple[Shape, Any]:
        return make_layer(input_shape)[0](rng, input_shape)

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return init, apply
