"""Tuning, with times that the tests state: choices, rejections, files, traces, messages."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
from shardwise import kernels
from shardwise._src.base import context
from shardwise._src.base.config import config
from shardwise._src.base.context import ROOT
from shardwise._src.explain.machines import Chosen
from shardwise.errors import KernelError
from shardwise.kernels import Block, call, cdiv
from tests.helpers.errors import message
from tests.kernels.kernels import like

REPOSITORY = Path(__file__).resolve().parent.parent.parent
X = np.arange(256, dtype=np.float32).reshape(32, 8)
ROWS = {"rows": [4, 8, 16]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for the cache, which is enabled."""
    before = dict(ROOT.flags)
    config.update("jax_enable_compilation_cache", True)
    config.update("jax_compilation_cache_dir", tmp_path / "cache")
    yield tmp_path / "cache"
    context.update_root(flags=before)


def double(rows, wrong=None):
    """A kernel that doubles rows, all but one variant."""
    if rows % 4:
        raise ValueError(f"rows must be a multiple of 4; got {rows}.\nUse 4.")

    def body(x, out):
        out[...] = x[...] * (3 if rows == wrong else 2)

    block = Block((rows, 8), lambda i: (i, 0))
    return call(body, like(32, 8), grid=cdiv(32, rows), in_specs=block, out_specs=block)


class Times:
    """A timer by which runs take these seconds, in turn."""

    def __init__(self, *rounds):
        self.seconds, self.calls = [s for row in rounds for s in row], 0

    def __call__(self, run):
        run()
        self.calls += 1
        return self.seconds[self.calls - 1]


def no_timer(run):
    raise AssertionError("nothing is measured here")


def test_the_variant_with_the_smallest_median_runs():
    times = Times((3.0, 9.0, 2.0), (3.0, 1.0, 2.5), (3.0, 1.0, 9.0))
    f = kernels.tune(double, ROWS, repeats=3, timer=times)
    np.testing.assert_array_equal(f(X), 2 * X)
    found = f.best(X)
    assert (found.choice, found.seconds) == ({"rows": 8}, 1.0)
    assert [(c.choice["rows"], c.seconds) for c in found.candidates] == [
        (8, 1.0),
        (16, 2.5),
        (4, 3.0),
    ]
    f(X)
    assert times.calls == 9
    assert f.best(X) is found


def test_variants_that_fail_or_do_not_fit_are_recorded_with_the_reason(monkeypatch):
    monkeypatch.setattr(
        "shardwise._src.explain.launches.tuning.machine_of",
        lambda asked, device: sw.explain.machines["tpu-v5e"],
    )
    n = 2**15

    def make(rows):
        block = Block((rows, 128), lambda i: (i, 0))
        f = call(lambda x, out: None, like(n, 128), grid=n // rows, in_specs=block, out_specs=block)
        return double(rows) if rows % 4 else f

    f = kernels.tune(make, {"rows": [6, 8192, n, 4096]}, repeats=1, timer=Times((1.5e-3, 0.25)))
    assert str(f.best(np.zeros((n, 128), np.float32))) == (
        """\
make on cpu
  rows   measured  estimate
  8192     1.5 ms     41 µs
  4096     250 ms     41 µs
  6             -         -  ValueError: rows must be a multiple of 4; got 6.
  32768         -     41 µs  A program needs 32.0 MiB of VMEM; 'tpu-v5e' has 16.0 MiB. Use smaller blocks."""
    )


def test_only_those_that_the_model_prefers_are_measured():
    def make(rows):
        block = Block((rows, 8), lambda i: (i, 0))
        more = Block((8, 8), lambda i: (i % 4, 0))  # read again for each program

        def body(x, y, out):
            out[...] = 2 * x[...]

        f = call(body, like(32, 8), grid=32 // rows, in_specs=[block, more], out_specs=block)
        return lambda x: f(x, x)

    f = kernels.tune(make, ROWS, keep=2, repeats=1, timer=Times((2.0, 1.0)))
    found = f.best(X)
    assert [c.choice["rows"] for c in found.candidates] == [16, 8, 4]
    assert [c.rejected for c in found.candidates] == ["", "", "slower by the model"]
    estimates = [c.estimate for c in found.candidates]
    assert estimates == sorted(estimates)


def test_a_variant_with_other_results_is_an_error():
    def make(rows):
        return double(rows, wrong=16)

    f = kernels.tune(make, ROWS, timer=no_timer)
    assert message(KernelError, f, X) == (
        "kernels.tune: the variants {'rows': 4} and {'rows': 16} of make have other results: result "
        "0, f32[32,8], differs in 255 of 256 elements. Correct the kernel, or pass a `tolerance`."
    )
    tolerant = kernels.tune(make, ROWS, tolerance=0.5, repeats=1, timer=Times((1.0, 2.0, 3.0)))
    assert tolerant.best(X).choice == {"rows": 4}

    def shaped(rows):
        return lambda x: double(4)(x)[:rows]

    assert message(KernelError, kernels.tune(shaped, ROWS, timer=no_timer), X) == (
        "kernels.tune: the variants {'rows': 4} and {'rows': 8} of shaped have other results: result "
        "0, is f32[8,8] instead of f32[4,8]. Correct the kernel, or pass a `tolerance`."
    )


def test_results_are_stored_for_other_functions_and_processes(folder):
    f = kernels.tune(double, ROWS, repeats=1, timer=Times((3.0, 2.0, 1.0)))
    found = f.best(X)
    again = kernels.tune(double, ROWS, timer=no_timer)
    assert again.best(X) == found and again.best(like(32, 8)) == found
    code = (
        "import numpy as np, tests.kernels.test_tuning as t\n"
        "f = t.kernels.tune(t.double, t.ROWS, timer=t.no_timer)\n"
        "print(f.best(t.X).choice, f.best(t.X).seconds)\n"
    )
    env = os.environ | {
        "SHARDWISE_ENABLE_COMPILATION_CACHE": "1",
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env=env, capture_output=True, text=True
    )
    assert done.stdout == "{'rows': 16} 1.0\n", done.stderr


def test_other_types_choices_and_kernels_are_measured_again():
    kernels.tune(double, ROWS, repeats=1, timer=Times((3.0, 2.0, 1.0))).best(X)
    times = Times(*[(1.0, 2.0)] * 3)
    kernels.tune(double, {"rows": [4, 8]}, repeats=1, timer=times).best(X)
    assert times.calls == 2

    def triple(rows):
        f = double(rows)
        return lambda x: f(x) + x

    kernels.tune(triple, {"rows": [4, 8]}, repeats=1, timer=times).best(X)
    assert times.calls == 4
    kernels.tune(double, {"rows": [4, 8]}, repeats=1, timer=times).best(X.astype(np.int32))
    assert times.calls == 6


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-4], lambda data: b"", lambda data: b"x" * 99]
)
def test_a_damaged_file_is_replaced(folder, caplog, damage):
    kernels.tune(double, ROWS, repeats=1, timer=Times((3.0, 2.0, 1.0))).best(X)
    (path,) = [p for p in folder.iterdir() if b"[[3.0" in p.read_bytes()]
    good = path.read_bytes()
    path.write_bytes(damage(good))
    times = Times((1.0, 2.0, 3.0))
    assert kernels.tune(double, ROWS, repeats=1, timer=times).best(X).choice == {"rows": 4}
    assert times.calls == 3 and path.exists()
    (line,) = [r.getMessage() for r in caplog.records if r.name == "shardwise.cache"]
    assert line == f"{path} is damaged; the kernel is tuned again."


