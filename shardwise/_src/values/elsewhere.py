"""Attributes of other libraries' arrays that arrays here lack: the error names a replacement.

For example:

    x.permute(1, 0)    # 'Array' object has no attribute 'permute'. Use `x.transpose(axes)`.
"""

from __future__ import annotations

from typing import Any


class _Missing:
    """An attribute of NumPy's arrays, or of earlier ones here, that arrays do not have."""

    def __init__(self, instead: str):
        self.instead = instead  # the replacement

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: type) -> Any:
        if x is None:
            return self
        message = f"{owner.__name__!r} object has no attribute {self.name!r}. Use `{self.instead}`."
        raise AttributeError(message, name=self.name, obj=x)


class Elsewhere:
    """The part of `Value` that handles attribute names of NumPy, PyTorch and earlier arrays."""

    __slots__ = ()

    # Listed individually: NumPy queries array attributes, and `__getattr__` would be slow.
    fill = _Missing("x = shardwise.numpy.full_like(x, value)")
    flat = _Missing("x.ravel()")
    itemset = _Missing("x = x.at[idx].set(value)")
    partition = _Missing("x = shardwise.numpy.partition(x, kth)")
    put = _Missing("x = shardwise.numpy.put(x, idx, values, inplace=False)")
    resize = _Missing("x = shardwise.numpy.resize(x, shape)")
    tofile = _Missing("numpy.asarray(x).tofile(file)")

    # PyTorch names

    backward = _Missing("shardwise.grad(function)(x)")
    clamp = _Missing("x.clip(min, max)")
    clone = _Missing("x.copy()")
    contiguous = _Missing("x")
    cpu = _Missing("shardwise.device_put(x, shardwise.devices('cpu')[0])")
    cuda = _Missing("shardwise.device_put(x, shardwise.devices('cuda')[0])")
    detach = _Missing("shardwise.lax.stop_gradient(x)")
    double = _Missing("x.astype('float64')")
    expand = _Missing("shardwise.numpy.broadcast_to(x, shape)")
    float = _Missing("x.astype('float32')")
    half = _Missing("x.astype('float16')")
    int = _Missing("x.astype('int32')")
    long = _Missing("x.astype('int64')")
    masked_fill = _Missing("shardwise.numpy.where(mask, value, x)")
    norm = _Missing("shardwise.numpy.linalg.norm(x)")
    numel = _Missing("x.size")
    numpy = _Missing("numpy.asarray(x)")
    permute = _Missing("x.transpose(axes)")
    softmax = _Missing("shardwise.nn.softmax(x, axis)")
    t = _Missing("x.T")
    to = _Missing("shardwise.device_put(x, device)` or `x.astype(dtype)")
    type = _Missing("x.astype(dtype)")
    unsqueeze = _Missing("shardwise.numpy.expand_dims(x, axis)")
