"""`shardwise.stages`: the stage classes, and the members that JAX's classes have."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import stages
from tests.helpers.errors import message

X = np.arange(3, dtype=np.float32)


def test_stages_are_of_the_classes():
    jitted = sw.jit(lambda x: snp.sin(x))
    traced = jitted.trace(X)
    lowered = traced.lower()
    assert isinstance(jitted, stages.Wrapped)
    assert not isinstance(np.sin, stages.Wrapped)
    assert isinstance(traced, stages.Traced)
    assert isinstance(lowered, stages.Lowered)
    assert isinstance(lowered.compile(), stages.Compiled)
    (info,), _ = traced.args_info
    assert isinstance(info, stages.ArgInfo)
    assert stages.CompilerOptions == dict[str, str | bool]


def test_a_traced_function_runs_again_and_under_transforms():
    traced = sw.jit(lambda x, y: {"a": x * y["b"]}).trace(X, {"b": X})
    assert traced.effects == frozenset()
    np.testing.assert_array_equal(traced(X, {"b": X + 1})["a"], X * (X + 1))
    slope = sw.grad(lambda x: traced(x, {"b": X})["a"].sum())(X)
    np.testing.assert_array_equal(slope, X)
    with pytest.raises(TypeError) as error:
        traced(X)
    assert str(error.value).startswith("traced <lambda> takes arguments with the pytree structure ")


def test_values_from_outside_become_arguments():
    weights = snp.asarray(X + 1)
    traced = sw.jit(lambda x: x * weights).trace(X)
    consts, fun = traced.closure_convert()
    np.testing.assert_array_equal(consts[0], X + 1)
    np.testing.assert_array_equal(fun(consts, X), X * (X + 1))
    np.testing.assert_array_equal(fun([X], X), X * X)
    slope = sw.grad(lambda c: fun(c, X).sum())(consts)
    np.testing.assert_array_equal(slope[0], X)


def test_compile_refuses_other_devices():
    lowered = sw.jit(lambda x: x + 1).lower(X)
    here, other = sw.devices()[:2]
    assert lowered.compile(device_assignment=(here,))(X)[0] == 1
    assert message(ValueError, lowered.compile, device_assignment=(other,)) == (
        "compile: <lambda> is lowered for devices [0]; device_assignment requests [1]. Lower it "
        "with arguments, or shardings of `ShapeDtypeStruct`, on these."
    )


def test_environment(capsys: pytest.CaptureFixture[str]):
    text = sw.print_environment_info(return_string=True)
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    assert rows["shardwise"].strip() == sw.__version__ == sw.version.__version__
    assert rows["numpy"].strip() == np.__version__
    assert rows["device info"].strip() == "cpu-8, 8 local devices"
    assert rows["process_count"].strip() == "1"
    assert ".".join(map(str, sw.version.__version_info__)) == sw.__version__
    sw.print_environment_info()
    assert capsys.readouterr().out == text + "\n"
