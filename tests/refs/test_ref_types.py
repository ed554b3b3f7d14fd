"""`typeof` of refs, and the names of their functions in errors."""

from __future__ import annotations

import re

import numpy as np
import pytest

import shardwise as sw
from shardwise.core import ShapedArray
from shardwise.ref import AbstractRef, swap


def test_the_type_of_a_ref():
    ref = sw.new_ref(np.ones((2, 3), np.float32))
    t = sw.typeof(ref)
    assert isinstance(t, AbstractRef) and repr(t) == "AbstractRef{f32[2,3]}"
    assert t.str_short(True) == "Ref{f32[2,3]}"
    assert (t.shape, t.dtype, t.ndim, t.size, t.weak_type) == ((2, 3), np.float32, 2, 6, False)
    assert t.sharding == t.inner_aval.sharding
    other = ShapedArray((2,), np.int32)
    assert t == AbstractRef(ShapedArray((2, 3), np.float32)) != t.update(inner_aval=other)
    assert len({t, AbstractRef(ShapedArray((2, 3), np.float32))}) == 1
    assert sw.typeof(np.ones(3, np.float32)) is ShapedArray((3,), np.float32)
    found = []
    sw.jit(lambda: found.append(sw.typeof(sw.new_ref(np.zeros(4, np.int32)))))()
    assert found == [AbstractRef(ShapedArray((4,), np.int32))]
    with pytest.raises(
        NotImplementedError,
        match=re.escape("AbstractRef: memory_space applies only to refs in kernels; got 'vmem'."),
    ):
        AbstractRef(other, "vmem")


def test_errors_say_the_name_that_swap_is_given():
    ref = sw.new_ref(np.ones(2, np.float32))
    assert swap(ref, 0, 3.0, _function_name="exchange") == 1
    with pytest.raises(TypeError, match=r"^exchange: expected a Ref; got 3 of type int\.$"):
        swap(3, 0, 1.0, _function_name="exchange")  # pyright: ignore[reportArgumentType]
