"""`extend.backend`, `extend.sharding`, `extend.source_info_util`, topologies, and other names."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jaxlib import xla_client as xc

import shardwise as sw
import shardwise.numpy as snp
from shardwise import custom_derivatives, dlpack, errors
from shardwise._src.core.checker import ProgramError
from shardwise.experimental import topologies
from shardwise.experimental.compilation_cache import compilation_cache
from shardwise.extend import backend, sharding, source_info_util
from tests.helpers.errors import message

X = np.arange(3, dtype=np.float32)


def test_clients():
    assert backend.get_backend() is backend.get_backend("cpu") is backend.backends()["cpu"]
    assert backend.get_backend(backend.get_backend()) is backend.get_backend()
    assert backend.get_default_device() == sw.devices()[0]
    with sw.default_device(sw.devices()[2]):
        assert backend.get_default_device() == sw.devices()[2]
    assert backend.backend_xla_version() is None
    with pytest.raises(NotImplementedError) as error:
        backend.clear_backends()
    assert str(error.value).startswith("clear_backends: devices stay initialized until the process")
    with pytest.raises(ValueError, match=r"^a platform named 'cpu' already exists"):
        backend.register_backend_factory("cpu", lambda: None)


def test_caches_of_extensions_are_cleared():
    @functools.lru_cache
    def kept(n: int) -> int:
        return n

    backend.register_backend_cache(kept, "numbers")
    kept(3)
    sw.clear_caches()
    assert kept.cache_info().currsize == 0
    kept(3)
    backend.clear_in_memory_compilation_cache()
    assert kept.cache_info().currsize == 0
    assert message(TypeError, backend.register_backend_cache, 3, "numbers") == (
        "register_backend_cache takes a cache with a method cache_clear; got 3 of type int, for "
        "numbers."
    )


def test_compile_options():
    options = backend.get_compile_options(1, 2, [[3, 1]], {"xla_embed_ir_in_executable": True})
    assert (options.num_replicas, options.num_partitions) == (1, 2)
    assert options.env_option_overrides == [("xla_embed_ir_in_executable", True)]
    for wrong in ((2, 1), (1, 99), (1, 2, [0])):
        with pytest.raises(ValueError, match=r"^get_compile_options: "):
            backend.get_compile_options(*wrong)


def test_shardings_as_bytes():
    there = sharding.GSPMDSharding.get_replicated(sw.devices())
    assert there.is_fully_replicated
    tiles = xc.HloSharding.iota_tile([4, 2])
    data = sharding.get_serialized_proto_from_hlo_sharding(tiles)
    assert sharding.get_hlo_sharding_from_serialized_proto(data) == tiles
    proto = sharding.get_op_sharding_from_serialized_proto(data)
    assert list(proto.tile_assignment_dimensions) == [4, 2]


def test_where_equations_come_from():
    def g(x: Any) -> Any:
        with sw.named_scope("a"), source_info_util.extend_name_stack("b"):
            y = snp.sin(x)
            with source_info_util.reset_name_stack():
                z = snp.cos(x)
            with source_info_util.transform_name_stack("jvp"):
                return y * snp.exp(z)

    eqns = {e.primitive.name: e for e in sw.make_jaxpr(g)(X).eqns}
    info = eqns["sin"].source_info
    assert str(info.name_stack) == "a/b"
    assert source_info_util.summarize(info).startswith(f"{__file__}:")
    assert str(eqns["cos"].source_info.name_stack) == ""
    assert str(eqns["exp"].source_info.name_stack) == "a/b/jvp()"
    assert str(info.replace(name_stack=source_info_util.new_name_stack("c")).name_stack) == "c"
    assert source_info_util.summarize(source_info_util.new_source_info()) == "<unknown>:0"

    def again(x: Any) -> Any:
        with source_info_util.user_context(info.traceback):
            return snp.tan(x)

    (eqn,) = sw.make_jaxpr(again)(X).eqns
    assert source_info_util.summarize(eqn.source_info) == source_info_util.summarize(info)
    stack = source_info_util.new_name_stack("x").extend("y")
    assert str(stack + stack) == "x/y/x/y"
    assert len(source_info_util.current_name_stack()) == 0


def test_frames_of_files_are_left_out(tmp_path: Path):
    (tmp_path / "helper_of_mine.py").write_text(
        "import shardwise.numpy as snp\ndef helped(x):\n    return snp.sin(x)\n"
    )
    found: dict[str, Any] = {}
    code = (tmp_path / "helper_of_mine.py").read_text()
    exec(compile(code, str(tmp_path / "helper_of_mine.py"), "exec"), found)

    def where() -> str:
        (eqn,) = sw.make_jaxpr(lambda x: found["helped"](x))(X).eqns
        return source_info_util.summarize(eqn.source_info)

    assert where().startswith(f"{tmp_path}/helper_of_mine.py:3 ")
    source_info_util.register_exclusion(str(tmp_path))
    assert where().startswith(f"{__file__}:")


def test_topologies():
    found = topologies.get_attached_topology("cpu")
    assert repr(found) == "TopologyDescription(8 devices of cpu)"
    mesh = topologies.make_mesh(found, (4, 2), ("x", "y"))
    assert dict(mesh.shape) == {"x": 4, "y": 2}
    assert message(NotImplementedError, topologies.get_topology_desc, "2x2", "cpu") == (
        "get_topology_desc: there is no compiler for cpu devices that are not attached; there are "
        "those for 'cuda' and 'tpu'. Use get_attached_topology(), or `num_cpu_devices` for more "
        "virtual CPU devices."
    )


def test_folder_of_compiled_programs(tmp_path: Path):
    before = sw.config.compilation_cache_dir
    try:
        compilation_cache.set_cache_dir(tmp_path)
        assert sw.config.compilation_cache_dir == str(tmp_path)
        compilation_cache.reset_cache()
    finally:
        sw.config.update("compilation_cache_dir", before)


@pytest.mark.parametrize(
    "name",
    [
        *("bool_", "int8", "int64", "uint16", "bfloat16", "float16", "float32", "complex64"),
        *("int4", "uint2", "float4_e2m1fn"),
    ],
)
def test_dtypes_of_dlpack(name: str):
    dtype = getattr(snp, name)
    assert dlpack.is_supported_dtype(dtype) == jax.dlpack.is_supported_dtype(
        getattr(jax.numpy, name)
    )
    assert not dlpack.is_supported_dtype(sw.random.key(0).dtype)


def test_classes_of_errors_are_those_of_jax():
    for name in dir(errors):
        ours, theirs = getattr(errors, name), getattr(jax.errors, name, None)
        if isinstance(theirs, type) and isinstance(ours, type):
            bases = {c.__name__ for c in theirs.__mro__ if c.__module__ == "jax.errors"}
            assert bases <= {c.__name__ for c in ours.__mro__}, name
    assert issubclass(ProgramError, errors.JaxprTypeError)


def test_primitives_of_custom_rules():
    @sw.custom_jvp
    def g(x: Any) -> Any:
        return x

    g.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
    (eqn,) = sw.make_jaxpr(g)(X).eqns
    assert eqn.primitive is custom_derivatives.custom_jvp_call_p
    assert custom_derivatives.custom_vjp_call_p.name == "custom_vjp_call"


def test_options_for_modules_over_devices():
    from shardwise.interpreters import pxla, xla

    devices = np.array(sw.devices()[:2])
    options = pxla.create_compile_options(
        None,
        True,
        [True],
        [False],
        None,
        devices,
        {"xla_cpu_enable_fast_math": False, "fdo_profile": b"abc"},
    )
    build = options.executable_build_options
    assert (options.num_partitions, options.parameter_is_tupled_arguments) == (2, True)
    assert build.use_shardy_partitioner and build.fdo_profile == b"abc"
    assert options.env_option_overrides == [("xla_cpu_enable_fast_math", False)]
    assert isinstance(sw.devices()[0].client, xla.Backend)
