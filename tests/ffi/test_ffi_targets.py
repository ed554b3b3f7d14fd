"""Registering foreign functions, compiling them, and lowering user primitives to them."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import shardwise as sw
from shardwise.core import ShapedArray
from shardwise.extend.core import Primitive
from shardwise.ffi import build_and_load, ffi_lowering
from shardwise.interpreters import batching, mlir
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.errors import message

X = np.arange(48, dtype=np.float32).reshape(8, 6)
SOURCE = """
#include "xla/ffi/api/ffi.h"
namespace ffi = xla::ffi;
static ffi::Error Impl(ffi::Buffer<ffi::F32> x, ffi::ResultBuffer<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) y->typed_data()[i] = FACTOR * x.typed_data()[i];
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(Scale, Impl,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());
"""


def scaled(name):
    return sw.ffi.ffi_call(name, sw.ShapeDtypeStruct(X.shape, X.dtype))(X)


# -- names --


def test_headers_and_capsules(kernels):
    assert Path(sw.ffi.include_dir(), "xla", "ffi", "api", "ffi.h").is_file()
    assert os.path.samefile(sw.ffi.include_dir(), jax.ffi.include_dir())
    assert type(sw.ffi.pycapsule(kernels.Rms)).__name__ == "PyCapsule"


def test_a_name_stands_for_one_function(kernels):
    capsule = sw.ffi.pycapsule
    sw.ffi.register_ffi_target("once", capsule(kernels.Root))
    sw.ffi.register_ffi_target("once", capsule(kernels.Root))
    assert message(ValueError, sw.ffi.register_ffi_target, "once", capsule(kernels.Rms)) == (
        "register_ffi_target of 'once': 'once' is already registered for Host, as something else. "
        "A name cannot be reassigned while the process runs: choose another name, such as one with "
        "a version."
    )
    other = {"type_id": capsule(kernels.CountInfo())}
    assert message(ValueError, sw.ffi.register_ffi_type, "Count", other).startswith(
        "register_ffi_type of 'Count': 'type Count' is already registered for Host"
    )


def test_what_is_no_function():
    assert message(TypeError, sw.ffi.register_ffi_target, "none", print) == (
        "register_ffi_target of 'none': fn must be a capsule, or a dictionary of capsules by "
        "stage; got <built-in function print>. Make one from a ctypes function with "
        "`shardwise.ffi.pycapsule`."
    )
    assert message(ValueError, sw.ffi.register_ffi_type_id, "t", None) == (
        "register_ffi_type_id of 't': since 0.8.1, jaxlib registers a type only together with its "
        "`TypeInfo`. Use `shardwise.ffi.register_ffi_type(name, {'type_id': …, 'type_info': …})`."
    )


def test_other_platforms_wait_for_their_client(kernels):
    sw.ffi.register_ffi_target("elsewhere", sw.ffi.pycapsule(kernels.Root), platform="cuda")
    f = sw.jit(lambda x: sw.ffi.ffi_call("elsewhere", x)(x))
    assert message(sw.errors.JaxRuntimeError, f, X).startswith(
        "no foreign function is registered as 'elsewhere' for the platform cpu."
    )


def test_what_xla_refuses_does_no_harm(kernels):
    program = (
        "import ctypes, sys, shardwise as sw\n"
        "library = ctypes.CDLL(sys.argv[1])\n"
        "stages = {'instantiate': 'NewCount', 'execute': 'NextCount'}\n"
        "fn = {k: sw.ffi.pycapsule(getattr(library, v)) for k, v in stages.items()}\n"
        "try:\n    sw.ffi.register_ffi_target('count', fn)\n"
        "except sw.errors.JaxRuntimeError as error:\n    print(error)\n"
        "print(sw.numpy.ones(2) + 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, kernels._name], capture_output=True,
                          text=True, timeout=100, check=True)  # fmt: skip
    assert done.stdout.endswith("[2. 2.]\n")
    assert "must be registered before the handler" in done.stdout


# -- build_and_load --


@pytest.mark.sweep
def test_libraries_are_compiled_once(compiler, tmp_path):
    flags = ["-DFACTOR=3", "-O0"]
    library = build_and_load(SOURCE, {"thrice_x": "Scale"}, flags=flags, folder=tmp_path)
    assert isinstance(library, ctypes.CDLL)
    np.testing.assert_array_equal(scaled("thrice_x"), 3 * X)
    (kept,) = tmp_path.iterdir()
    before = kept.stat().st_mtime_ns
    assert build_and_load(SOURCE, {"thrice_y": "Scale"}, flags=flags, folder=tmp_path) is library
    program = (
        "import sys, shardwise as sw, numpy as np\n"
        "sw.ffi.build_and_load(sys.stdin.read(), {'s': 'Scale'}, flags=sys.argv[2:],"
        " folder=sys.argv[1])\n"
        "x = np.float32([2])\nprint(sw.ffi.ffi_call('s', sw.ShapeDtypeStruct((1,), x.dtype))(x))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path, *flags], input=SOURCE,
                          capture_output=True, text=True, timeout=100, check=True)  # fmt: skip
    assert done.stdout == "[6.]\n"
    assert [f.stat().st_mtime_ns for f in tmp_path.iterdir()] == [before]


@pytest.mark.sweep
def test_a_changed_header_is_seen(compiler, tmp_path):
    source = tmp_path / "scale.cc"
    source.write_text('#include "factor.h"\n' + SOURCE)
    for factor in (5, 6):
        (tmp_path / "factor.h").write_text(f"#define FACTOR {factor}\n")
        build_and_load(source, {f"by{factor}": "Scale"}, flags=["-O0"], folder=tmp_path / "libs")
        np.testing.assert_array_equal(scaled(f"by{factor}"), factor * X)
    assert len([*(tmp_path / "libs").iterdir()]) == 2


def test_what_cannot_be_compiled(compiler, tmp_path, monkeypatch):
    source = tmp_path / "wrong.cc"
    source.write_text("int f() {\n  return undeclared;\n}\n")
    text = message(RuntimeError, build_and_load, source, {}, folder=tmp_path / "libs")
    assert text.startswith("build_and_load: the compiler failed, with status 1:\n")
    assert f"{source}:2:" in text and "undeclared" in text
    assert [*(tmp_path / "libs").iterdir()] == []
    assert message(FileNotFoundError, build_and_load, "nowhere.cc", {}) == (
        "build_and_load: there is no file 'nowhere.cc'. Pass the path of a C++ file, or C++ "
        "source of more than one line."
    )
    assert message(AttributeError, build_and_load, "int x;\n", {"a": "A"}, folder=tmp_path) == (
        "build_and_load: the library has no symbol 'A'. Define it "
        "with XLA_FFI_DEFINE_HANDLER_SYMBOL(A, function, binding), outside of any namespace."
    )
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 30\n")
    slow.chmod(0o700)
    assert message(
        RuntimeError, build_and_load, "int x;\n", {}, compiler=str(slow), timeout=0.2
    ).startswith("build_and_load: the compiler took more than 0.2 s: ")


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -x")
    assert message(FileNotFoundError, build_and_load, "int x;\n", {}) == (
        "build_and_load: no C++ compiler was found (looked for 'no-such-compiler'). Install one, "
        "such as g++, or specify one with compiler= or the environment variable CXX."
    )
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert "(looked for c++, g++, clang++ in the PATH)" in message(
        FileNotFoundError, build_and_load, "int x;\n", {}
    )


@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_where_libraries_are_kept(compiler, tmp_path, mode):
    home = tmp_path / "programs"
    home.mkdir()
    home.chmod(mode)
    flags = {"enable_compilation_cache": True, "compilation_cache_dir": str(home)}
    before = {name: getattr(sw.config, name) for name in flags}
    try:
        for name, value in flags.items():
            sw.config.update(name, value)
        build_and_load(f"int where_{mode};\n", {})
    finally:
        for name, value in before.items():
            sw.config.update(name, value)
    kept = [f for f in home.rglob("*.so")]
    assert len(kept) == (mode == 0o700)  # no other user may write code that will run


# -- lowerings by data --


def scale_primitive(lower, name="add_twice"):
    add = Primitive(name)
    add.def_abstract_eval(lambda x, y, **_: ShapedArray(x.shape, x.dtype))
    add.def_impl(lambda *xs, **params: sw.jit(lambda *xs: add.bind(*xs, **params))(*xs))
    mlir.register_lowering(add, lower)
    batching.defbroadcasting(add)
    return add


def test_a_primitive_is_lowered_to_a_foreign_function(kernels):
    add = scale_primitive(ffi_lowering("add"))
    wanted = X + np.float32(3) * X
    np.testing.assert_array_equal(add.bind(X, X, scale=np.float32(3)), wanted)
    mapped = sw.vmap(lambda x: add.bind(x, x, scale=np.float32(3)))
    np.testing.assert_array_equal(sw.jit(mapped)(X), wanted)
    text = sw.jit(lambda x: add.bind(x, x, scale=np.float32(3))).lower(X).as_text()
    assert "custom_call @add(%arg0, %arg0) {api_version = 1 : i32, backend_config = " in text
    assert 'mhlo.backend_config = {"scale" = 3.0 : f32}' in text


def test_in_rules_that_build(kernels):
    seen = []

    def lower(ctx, x, y, *, by):
        seen.append((ctx.avals_in[0].shape, ctx.avals_out[0].dtype, ctx.module_context.platforms))
        call = sw.ffi.build_ffi_lowering_function("add", backend_config={"scale": np.float32(by)})
        return call(ctx, x, y).results

    add = scale_primitive(lower)
    np.testing.assert_array_equal(add.bind(X, X, by=2), 3 * X)
    assert seen == [((8, 6), np.float32, ("cpu",))]


def test_layouts_aliases_and_effects_of_lowerings(kernels):
    step = Primitive("step")
    step.multiple_results = True
    step.def_abstract_eval(lambda x: [x, ShapedArray((), np.int32)])
    mlir.register_lowering(step, ffi_lowering(
        "increment", operand_output_aliases={0: 0}, has_side_effect=True,
    ))  # fmt: skip
    y, same = sw.jit(lambda x: step.bind(2 * x))(X)
    np.testing.assert_array_equal(y, 2 * X + 1)
    assert int(same)

    memory = Primitive("memory")
    memory.multiple_results = True
    memory.def_abstract_eval(lambda x: [ShapedArray((x.size,), x.dtype), x])
    mlir.register_lowering(memory, ffi_lowering(
        "memory", operand_layouts=[(0, 1)], result_layouts=[None, (1, 0)]
    ))  # fmt: skip
    flat, counted = sw.jit(memory.bind)(X)
    np.testing.assert_array_equal(flat, X.T.ravel())
    np.testing.assert_array_equal(counted, np.arange(48).reshape(8, 6))


@pytest.mark.parametrize("build", [False, True])
def test_attributes_of_the_call_in_stablehlo(kernels, build):
    batch = {"num_batch_dims": "1"}
    by_data = ffi_lowering("add-parts", extra_attributes={"mhlo.frontend_attributes": batch})

    def built(ctx, *operands, **params):
        extra = {"mhlo.frontend_attributes": mlir.ir_attribute(batch)}
        return ffi_lowering("add-parts", extra_attributes=extra)(ctx, *operands, **params)

    add = scale_primitive(built if build else by_data)
    mesh = sw.make_mesh((8,), ("i",), axis_types=(AxisType.Auto,))
    x = sw.device_put(X, NamedSharding(mesh, P("i")))
    f = sw.jit(lambda x: add.bind(x, x, scale=np.float32(1)))
    np.testing.assert_array_equal(f(x), 2 * X)
    assert f(x).sharding.is_equivalent_to(x.sharding, 2)
    assert "all-gather" not in f.lower(x).compile().as_text()


def test_lowerings_that_do_not_fit(kernels):
    def lowered(**options):
        add = scale_primitive(ffi_lowering("add", **options))
        return lambda: sw.jit(lambda x: add.bind(x, x, scale=np.float32(1)))(X)

    assert message(TypeError, ffi_lowering, "add", result_types=[]) == (
        "ffi_lowering of 'add': unknown argument 'result_types'; in addition to layouts and "
        "backend_config it accepts has_side_effect, operand_output_aliases, api_version, "
        "extra_attributes."
    )
    assert message(ValueError, lowered(operand_layouts=[None])) == (
        "ffi_lowering of 'add': got 1 layout for 2 values."
    )
    assert message(ValueError, lowered(result_layouts=[(0, 0)])) == (
        "ffi_lowering of 'add': the layout (0, 0) is for f32[8,6]; it must name each of its 2 "
        "dimensions once."
    )
    assert message(ValueError, lowered(backend_config="text")) == (
        "ffi_lowering of 'add': backend_config must be a dictionary with api_version 4 or higher; "
        "got 'text'."
    )
    assert message(ValueError, lowered(api_version=1)) == (
        "ffi_lowering of 'add': attributes need api_version=4; got api_version=1 with scale."
    )
    assert message(
        NotImplementedError, ffi_lowering, "add", operand_layouts=[(0,)],
        skip_ffi_layout_processing=True,
    ) == (
        "ffi_lowering of 'add': skip_ffi_layout_processing is for layouts as MLIR attributes, "
        "which are not supported. Pass sequences of dimensions, or `Layout`s."
    )  # fmt: skip
