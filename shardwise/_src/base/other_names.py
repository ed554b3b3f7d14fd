"""Suggestions for names of NumPy, PyTorch, or earlier versions of JAX that this library lacks.

jnp.cat      # … has no attribute 'cat'. Use `shardwise.numpy.concatenate`.
jnp.softmax  # … has no attribute 'softmax'. Use `shardwise.nn.softmax`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardwise._src.base.errors import did_you_mean

# Namespaces that are searched for the same name, in this order.
NAMESPACES = (
    "shardwise",
    "shardwise.numpy",
    "shardwise.lax",
    "shardwise.nn",
    "shardwise.random",
    "shardwise.numpy.linalg",
    "shardwise.nn.initializers",
    "shardwise.sharding",
    "shardwise.tree_util",
    "shardwise.tree",
    "shardwise.errors",
    "shardwise.ops",
    "shardwise.numpy.fft",
    "shardwise.lax.linalg",
    "shardwise.scipy.linalg",
)
_NUMPY = {
    "addmm": "matmul",
    "alltrue": "all",
    "as_tensor": "asarray",
    "asanyarray": "asarray",
    "ascontiguousarray": "asarray",
    "asfarray": "asarray",
    "bmm": "matmul",
    "bool8": "bool_",
    "cat": "concatenate",
    "clamp": "clip",
    "clone": "copy",
    "copyto": "where",
    "cumproduct": "cumprod",
    "expand": "broadcast_to",
    "float": "float32",
    "from_numpy": "asarray",
    "half": "float16",
    "index_select": "take",
    "Inf": "inf",
    "Infinity": "inf",
    "infty": "inf",
    "int": "int32",
    "long": "int32",
    "masked_fill": "where",
    "masked_select": "extract",
    "matrix": "array",
    "mm": "matmul",
    "movedim": "moveaxis",
    "msort": "sort",
    "mv": "matmul",
    "NaN": "nan",
    "numel": "size",
    "permute": "transpose",
    "product": "prod",
    "putmask": "where",
    "rsub": "subtract",
    "round_": "round",
    "sometrue": "any",
    "split_with_sizes": "split",
    "take_along_dim": "take_along_axis",
    "tensor": "array",
    "trapz": "trapezoid",
    "unsqueeze": "expand_dims",
}
_RANDOM = {
    "RandomState": "key",
    "default_rng": "key",
    "integers": "randint",
    "manual_seed": "key",
    "rand": "uniform",
    "randn": "normal",
    "randperm": "permutation",
    "random_integers": "randint",
    "random_sample": "uniform",
    "ranf": "uniform",
    "seed": "key",
    "shuffle": "permutation",
    "standard_cauchy": "cauchy",
    "standard_exponential": "exponential",
    "standard_gamma": "gamma",
    "standard_normal": "normal",
    "standard_t": "t",
}
_OTHER = {
    "Tensor": "Array",
    "compile": "jit",
    "device": "devices",
    "no_grad": "lax.stop_gradient",
    "detach": "lax.stop_gradient",
    "backward": "grad",
    "autograd": "grad",
    "topk": "lax.top_k",
    "norm": "numpy.linalg.norm",
    "xmap": "experimental.maps.xmap",
    "log_sum_exp": "nn.logsumexp",
    "swish": "nn.silu",
}
# Names of JAX that this library does not have yet.
NOT_YET = frozenset(("pallas").split())
# Foreign name → the full name here.
OTHER_NAMES = {
    **{name: f"shardwise.numpy.{ours}" for name, ours in _NUMPY.items()},
    **{name: f"shardwise.random.{ours}" for name, ours in _RANDOM.items()},
    **{name: f"shardwise.{ours}" for name, ours in _OTHER.items()},
    "random.random": "shardwise.random.uniform",  # here only
}


def suggestion(package: str, name: str, names_in: Callable[[str], Mapping[str, object]]) -> str:
    """` Use …`, or ` Did you mean …?`, the end of a message about an unknown name; or ''.

    names_in: the names of a namespace.
    """
    if name.startswith("_"):
        return ""
    here = f"{package.rpartition('.')[2]}.{name}"
    other = OTHER_NAMES.get(here) or OTHER_NAMES.get(name)
    if other is not None:
        return f" Use `{other}`."
    for space in NAMESPACES:
        if name in names_in(space):
            return f" Use `{space}.{name}`."
    if name in NOT_YET:
        return f" It is not implemented yet: `dir({package})` lists the available names."
    return did_you_mean(name, names_in(package), 0.75)
