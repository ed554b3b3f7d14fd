"""Flags: values, scopes, environment variables, names, threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import shardwise as sw
from shardwise import lax
from shardwise._src.base.config import (
    Config,
    config,
    default_matmul_precision,
    enable_x64,
    log_compiles,
    numpy_rank_promotion,
)
from shardwise._src.base.context import ROOT, current
from shardwise._src.base.flags import FLAGS, Flag
from tests.helpers.errors import message as error_of
from tests.helpers.everyday import everyday

pytestmark = pytest.mark.usefixtures("flags_restored")


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
    [
        ("1", True),
        ("TRUE", True),
        (" yes ", True),
        ("on", True),
        ("0", False),
        ("no", False),
        ("", False),
        ("off", False),
    ],
)
def test_texts_of_truth_values(text: str, value: bool):
    config.update("enable_x64", text)
    assert enable_x64.value is value


def test_text_that_is_no_truth_value():
    assert error_of(ValueError, config.update, "enable_x64", "perhaps") == (
        "enable_x64 must be a boolean such as 1, true, 0 or false; got 'perhaps'"
    )


def test_names_with_and_without_prefix():
    assert config.read("jax_enable_x64") is config.read("enable_x64") is False
    assert config.jax_enable_x64 is config.enable_x64 is config.x64_enabled is False
    assert {"enable_x64", "update", "read", "values"} <= set(dir(config))
    assert config.values["enable_x64"] is False and config.values.keys() == FLAGS.keys()


@pytest.mark.parametrize("name", [n for n in FLAGS if n not in ROOT.flags])
def test_a_default_that_is_set_leaves_no_trace(name: str):
    """Else what was traced before would be traced again."""
    key, flags = current().key, dict(current().flags)
    config.update(name, FLAGS[name].default)
    assert current().key is key and dict(current().flags) == flags
    with FLAGS[name](FLAGS[name].default):
        assert current().key is key


def test_going_back_to_the_default_inside_a_scope():
    key = current().key
    with enable_x64(True):
        with enable_x64(False):
            assert enable_x64.value is False and current().key is key
        assert enable_x64.value is True
    config.update("numpy_rank_promotion", "warn")
    config.update("numpy_rank_promotion", "allow")
    assert current().key is key


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "enable_x64",
            "perhaps",
            "enable_x64 must be a boolean such as 1, true, 0 or false; got 'perhaps'",
        ),
        ("enable_x64", 3.5, "enable_x64 must be True or False; got 3.5"),
        ("num_cpu_devices", "four", "num_cpu_devices must be an int; got 'four'"),
        ("num_cpu_devices", 4.0, "num_cpu_devices must be an int; got 4.0 of type float"),
        ("num_cpu_devices", True, "num_cpu_devices must be an int; got True of type bool"),
        ("num_cpu_devices", None, "num_cpu_devices must be an int; got None of type NoneType"),
        ("platforms", 1, "platforms must be a string or None; got 1 of type int"),
        (
            "jax_compilation_cache_dir",
            ["a"],
            "compilation_cache_dir must be a string or None; got ['a'] of type list",
        ),
        (
            "persistent_cache_min_compile_time_secs",
            "soon",
            "persistent_cache_min_compile_time_secs must be a number; got 'soon'",
        ),
        (
            "default_matmul_precision",
            "exact",
            "default_matmul_precision must be one of None, 'default', 'high', 'highest', 'bfloat16', "
            "'tensorfloat32', 'float32', "
            + ", ".join(repr(preset.name) for preset in lax.DotAlgorithmPreset if preset.value)
            + "; got 'exact'",
        ),
    ],
)
def test_values_of_another_kind_are_refused(name: str, value: object, message: str):
    flags = dict(ROOT.flags)
    assert error_of((TypeError, ValueError), config.update, name, value) == message
    assert dict(ROOT.flags) == flags


def test_values_take_the_flags_kind():
    config.update("enable_x64", 1)
    assert enable_x64.value is True
    config.update("persistent_cache_min_compile_time_secs", 2)
    config.update("compilation_cache_dir", Path("/a/b"))
    assert (config.persistent_cache_min_compile_time_secs, config.compilation_cache_dir) == (
        2,
        "/a/b",
    )
    config.update("compilation_cache_dir", "none")
    assert config.compilation_cache_dir is None


def test_switches_of_earlier_times_do_nothing_and_say_so_once(caplog):
    fresh, flags = Config(), dict(ROOT.flags)
    for _ in range(2):
        fresh.update("jax_array", False)
        fresh.update("spmd_mode", "allow_jit")
    assert [r.getMessage() for r in caplog.records] == [
        "array=False has no effect: it is always True, because there is only one array type.",
        "spmd_mode='allow_jit' has no effect: it is always 'allow_all', because programs can "
        "always span processes.",
    ]
    assert fresh.jax_array is fresh.read("array") is True and fresh.jax_dynamic_shapes is False
    assert dict(ROOT.flags) == flags and "array" not in FLAGS
    for name in ("jax_enable_custom_prng", "jax_use_shardy_partitioner", "jax_cpp_jit"):
        fresh.update(name, True)


def test_unknown_names():
    with pytest.raises(AttributeError) as caught:
        config.update("jax_enable_x46", True)
    assert caught.value.args == (
        "unknown configuration option 'jax_enable_x46'. Did you mean 'enable_x64'?",
    )
    assert error_of(AttributeError, lambda: config.zzz) == (
        f"unknown configuration option 'zzz'. Known options: {', '.join(sorted(FLAGS))}."
    )


ABSL = """
import sys
import shardwise as sw
from shardwise import lax
from absl import app, flags
if "other" in sys.argv:  # a library that came first
    flags.DEFINE_bool("jax_enable_x64", False, "theirs")
