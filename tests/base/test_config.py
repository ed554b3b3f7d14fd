"""Flags: values, scopes, environment variables, names, threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import shardwise as sw
from shardwise.base import context
from shardwise.base.config import (
    FLAGS,
    Flag,
    config,
    default_matmul_precision,
    enable_x64,
    log_compiles,
    numpy_rank_promotion,
)
from shardwise.base.context import ROOT, current


@pytest.fixture(autouse=True)
def root_flags_restored() -> Iterator[None]:
    before = dict(ROOT.flags)
    yield
    context.update_root(flags=before)


@pytest.fixture
def flag() -> Iterator[Flag]:
    """A flag of this test's own."""
    yield Flag("a_test_flag", 3, "For tests.", parse=int, choices=(1, 2, 3))
    del FLAGS["a_test_flag"]


def test_defaults_and_docs(flag: Flag):
    assert flag.value == 3 and config.a_test_flag == 3
    assert flag.__doc__ == "For tests."
    assert enable_x64.value is False
    assert default_matmul_precision.value is None


def test_update_is_for_everyone(flag: Flag):
    seen = []
    config.update("a_test_flag", 2)
    worker = threading.Thread(target=lambda: seen.append(flag.value))
    worker.start()
    worker.join()
    assert flag.value == 2 and seen == [2]


def test_update_inside_a_scope_holds_here_and_everywhere(flag: Flag):
    with enable_x64(True):
        config.update("a_test_flag", 1)
        assert flag.value == 1
    assert flag.value == 1


def test_a_scope_is_for_its_thread(flag: Flag):
    inside, leave = threading.Event(), threading.Event()
    seen = {}

    def other() -> None:
        with flag(1):
            seen["inside"] = flag.value
            inside.set()
            leave.wait(10)
        seen["after"] = flag.value

    worker = threading.Thread(target=other)
    worker.start()
    inside.wait(10)
    seen["main"] = flag.value
    leave.set()
    worker.join()
    assert seen == {"inside": 1, "main": 3, "after": 3}


def test_scopes_nest(flag: Flag):
    with flag(1), flag(2):
        assert flag.value == 2
        with flag(3):
            assert flag.value == 3
        assert flag.value == 2
    assert flag.value == 3


def test_a_scope_ends_with_an_exception(flag: Flag):
    with pytest.raises(KeyError), flag(1):
        raise KeyError
    assert flag.value == 3


def test_trace_flags_are_part_of_the_key():
    before = current().key
    with enable_x64(True):
        assert current().key is not before
    with numpy_rank_promotion("raise"):
        raising = current().key
    assert raising is not before
    with log_compiles(True):
        assert current().key is before
    assert current().key is before


def test_update_changes_the_root_key():
    before = ROOT.key
    config.update("jax_enable_x64", True)
    assert ROOT.key is not before
    config.update("enable_x64", "false")
    assert enable_x64.value is False


def test_choices(flag: Flag):
    with pytest.raises(ValueError) as caught:
        config.update("a_test_flag", 4)
    assert str(caught.value) == "a_test_flag must be one of 1, 2, 3; got 4"
    with pytest.raises(ValueError) as caught, numpy_rank_promotion("never"):
        pass
    assert str(caught.value) == (
        "numpy_rank_promotion must be one of 'allow', 'warn', 'raise'; got 'never'"
    )
    assert flag.value == 3


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("TRUE", True), (" yes ", True), ("on", True), ("0", False), ("no", False),
     ("", False), ("off", False)],
)
def test_texts_of_truth_values(text: str, value: bool):
    config.update("enable_x64", text)
    assert enable_x64.value is value


def test_text_that_is_no_truth_value():
    with pytest.raises(ValueError) as caught:
        config.update("enable_x64", "perhaps")
    assert str(caught.value) == (
        "expected a truth value such as 1, true, 0 or false, got 'perhaps'"
    )


def test_names_with_and_without_prefix():
    assert config.read("jax_enable_x64") is config.read("enable_x64") is False
    assert config.jax_enable_x64 is config.enable_x64 is False
    assert {"enable_x64", "update", "read"} <= set(dir(config))


def test_unknown_names():
    with pytest.raises(AttributeError) as caught:
        config.update("jax_enable_x46", True)
    assert caught.value.args == (
        "unknown configuration name 'jax_enable_x46'. Did you mean 'enable_x64'?",
    )
    with pytest.raises(AttributeError) as error:
        config.zzz
    assert str(error.value) == (
        f"unknown configuration name 'zzz'. Known names: {', '.join(sorted(FLAGS))}."
    )


PROGRAM = """
from shardwise.base.config import enable_x64, numpy_rank_promotion, num_cpu_devices
print(enable_x64.value, numpy_rank_promotion.value, num_cpu_devices.value)
"""


def in_a_process(**variables: str) -> subprocess.CompletedProcess:
    names = ("ENABLE_X64", "NUMPY_RANK_PROMOTION", "NUM_CPU_DEVICES")
    dropped = {p + n for p in ("SHARDWISE_", "JAX_") for n in names}
    kept = {k: v for k, v in os.environ.items() if k not in dropped}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=kept | variables, capture_output=True, text=True,
        timeout=60, check=False,
    )


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "False allow -1"),
        ({"SHARDWISE_ENABLE_X64": "1", "JAX_NUM_CPU_DEVICES": "4"}, "True allow 4"),
        ({"SHARDWISE_ENABLE_X64": "0", "JAX_ENABLE_X64": "1"}, "False allow -1"),
        ({"JAX_NUMPY_RANK_PROMOTION": "raise"}, "False raise -1"),
    ],
)
def test_environment(variables: dict, expected: str):
    done = in_a_process(**variables)
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr


def test_a_bad_environment_variable_is_named():
    done = in_a_process(SHARDWISE_ENABLE_X64="perhaps")
    assert done.returncode != 0
    assert done.stderr.strip().splitlines()[-1] == (
        "ValueError: environment variable SHARDWISE_ENABLE_X64: expected a truth value such as 1, "
        "true, 0 or false, got 'perhaps'"
    )


def test_the_default_device_is_a_device_or_a_platform():
    with sw.default_device(sw.devices()[3]):
        assert sw.numpy.zeros(2).devices() == {sw.devices()[3]}
    with sw.default_device("cpu"):
        assert sw.numpy.zeros(2).devices() == {sw.devices()[0]}
    with pytest.raises(TypeError) as caught:
        config.update("default_device", 3)
    assert str(caught.value) == (
        "default_device must be a device, a platform's name or None; got 3 of type int."
    )


def test_a_switch_is_turned_on_without_a_value_and_other_flags_need_one():
    with enable_x64():
        assert enable_x64.value is True
    with pytest.raises(TypeError) as caught, FLAGS["default_device"]():
        pass
    assert str(caught.value) == (
        "default_device() takes the value to set, e.g. default_device(None)"
    )