def test_nothing_is_measured_in_a_trace():
    f = kernels.tune(double, ROWS, timer=no_timer)
    np.testing.assert_array_equal(sw.jit(f)(X), 2 * X)
    np.testing.assert_array_equal(sw.jit(lambda y: f(X) + y)(X), 3 * X)
    first = f.best(like(32, 8))
    assert first.choice == {"rows": 4} and first.seconds is None and first.device == "cpu"
    np.testing.assert_array_equal(sw.grad(lambda x: f(x).sum())(X), np.full((32, 8), 2))
    kernels.tune(double, ROWS, repeats=1, timer=Times((3.0, 2.0, 1.0))).best(X)
    program = sw.make_jaxpr(kernels.tune(double, ROWS, timer=no_timer))(X)
    assert "grid=(2,)" in str(program)


def test_functions_whose_further_arguments_are_the_choice():
    def f(x, *, rows):
        return double(rows)(x)

    tuned = kernels.tune(f, ROWS, repeats=1, timer=Times((2.0, 1.0, 3.0)))
    np.testing.assert_array_equal(tuned(X), 2 * X)
    assert tuned.best(X).choice == {"rows": 8}


def test_variants_are_ranked_for_machines_by_the_model():
    def make(rows):
        block, whole = Block((rows, 8), lambda i, j: (i, 0)), Block((8, 8), lambda i, j: (j, 0))
        f = call(
            lambda x, y, out: None, like(32, 8), grid=(32 // rows, 4), in_specs=[block, whole],
            out_specs=block,
        )  # fmt: skip
        return lambda x: f(x, x)

    found = kernels.rank(make, ROWS, machine="tpu-v6e")(like(32, 8))
    assert [c.choice["rows"] for c in found.candidates] == [16, 8, 4]
    assert found.device == "tpu-v6e" and found.seconds is None


def test_a_missing_compiler_is_stated(monkeypatch):
    machine = sw.explain.machines["h100"]
    monkeypatch.setattr(
        "shardwise._src.explain.launches.tuning.chosen",
        lambda asked: Chosen(machine, missing="install it."),
    )
    found = kernels.rank(double, {"rows": [8]}, machine="h100:1")(like(32, 8))
    assert found.device == "h100, by the model: install it."


MISTAKES = [
    (
        lambda: kernels.tune(3, ROWS),
        TypeError,
        "kernels.tune: make is a function that returns a kernel; got 3 of type int.",
    ),
    (
        lambda: kernels.tune(double, {"rows": 4}),
        TypeError,
        "kernels.tune: choices is a dict from names of arguments to lists of values, or a list of "
        "dicts; got {'rows': 4} of type dict.",
    ),
    (
        lambda: kernels.rank(double, [], machine="h100"),
        ValueError,
        "kernels.rank: choices must have the same names; there are none.",
    ),
    (
        lambda: kernels.tune(double, [{"rows": 4}, {"columns": 4}]),
        ValueError,
        "kernels.tune: choices must have the same names; some have other names than the first.",
    ),
    (
        lambda: kernels.tune(double, ROWS, keep=0),
        ValueError,
        "kernels.tune: keep is a positive integer; got 0 of type int.",
    ),
    (
        lambda: kernels.tune(double, {"rows": [3, 5]}, timer=no_timer)(X),
        ValueError,
        "kernels: no variant of double can be used.\n"
        "  {'rows': 3}: ValueError: rows must be a multiple of 4; got 3.\n"
        "  {'rows': 5}: ValueError: rows must be a multiple of 4; got 5.",
    ),
]


@pytest.mark.parametrize("run, kind, wanted", MISTAKES)
def test_messages(run, kind, wanted):
    assert message(kind, run) == wanted
