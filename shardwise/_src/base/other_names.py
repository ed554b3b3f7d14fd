"""Suggestions for names of NumPy, PyTorch or earlier versions of JAX that are missing here.

For example:

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
# Our name, without `shardwise.` → foreign names.
_NAMES = {
    "Array": "Tensor",
    "devices": "device",
    "experimental.maps.xmap": "xmap",
    "grad": "backward autograd",
    "jit": "compile",
    "lax.stop_gradient": "no_grad detach",
    "lax.top_k": "topk",
    "nn.logsumexp": "log_sum_exp",
    "nn.silu": "swish",
    "numpy.all": "alltrue",
    "numpy.any": "sometrue",
    "numpy.array": "matrix tensor",
    "numpy.asarray": "as_tensor asanyarray ascontiguousarray asfarray from_numpy",
    "numpy.bool_": "bool8",
    "numpy.broadcast_to": "expand",
    "numpy.clip": "clamp",
    "numpy.concatenate": "cat",
    "numpy.copy": "clone",
    "numpy.cumprod": "cumproduct",
    "numpy.expand_dims": "unsqueeze",
    "numpy.extract": "masked_select",
    "numpy.float16": "half",
    "numpy.float32": "float",
    "numpy.inf": "Inf Infinity infty",
    "numpy.int32": "int long",
    "numpy.linalg.norm": "norm",
    "numpy.matmul": "addmm bmm mm mv",
    "numpy.moveaxis": "movedim",
    "numpy.nan": "NaN",
    "numpy.prod": "product",
    "numpy.round": "round_",
    "numpy.size": "numel",
    "numpy.sort": "msort",
    "numpy.split": "split_with_sizes",
    "numpy.subtract": "rsub",
    "numpy.take": "index_select",
    "numpy.take_along_axis": "take_along_dim",
    "numpy.transpose": "permute",
    "numpy.trapezoid": "trapz",
    "numpy.where": "copyto masked_fill putmask",
    "random.cauchy": "standard_cauchy",
    "random.exponential": "standard_exponential",
    "random.gamma": "standard_gamma",
    "random.key": "RandomState default_rng manual_seed seed",
    "random.normal": "randn standard_normal",
    "random.permutation": "randperm shuffle",
    "random.randint": "integers random_integers",
    "random.t": "standard_t",
    "random.uniform": "rand random_sample ranf",
}
# Foreign name → the full name here.
OTHER_NAMES = {
    **{name: f"shardwise.{ours}" for ours, names in _NAMES.items() for name in names.split()},
    "random.random": "shardwise.random.uniform",  # in this package only
    "targets.device": "shardwise.targets.devices",
    "pallas": "shardwise.experimental.pallas",
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
    return did_you_mean(name, names_in(package), 0.75)
