"""Type inference: its cache, varying names, and shardings over explicit mesh axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.infer import infer, type_of
from shardwise._src.core.op import INFERENCE_CACHE_SIZE, OPS, Op
from shardwise._src.ops.basis import broadcast_in_dim, reduce_sum, reshape, transpose
from shardwise._src.ops.contract import dot_general
from shardwise._src.ops.cumulative import cumsum
from shardwise._src.ops.elementwise import add, sin
from shardwise._src.ops.shape import concatenate, split
from shardwise._src.types.array_type import ArrayType, array_type
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import PartitionSpec as P

F32 = np.dtype(np.float32)
MESH = AbstractMesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
MATMUL = {"dimension_numbers": (((1,), (0,)), ((), ()))}


def over(shape: tuple, *spec: Any, mesh: Any = MESH, **more: Any) -> ArrayType:
    return array_type(shape, F32, spec=P(*spec), mesh=mesh, **more)


def shown(op: Op, *types: ArrayType, **params: Any) -> str:
    return infer(op, types, params).str_short(True)


# -- plain types and the cache --


def test_types_of_host_values():
    assert type_of(1.5) == array_type((), F32, weak_type=True)
    assert type_of(2) == array_type((), np.dtype(np.int32), weak_type=True)
    assert type_of(np.float32(1)) == array_type((), F32)
    assert type_of(np.zeros((2, 3))) == array_type((2, 3), F32)
    assert type_of(True) == array_type((), np.dtype(bool))


@pytest.fixture
def counted():
    """An op that counts how often its type rule runs."""
    calls: list[tuple] = []

    def rule(op: Op, x: ArrayType, **params: Any) -> ArrayType:
        calls.append((x, params))
        return x

    op = Op("counted", type_rule=rule)
    yield op, calls
    del OPS["counted"]


def test_cache(counted: Any):
    op, calls = counted
    x, y = array_type((2,), F32), array_type((3,), F32)
    for t, params in [(x, {}), (x, {}), (y, {}), (x, {"k": 1}), (x, {"k": 1}), (x, {"k": 2})]:
        assert infer(op, (t,), params) is t
    assert len(calls) == 4


def test_parameters_of_equal_values_and_other_names_are_apart(counted: Any):
    op, calls = counted
    x = array_type((2,), F32)
    infer(op, (x,), {"a": 1})
    infer(op, (x,), {"b": 1})
    assert [params for _, params in calls] == [{"a": 1}, {"b": 1}]


def test_parameters_that_cannot_be_hashed(counted: Any):
    op, calls = counted
    x = array_type((2,), F32)
    assert infer(op, (x,), {"k": [1]}) is infer(op, (x,), {"k": [1]}) is x
    assert len(calls) == 2


def test_the_cache_is_bounded(counted: Any):
    op, _ = counted
    x = array_type((2,), F32)
    for i in range(INFERENCE_CACHE_SIZE + 10):
        infer(op, (x,), {"k": i})
    assert len(op.inferred) <= INFERENCE_CACHE_SIZE


def test_errors_of_the_rule_are_not_kept():
    x = array_type((3,), F32)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^\[reshape\] cannot reshape"):
            infer(reshape, (x,), {"shape": (4,)})


# -- varying names --


def test_results_vary_along_the_names_of_all_operands():
    one = array_type((2,), F32, varying=frozenset({"i"}))
    other = array_type((2,), F32, varying=frozenset({"j"}))
    assert shown(add, one, other) == "f32[2]{V:i,j}"
    assert shown(add, one, array_type((2,), F32)) == "f32[2]{V:i}"
    assert shown(sin, array_type((2,), F32)) == "f32[2]"


def test_all_results_vary():
    x = array_type((3,), F32, varying=frozenset({"i"}))
    found = infer(split, (x,), {"sizes": (1, 2), "axis": 0})
    assert [t.str_short(True) for t in found] == ["f32[1]{V:i}", "f32[2]{V:i}"]


# -- explicit shardings --


@pytest.mark.parametrize(
    ("op", "types", "params", "expected"),
    [
        (sin, [over((4, 2), "x", "y")], {}, "f32[4@x,2@y]"),
        (add, [over((4, 2), "x", None), over((4, 2), None, None)], {}, "f32[4@x,2]"),
        (add, [over((4, 2), "x", None), over((4, 2), None, "y")], {}, "f32[4@x,2@y]"),
        (add, [over((4,), "x"), array_type((), F32)], {}, "f32[4@x]"),
        (transpose, [over((4, 2), "x", None)], {"perm": (1, 0)}, "f32[2,4@x]"),
        (broadcast_in_dim, [over((4,), "x")], {"shape": (2, 4), "dims": (1,)}, "f32[2,4@x]"),
        (reduce_sum, [over((4, 2), "x", "y")], {"axes": (0,)}, "f32[2@y]"),
        (reshape, [over((4, 6), "x", None)], {"shape": (24,)}, "f32[24@x]"),
        (reshape, [over((24,), ("x", "y"))], {"shape": (4, 6)}, "f32[4@(x,y),6]"),
        (reshape, [over((24,), ("x", "y"))], {"shape": (2, 12)}, "f32[2@x,12@y]"),
        (concatenate, [over((4, 2), "x", None)] * 2, {"dimension": 1}, "f32[4@x,4]"),
        (concatenate, [over((4, 2), "x", None)] * 2, {"dimension": 0}, "f32[8@x,2]"),
        (dot_general, [over((4, 6), "x", None), over((6, 2), None, "y")], MATMUL, "f32[4@x,2@y]"),
    ],
)
def test_shardings_follow_the_factors(op: Op, types: list, params: dict, expected: str):
    assert shown(op, *types, **params) == expected


def error_of(op: Op, *types: ArrayType, **params: Any) -> str:
    with pytest.raises(ShardingTypeError) as caught:
        infer(op, types, params)
    return str(caught.value)


def test_conflict():
    assert error_of(add, over((4, 4), "x", None), over((4, 4), "y", None)) == (
        "[add] operands f32[4@x,4], f32[4@y,4] disagree about the sharding of dimension 0: "
        "('x',) and ('y',). Use `shardwise.sharding.reshard(x, P('x'))` on operand 1."
    )


def test_one_axis_cannot_split_two_dimensions_of_the_result():
    assert error_of(add, over((4, 4), "x", None), over((4, 4), None, "x")) == (
        "[add] operands f32[4@x,4], f32[4,4@x] would shard dimensions 0 and 1 of the result over "
        "the same mesh axis, 'x'. Use `shardwise.sharding.reshard(x, P())` on operand 1."
    )
    assert error_of(
        dot_general, over((4, 6), ("y", "x"), None), over((6, 2), None, "x"), **MATMUL
    ).startswith("[dot_general] operands f32[4@(y,x),6], f32[6,2@x] would shard dimensions 0 and 1")


def test_splitting_a_dimension_that_the_op_works_along():
    assert error_of(cumsum, over((4, 2), None, "y"), axis=1) == (
        "[cumsum] cannot operate along dimension 1 of f32[4,2@y], which is sharded "
        "over ('y',). Use `shardwise.sharding.reshard(x, P())`."
    )


def test_contraction():
    assert error_of(dot_general, over((4, 6), None, "x"), over((6, 2), "x", None), **MATMUL) == (
        "[dot_general] operands f32[4,6@x], f32[6@x,2] are sharded over ('x',) along a contracted "
        "dimension, so the result's sharding is ambiguous. Use "
        "`shardwise.sharding.reshard(x, P())` on operand 1."
    )


def test_different_meshes():
    other = AbstractMesh((4,), ("x",), axis_types=(AxisType.Explicit,))
    message = error_of(add, over((4,), "x"), over((4,), "x", mesh=other))
    assert message.startswith("[add] operands are on different meshes: ")
    assert message.endswith(
        ". Use `shardwise.sharding.reshard(x, NamedSharding(mesh, P(...)))` on one of them."
    )


def test_op_without_dims(counted: Any):
    op, _ = counted
    with pytest.raises(NotImplementedError) as caught:
        infer(op, (over((4,), "x"),), {})
    assert str(caught.value) == (
        "[counted] cannot be used under explicit sharding: its record has no `dims` rule."
    )