mine = flags.DEFINE_integer("mine", 1, "the program's own")
if "later" in sys.argv:
    sw.config.config_with_absl()
else:
    sw.config.parse_flags_with_absl()
def show():
    return sw.config.enable_x64, sw.config.num_cpu_devices, sw.config.numpy_rank_promotion
before = show()
app.run(lambda argv: print(before, show(), mine.value, argv[1:]))
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    everyday(
        [
            ("", "(False, -1, 'allow') (False, -1, 'allow') 1 []"),
            (
                "--jax_enable_x64 --mine=3 rest --shardwise_num_cpu_devices=4",
                "(True, 4, 'allow') (True, 4, 'allow') 3 ['rest']",
            ),
            (
                "later --jax_enable_x64 --jax_numpy_rank_promotion=warn",
                "(False, -1, 'allow') (True, -1, 'warn') 1 ['later']",
            ),
            ("other --jax_enable_x64", "(True, -1, 'allow') (True, -1, 'allow') 1 ['other']"),
            (
                "--jax_enable_x64 --noshardwise_enable_x64",
                "(False, -1, 'allow') (False, -1, 'allow') 1 []",
            ),
        ],
        2,
    ),
)
def test_the_command_line(arguments: str, expected: str):
    pytest.importorskip("absl")
    done = subprocess.run(
        [sys.executable, "-c", ABSL, *arguments.split()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, expected), done.stderr


def test_without_absl(monkeypatch):
    monkeypatch.setitem(sys.modules, "absl.app", None)
    for use in (config.config_with_absl, config.parse_flags_with_absl):
        assert error_of(ImportError, use) == (
            "command-line flags need absl, which is not installed: `pip install absl-py`. "
            "Without it, use `shardwise.config.update` or environment variables."
        )


PROGRAM = """
from shardwise._src.base.config import enable_x64, numpy_rank_promotion, num_cpu_devices
print(enable_x64.value, numpy_rank_promotion.value, num_cpu_devices.value)
"""


def in_a_process(program: str = PROGRAM, **variables: str) -> subprocess.CompletedProcess:
    names = ("ENABLE_X64", "NUMPY_RANK_PROMOTION", "NUM_CPU_DEVICES")
    dropped = {p + n for p in ("SHARDWISE_", "JAX_") for n in names}
    kept = {k: v for k, v in os.environ.items() if k not in dropped}
    return subprocess.run(
        [sys.executable, "-c", program],
        env=kept | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
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
        "ValueError: environment variable SHARDWISE_ENABLE_X64: enable_x64 must be a boolean such "
        "as 1, true, 0 or false; got 'perhaps'"
    )


def test_unknown_environment_variables_are_warned_of_once():
    done = in_a_process(SHARDWISE_ENABLE_X46="1", SHARDWISE_QQQQ="1")
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if "Warning" in line]
    assert warned == [
        "<string>:2: UserWarning: the environment variable SHARDWISE_ENABLE_X46 has no effect: "
        "there is no such flag. Did you mean 'SHARDWISE_ENABLE_X64'?",
        "<string>:2: UserWarning: the environment variable SHARDWISE_QQQQ has no effect: there "
        "is no such flag.",
    ]


