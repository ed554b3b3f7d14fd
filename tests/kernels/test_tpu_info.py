"""Facts about TPUs by JAX's names, compared with JAX's."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import jax.experimental.pallas.tpu as jax_pltpu
import jax.numpy as jax_numpy
import numpy as np
import pytest

import shardwise as sw
from shardwise._src.explain.machines import machine_of
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas import tpu as pltpu
from shardwise.explain import machines
from shardwise.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh
from tests.helpers.errors import message
from tests.helpers.targets import needs_tpu

V5E, V6E = pltpu.ChipVersion.TPU_V5E, pltpu.ChipVersion.TPU_V6E
CHIPS = [("TPU_V5E", 1), ("TPU_V5P", 2), ("TPU_V5P", 1), ("TPU_V6E", 1), ("TPU_7X", 1)]
DTYPES = [
    *("float32", "bfloat16", "float16", "int32", "int8", "uint8", "int4", "uint4"),
    *("float8_e5m2", "float8_e4m3fn", "float8_e4m3b11fnuz"),
]


@pytest.mark.parametrize("name, cores", CHIPS)
def test_facts_are_those_of_jax(name, cores):
    found = pltpu.get_tpu_info_for_chip(pltpu.ChipVersion[name], cores)
    wanted = jax_pltpu.get_tpu_info_for_chip(jax_pltpu.ChipVersion[name], cores)
    for field in dataclasses.fields(found):
        x, y = getattr(found, field.name), getattr(wanted, field.name)
        if field.name == "chip_version":
            assert (x.name, str(x)) == (y.name, str(y))
        elif field.name.endswith("_second") or field.name == "hbm_capacity_bytes":
            assert x == 0 or abs(x / y - 1) < 0.13  # numbers of vendors, which are rounded
        elif field.name != "sparse_core":
            assert x == y
    for fact in ("is_lite", "is_megacore", "is_split_chip"):
        assert getattr(found, fact) == getattr(wanted, fact)
    for dtype in DTYPES:
        of_jax = jax_numpy.dtype(dtype)
        assert found.get_sublane_tiling(dtype) == wanted.get_sublane_tiling(of_jax)
        for other in DTYPES:
            pair = of_jax, jax_numpy.dtype(other)
            assert found.is_matmul_supported(dtype, other) == wanted.is_matmul_supported(*pair)


def test_generations_and_tilings_are_those_of_jax():
    assert [v.name for v in pltpu.ChipVersion] == [v.name for v in jax_pltpu.ChipVersion]
    for version in pltpu.ChipVersion:
        other = jax_pltpu.ChipVersion[version.name]
        for fact in ("is_lite", "supports_megacore", "num_physical_tensor_cores_per_chip"):
            assert getattr(version, fact) == getattr(other, fact)
    assert {t.name: t.shape for t in pltpu.Tiling} == {t.name: t.shape for t in jax_pltpu.Tiling}


def test_rates_are_those_of_estimates():
    info, machine = pltpu.get_tpu_info_for_chip(V6E, 1), machines["tpu-v6e"]
    assert info.bf16_ops_per_second == machine.flops["bf16"]
    assert info.hbm_capacity_bytes == machine.memory_bytes
    assert machine_of(None, SimpleNamespace(device_kind="TPU v6 lite")) is machine


def body(x, out):
    out[...] = x[...] * pltpu.get_tpu_info().num_mxus


def test_the_device_of_the_mesh_in_scope():
    call = pl.pallas_call(body, sw.ShapeDtypeStruct((8, 128), "float32"))
    x = np.ones((8, 128), np.float32)
    traced = sw.jit(call)
    for kind, version, units in (("TPU v5 lite", V5E, 4), ("TPU v6e", V6E, 2)):
        device = AbstractDevice(kind, 1, "tpu")
        with use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=device)):
            assert pltpu.is_tpu_device() and pltpu.get_tpu_info().chip_version is version
            np.testing.assert_array_equal(call(x), units * x)
            assert f" {units}.0" in str(traced.trace(x).jaxpr)
    assert not pltpu.is_tpu_device()


@needs_tpu
def test_devices_that_are_not_attached():
    device = sw.targets.devices("tpu-v5p:2x2x1")[0]
    assert pltpu.get_tpu_info(device).num_cores == 2
    call = pl.pallas_call(body, sw.ShapeDtypeStruct((8, 128), "float32"))
    with sw.default_device(sw.targets.devices("tpu-v6e")[0]):
        assert pltpu.is_tpu_device() and pltpu.get_tpu_info().chip_version is V6E
        text = sw.jit(call).lower(sw.ShapeDtypeStruct((8, 128), "float32")).as_text()
    assert "tpu_custom_call" in text


def info_of(kind: str) -> Any:
    return lambda: pltpu.get_tpu_info(SimpleNamespace(device_kind=kind))


NOT_DESCRIBED = (
    "get_tpu_info: the device is a {!r}, not a TPU that is described: 'tpu-v5e', 'tpu-v5p', "
    "'tpu-v6e' and 'tpu-7x'. Name one: `get_tpu_info_for_chip(ChipVersion.TPU_V5E, 1)`. Or trace "
    "and lower the function for a TPU that is not attached: `with shardwise.default_device("
    "shardwise.targets.devices('tpu-v5e')[0]): jit(f).lower(...)`."
)
MISTAKES = [
    (pltpu.get_tpu_info, NOT_DESCRIBED.format("cpu")),
    (info_of("TPU v3"), NOT_DESCRIBED.format("TPU v3")),
    (
        lambda: pltpu.get_tpu_info_for_chip(V5E, 2),
        "get_tpu_info_for_chip: a device of TPU v5e has 1 core; got 2.",
    ),
    (
        lambda: pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V5P, 3),
        "get_tpu_info_for_chip: a device of TPU v5p has 1 or 2 cores; got 3.",
    ),
    (
        lambda: pltpu.get_tpu_info_for_chip(pltpu.ChipVersion.TPU_V4, 2),
        "get_tpu_info_for_chip: TPU v4 is not described; those that are: 'tpu-v5e', 'tpu-v5p', "
        "'tpu-v6e' and 'tpu-7x'.",
    ),
]


@pytest.mark.parametrize("f, text", MISTAKES)
def test_mistakes(f, text):
    assert message(ValueError, f) == text
