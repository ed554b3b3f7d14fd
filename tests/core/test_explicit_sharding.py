"""Types with shardings over explicit mesh axes: normal form, sums, and the rule of each op."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardwise._src.base.errors import ShardingTypeError
from shardwise._src.core.infer import infer
from shardwise._src.core.op import Op, every_op
from shardwise._src.ops.basis import reduce_sum, reshape, transpose
from shardwise._src.ops.contract import dot_general
from shardwise._src.ops.elementwise import add, exp, mul, neg
from shardwise._src.ops.logical import select_n
from shardwise._src.ops.shape import pad, rev, slice_, split
from shardwise._src.ops.sharded.sharding_ops import cotangent_type
from shardwise._src.transforms.batch import with_dim, without_dim
from shardwise._src.types.array_type import ArrayType, array_type, explicit_spec, with_sharding
from shardwise._src.types.mesh import AbstractMesh
from shardwise._src.types.mesh_axes import AxisType
from shardwise._src.types.partition_spec import PartitionSpec as P
from shardwise._src.types.sharding import NamedSharding

OPS = every_op()

F32 = np.dtype(np.float32)
MESH = AbstractMesh((4, 2), ("x", "y"), axis_types=AxisType.Explicit)
MIXED = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
AUTO = AbstractMesh((4, 2), ("x", "y"), axis_types=AxisType.Auto)


def over(shape: tuple, *spec: Any, mesh: Any = MESH, **sums: Any) -> ArrayType:
    return array_type(shape, F32, spec=P(*spec, **sums), mesh=mesh)


def shown(op: Op, *types: ArrayType, **params: Any) -> str:
    return infer(op, types, params).str_short(True)


def error_of(op: Op, *types: ArrayType, **params: Any) -> str:
    with pytest.raises(ShardingTypeError) as caught:
        infer(op, types, params)
    return str(caught.value)


# -- the types --


def test_specs_in_types_have_one_form():
    assert explicit_spec(MESH, P("x"), 2) is P("x", None)
    assert explicit_spec(MESH, P(P.UNCONSTRAINED, ("x", "y")), 3) is P(None, ("x", "y"), None)
    assert explicit_spec(MIXED, P(("x", "y"), "y"), 2) is P("x", None)
    assert explicit_spec(AUTO, P("x"), 2) is None
    assert over((8, 4), "x") is over((8, 4), "x", None)
    assert over((8, 4), "x", mesh=AUTO) is array_type((8, 4), F32)
    assert over((8, 4), "x", "y", mesh=MIXED).str_short(True) == "f32[8@x,4]"
    assert str(over((8, 4), None, ("x", "y"))) == "float32[8,4@(x,y)]"


def test_a_spec_belongs_to_a_shape():
    t = over((8, 4), "x", "y")
    assert t.update(shape=(4,)) is array_type((4,), F32)
    assert t.update(shape=(8, 4)) is t
    assert t.update(dtype=np.dtype(np.int32)).str_short(True) == "i32[8@x,4@y]"
    assert without_dim(t, 0).str_short(True) == "f32[4@y]"
    hidden = NamedSharding(MESH, P("x"))
    assert with_dim(without_dim(t, 0), 3, 1, hidden).str_short(True) == "f32[4@y,3@x]"
    assert with_dim(t, 3, 1, None).str_short(True) == "f32[8@x,3,4@y]"


def test_types_of_shardings():
    plain = array_type((8, 4), F32)
    assert with_sharding(plain, NamedSharding(MESH, P("x"))) is over((8, 4), "x")
    assert with_sharding(over((8, 4), "x"), NamedSharding(AUTO, P("x"))) is plain
    assert with_sharding(over((8, 4), "x"), None) is plain
    assert over((8, 4), "x").sharding is NamedSharding(MESH, P("x", None))


def test_cotangents_of_reduced_are_unreduced():
    t = over((8, 4), "x", reduced={"y"})
    assert str(t) == "float32[8@x,4]{R:y}"
    assert str(cotangent_type(t)) == "float32[8@x,4]{U:y}"
    assert cotangent_type(cotangent_type(t)) is t


# -- every op --


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_op_has_a_rule(name: str):
    """The types of ops that contain programs determine the sharding; all other ops have a rule."""
    op = OPS[name]
    assert op.dims is not None or op.programs or op.user_code or op.shardings or op.effects


# -- dimensions along which an op works --


@pytest.mark.parametrize(
    ("op", "types", "params", "expected"),
    [
        (rev, [over((7, 4), "x")], {"dimensions": (0,)}, "f32[7@x,4]"),
        (
            slice_,
            [over((7, 4), "x")],
            {"start_indices": (1, 0), "limit_indices": (4, 4)},
            "f32[3@x,4]",
        ),
        (
            pad,
            [over((7, 4), "x"), array_type((), F32)],
            {"padding_config": ((1, 0, 0), (0, 0, 0))},
            "f32[8@x,4]",
        ),
        (transpose, [over((7, 5), "x", "y")], {"perm": (1, 0)}, "f32[5@y,7@x]"),
    ],
)
def test_uneven_dimensions_stay_split(op: Op, types: list, params: dict, expected: str):
    assert shown(op, *types, **params) == expected


def test_parts_of_a_split_dimension():
    found = infer(split, (over((7, 4), "x"),), {"sizes": (3, 4), "axis": 0})
    assert [t.str_short(True) for t in found] == ["f32[3@x,4]", "f32[4@x,4]"]


@pytest.mark.parametrize(
    ("shape", "spec", "new", "expected"),
    [
        ((8, 16), ("x", "y"), (128,), "f32[128@(x,y)]"),
        ((8, 16), (None, "y"), (8, 4, 4), "f32[8,4@y,4]"),
        ((32,), (("x", "y"),), (4, 8), "f32[4@x,8@y]"),
        ((32,), (("x", "y"),), (8, 4), "f32[8@(x,y),4]"),
        ((8, 16), ("x", None), (16, 8), "f32[16@x,8]"),
        ((7, 5), ("x", "y"), (7, 1, 5), "f32[7@x,1,5@y]"),
        ((6, 4), (None, "y"), (2, 3, 4), "f32[2,3,4@y]"),
        ((0, 4), (None, None), (4, 0), "f32[4,0]"),
    ],
)
def test_reshape(shape: tuple, spec: tuple, new: tuple, expected: str):
    assert shown(reshape, over(shape, *spec), shape=new) == expected


@pytest.mark.parametrize(
    ("shape", "spec", "new", "works"),
    [
        ((8, 16), (None, "y"), (128,), "P()"),
        ((6,), ("x",), (2, 3), "P()"),
        ((8, 16), ("x", "y"), (16, 8), "P('x')"),
        ((32,), (("y", "x"),), (4, 8), "P()"),
        ((0, 4), (None, "y"), (4, 0), "P()"),
    ],
)
def test_reshapes_that_need_a_choice(shape: tuple, spec: tuple, new: tuple, works: str):
    t = over(shape, *spec)
    assert error_of(reshape, t, shape=new) == (
        f"[reshape] cannot carry the sharding of {t.str_short(True)} over to shape {new}: the "
        "shards of a dimension would not be shards of a single new dimension. Use "
        f"`shardwise.sharding.reshard(x, {works})`."
    )


# -- unreduced values --

PRODUCT = {"dimension_numbers": (((1,), (0,)), ((), ()))}
SUM = over((8, 4), unreduced={"x"})


def test_linear_ops_leave_sums_for_later():
    flags = array_type((8, 4), np.dtype(bool))
    assert shown(neg, SUM) == "f32[8,4]{U:x}"
    assert shown(add, SUM, SUM) == "f32[8,4]{U:x}"
    assert shown(mul, SUM, array_type((), F32)) == "f32[8,4]{U:x}"
    assert shown(mul, over((8, 4), "y"), SUM) == "f32[8@y,4]{U:x}"
    assert shown(select_n, flags, SUM, SUM) == "f32[8,4]{U:x}"
    assert shown(reduce_sum, SUM, axes=(0,)) == "f32[4]{U:x}"
    assert shown(reshape, SUM, shape=(32,)) == "f32[32]{U:x}"


@pytest.mark.parametrize(
    ("op", "types", "on"),
    [
        (exp, [SUM], ""),
        (mul, [SUM, SUM], " on operand 1"),
        (add, [SUM, array_type((), F32)], " on operand 0"),
        (add, [SUM, over((8, 4), unreduced={"y"})], " on all operands"),
    ],
)
def test_other_ops_do_not(op: Op, types: list, on: str):
    assert error_of(op, *types) == (
        f"[{op.name}] operands {', '.join(t.str_short(True) for t in types)}: an operand is "
        "unreduced along 'x', and the op is not linear in just the unreduced "
        f"operands. Use `shardwise.sharding.reshard(x, P())`{on}."
    )


def test_one_axis_has_one_use():
    assert error_of(mul, SUM, over((8, 4), "x")) == (
        "[mul] operands f32[8,4]{U:x}, f32[8@x,4]: one is unreduced along 'x', and another is "
        "sharded over it. Use `shardwise.sharding.reshard(x, P())` on operand 1."
    )


def test_reduced_axes():
    held = over((4, 6), reduced={"y"})
    assert shown(exp, held) == "f32[4,6]{R:y}"
    assert shown(dot_general, over((8, 4), "y"), held, **PRODUCT) == "f32[8@y,6]"
    assert error_of(add, held, over((4, 6), reduced={"x"})) == (
        "[add] operands f32[4,6]{R:y}, f32[4,6]{R:x} are not reduced along the same mesh axes, "
        "so their cotangents would be summed differently. Use "
        "`shardwise.sharding.reshard(x, P(reduced={'y'}))` on operand 1."
    )
    assert "are not reduced along the same mesh axes" in error_of(add, held, over((4, 6)))
    assert shown(add, held, array_type((), F32)) == "f32[4,6]{R:y}"


def test_one_split_operand_of_a_contraction_is_enough():
    assert shown(dot_general, over((8, 4), None, "x"), over((4, 6), None, "y"), **PRODUCT) == (
        "f32[8,6@y]"
    )