OLD, NEW = "divided_matrix_min_size_bytes", "sharded_linalg_min_size_bytes"


def test_an_old_name_works_and_warns():
    text = f"the option {OLD} is now {NEW}; the old name is removed in 0.4.0."
    for name in (OLD, f"jax_{OLD}"):
        with pytest.warns(DeprecationWarning) as caught:
            config.update(name, "7")
            assert getattr(config, name) == config.read(NEW) == 7
        assert [str(w.message) for w in caught] == [text] * 2
        assert {w.filename for w in caught} == {__file__}
        config.update(NEW, 8)
    assert OLD not in config.values and OLD not in dir(config)


SHOW = f"import shardwise as sw; print(sw.config.{NEW})"


@pytest.mark.parametrize("prefix", ["SHARDWISE_", "JAX_"])
def test_an_old_name_in_the_environment(prefix: str):
    old, new = prefix + OLD.upper(), prefix + NEW.upper()
    done = in_a_process(SHOW, **{old: "7"})
    assert done.stdout.strip() == "7", done.stderr
    assert done.stderr.startswith(
        f"<string>:1: DeprecationWarning: {old} is now {new}; the old name is removed in 0.4.0."
    )
    done = in_a_process(SHOW, **{old: "7", new: "8"})
    assert (done.stdout.strip(), done.stderr) == ("8", "")


def test_options_are_not_assigned():
    for name in ("enable_x64", "nonsense"):
        with pytest.raises(AttributeError) as failure:
            setattr(sw.config, name, True)
        assert str(failure.value) == (
            f"config.{name} cannot be assigned. Use `shardwise.config.update({name!r}, value)`."
        )
    assert sw.config.enable_x64 is False


def test_an_old_name_on_the_command_line():
    pytest.importorskip("absl")
    program = f"import shardwise as sw; sw.config.parse_flags_with_absl(); {SHOW}"
    for arguments, value in ((["jax_" + OLD], "7"), (["shardwise_" + OLD, "jax_" + NEW], "8")):
        flags = [f"--{name}={n}" for n, name in enumerate(arguments, 7)]
        line = [sys.executable, "-c", program, *flags]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout.strip()) == (0, value), done.stderr


def test_the_default_device_is_a_device_or_a_platform():
    with sw.default_device(sw.devices()[3]):
        assert sw.numpy.zeros(2).devices() == {sw.devices()[3]}
    with sw.default_device("cpu"):
        assert sw.numpy.zeros(2).devices() == {sw.devices()[0]}
    assert error_of(TypeError, config.update, "default_device", 3) == (
        "default_device must be a device, a platform's name or None; got 3 of type int."
    )


def test_a_switch_is_turned_on_without_a_value_and_other_flags_need_one():
    with enable_x64():
        assert enable_x64.value is True
    with pytest.raises(TypeError) as caught, FLAGS["default_device"]():
        pass
    assert str(caught.value) == (
        "default_device() requires the value to set, e.g. default_device(None)"
    )


def test_sums_in_half_precision_may_be_rejected():
    x = sw.numpy.ones((1, 3), "bfloat16")
    sums = [lambda x, d=d: sw.lax.reduce_sum(x, [d]) for d in (0, 1)]
    for _ in range(2):  # also if the type of the sum is known
        for f in sums:
            f(x), sw.jit(f)(x)
        with sw.allow_f16_reductions(False):
            sums[0](x), sw.numpy.sum(x), sw.nn.softmax(x), sums[1](x.astype("float32"))
            for f in (sums[1], sw.jit(sums[1]), sw.vmap(lambda x: sums[0](x))):
                with pytest.raises(ValueError, match=r"sums of bf16.* are not allowed"):
                    f(x)


@pytest.mark.parametrize(
    "name, value",
    [
        ("auto_pcast", True),
        ("softmax_custom_jvp", True),
        ("jax2tf_associative_scan_reductions", False),
        ("remove_size_one_mesh_axis_from_type", False),
    ],
)
def test_switches_for_what_is_done_in_one_way_take_that_value_only(name, value):
    flag = getattr(sw, name)
    assert flag.value is value
    with flag(value):
        sw.config.update(f"jax_{name}", value)
    message = f"^{name} is always {value} in shardwise\\. Always {'on' if value else 'off'}: "
    with pytest.raises(NotImplementedError, match=message):
        sw.config.update(name, not value)
    with pytest.raises(NotImplementedError, match=message), flag(not value):
        pass
    assert flag.value is value
