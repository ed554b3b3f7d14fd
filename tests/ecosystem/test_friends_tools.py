"""Arrays and functions in matplotlib, cloudpickle, joblib, IPython and PyTorch."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.dlpack import from_dlpack
from tests.helpers.errors import fails
from tests.helpers.placed import placed

ROOT = Path(__file__).parents[2]
WHY = "pip install 'shardwise[friends]'"


def needs(name):
    return pytest.importorskip(name, reason=f"needs {name}: {WHY}")


def run(tmp_path, source, devices=2):
    """Runs a program, so that its functions belong to a `__main__`."""
    program = tmp_path / "program.py"
    program.write_text(source)
    env = {
        **os.environ, "PYTHONPATH": str(ROOT), "SHARDWISE_NUM_CPU_DEVICES": str(devices),
        "IPYTHONDIR": str(tmp_path), "NO_COLOR": "1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)], env=env, capture_output=True, text=True,
        timeout=110, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# ------------------------------------------------------------------------------------- matplotlib


@pytest.fixture
def axes():
    needs("matplotlib").use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    yield axes
    pyplot.close(figure)


@pytest.mark.parametrize("place", ["one", "sharded", "replicated"])
def test_matplotlib_draws(axes, place):
    value, x = placed(place, "uneven")
    lines = axes.plot(x[:, 0], x)
    for i in range(2):
        np.testing.assert_array_equal(lines[i].get_ydata(), value[:, i])
    np.testing.assert_array_equal(axes.imshow(x).get_array(), value)
    counts, edges, _ = axes.hist(x[:, 0], bins=3)
    wanted = np.histogram(value[:, 0], bins=3)
    np.testing.assert_array_equal(counts, wanted[0])
    np.testing.assert_allclose(edges, wanted[1])
    dots = axes.scatter(x[:, 0], x[:, 1], c=x[:, 0], s=10 * x[:, 1])
    np.testing.assert_array_equal(dots.get_offsets(), value)
    axes.bar(x[:, 0], x[:, 1], yerr=x[:, 0])
    axes.fill_between(x[:, 0], x[:, 1], where=x[:, 0] > 1)
    axes.contourf(x)
    axes.set_xlim(x[0, 0], x[-1, 0] + 5)
    axes.figure.canvas.draw()


def test_matplotlib_takes_narrow_dtypes_and_refuses_keys(axes):
    for dtype in (jnp.bfloat16, jnp.float8_e4m3fn, jnp.int4):
        x = jnp.arange(2).astype(dtype)
        np.testing.assert_array_equal(axes.plot(x)[0].get_ydata(orig=False), [0.0, 1.0])
        axes.hist(x)
    try:  # NumPy's masked arrays, which matplotlib makes images of
        np.ma.maximum_fill_value(np.ones(2, jnp.bfloat16))
    except TypeError:  # since NumPy 2.5
        pass
    else:
        axes.imshow(jnp.ones((2, 2), jnp.bfloat16))
    axes.figure.canvas.draw()
    fails(
        TypeError,
        "an array of keys, key<fry>[3], cannot become a NumPy array: keys are not numbers. Use "
        "shardwise.random.key_data(x) for the underlying integers.",
        lambda: axes.plot(sw.random.split(sw.random.key(0), 3)),
    )


# ------------------------------------------------------------------------- cloudpickle and joblib


PICKLED = """
import pickle, subprocess, sys
import cloudpickle
import shardwise as sw
import shardwise.numpy as jnp

mesh = sw.make_mesh((2,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
rows = sw.NamedSharding(mesh, sw.P("x"))
factor, offset = 3.0, jnp.arange(4.0)
mapped = sw.pmap(lambda x: x * factor)
by_vjp = sw.custom_vjp(lambda x: x * factor)
by_vjp.defvjp(lambda x: (x * factor, None), lambda _, ct: (ct * factor,))
by_jvp = sw.custom_jvp(lambda x: x * factor)
by_jvp.defjvp(lambda x, dx: (by_jvp(*x), dx[0] * factor))
total = lambda x: (x * factor + offset).sum()
made = {
    "jit": sw.jit(lambda x: x * factor + offset), "grad": sw.grad(total),
    "value_and_grad": sw.value_and_grad(total), "vmap": sw.vmap(lambda x: x * factor),
    "jacobian": sw.jacrev(lambda x: x * factor), "checkpoint": sw.checkpoint(total),
    "all": sw.jit(sw.vmap(sw.grad(lambda x: x**2 * factor))), "vjp": by_vjp, "jvp": by_jvp,
    "shard_map": sw.jit(sw.shard_map(
        lambda x: x * factor, mesh=mesh, in_specs=sw.P("x"), out_specs=sw.P("x"))),
    "pmap": lambda x: mapped(x.reshape(2, 2)),
}
x = sw.device_put(jnp.ones(4), rows)
held = {"x": x, "rows": rows, "mesh": mesh, "key": sw.random.key(1), "bf16": x.astype("bfloat16")}
sys.stdout.buffer.write(cloudpickle.dumps((made, held, {n: f(x) for n, f in made.items()})))
"""
READ = """
import pickle, sys
import numpy as np
made, held, wanted = pickle.load(sys.stdin.buffer)  # cloudpickle is not needed here
import shardwise as sw
x = held["x"]
assert held["rows"] == sw.NamedSharding(held["mesh"], sw.P("x"))
x = sw.device_put(x, held["rows"])  # a pickle has values, and no places
assert sw.random.key_data(held["key"]).tolist() == [0, 1] and held["bf16"].dtype == "bfloat16"
for name, fun in made.items():
    for a, b in zip(sw.tree.leaves(fun(x)), sw.tree.leaves(wanted[name]), strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
assert sw.grad(lambda x: made["vjp"](x).sum())(x).tolist() == [3.0] * 4
print(len(made))
"""


def test_functions_and_arrays_go_to_another_process(tmp_path):
    needs("cloudpickle")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SHARDWISE_NUM_CPU_DEVICES": "2"}
    written = subprocess.run(
        [sys.executable, "-c", PICKLED], env=env, capture_output=True, timeout=100, check=False
    )
    assert written.returncode == 0, written.stderr.decode()
    read = subprocess.run(
        [sys.executable, "-c", READ], input=written.stdout, env=env, capture_output=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert read.returncode == 0 and read.stdout == b"11\n", read.stderr.decode()


LOKY = """
import numpy as np
from joblib import Memory, Parallel, delayed, dump, hash, load
import shardwise as sw
import shardwise.numpy as jnp

factor = 3.0
scaled = sw.jit(lambda x: x * factor)

def called(fun, x):
    return fun(x), len(sw.devices())

def in_main(x):
    return scaled(x)

if __name__ == "__main__":
    mesh = sw.make_mesh((2,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    x = sw.device_put(jnp.arange(4.0), sw.NamedSharding(mesh, sw.P("x")))
    large = jnp.ones(1 << 19)  # memory-mapped by joblib
    for how in ({"n_jobs": 2}, {"n_jobs": 2, "prefer": "threads"}):
        found = Parallel(**how)(delayed(called)(scaled, a) for a in (x, large))
        for (value, devices), a in zip(found, (x, large), strict=True):
            np.testing.assert_array_equal(value, a * factor)
            assert devices == 2
    (found,) = Parallel(n_jobs=2)(delayed(in_main)(a) for a in [x])
    np.testing.assert_array_equal(found, x * factor)
    tree = {"x": x, "half": x.astype("bfloat16"), "key": sw.random.key(0)}
    for compress in (0, 3):
        dump(tree, "tree.joblib", compress=compress)
        again = load("tree.joblib")
        assert again["half"].dtype == "bfloat16" and again["key"].dtype == tree["key"].dtype
        np.testing.assert_array_equal(again["x"], x)
    assert hash(x) == hash(again["x"]) != hash(x + 1)
    kept = Memory("cache", verbose=0).cache(in_main)
    np.testing.assert_array_equal(kept(x), x * factor)
    assert kept.check_call_in_cache(again["x"])
    (place,) = Parallel(n_jobs=2)(delayed(sw.device_put)(a, x.sharding) for a in [x])
    np.testing.assert_array_equal(place, x)
"""


def test_joblib_runs_functions_in_other_processes(tmp_path, monkeypatch):
    needs("joblib")
    monkeypatch.chdir(tmp_path)
    run(tmp_path, LOKY)


# ---------------------------------------------------------------------------------------- IPython


IPYTHON = """
import warnings
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
import shardwise as sw
import shardwise.numpy as jnp

warnings.simplefilter("ignore", PendingDeprecationWarning)  # the plain way to complete
shell = InteractiveShell.instance(colors="nocolor")
shell.Completer.use_jedi = False
mesh = sw.make_mesh((2,), ("x",))
x = sw.device_put(jnp.arange(2.0), sw.NamedSharding(mesh, sw.P("x")))
shell.user_ns.update(sw=sw, jnp=jnp, x=x)

def shown(source):
    with capture_output() as found:
        shell.run_cell(source)
    return found.stdout

for value in (x, x.sharding, mesh, sw.random.key(0)):
    forms = shell.display_formatter.format(value)[0]
    assert list(forms) == ["text/plain", "text/html"], forms
    assert forms["text/plain"] == repr(value) and "<script" not in forms["text/html"]
assert shown("[x, {'a': x}]") == (
    "Out[0]: [Array([0., 1.], dtype=float32), {'a': Array([0., 1.], dtype=float32)}]\\n"
), shown("[x, {'a': x}]")
for text, wanted in (("x.resh", ".reshape"), ("jnp.cumsu", ".cumsum"), ("sw.vma", ".vmap")):
    assert wanted in shell.Completer.complete(text)[1]
assert "per loop" in shown("%timeit -n 2 -r 2 jnp.sin(x).block_until_ready()")
assert "Sine." in shown("jnp.sin?")
error = shown("def f(v):\\n    return jnp.reshape(v, (7,))\\nsw.jit(f)(x)")
assert error.count("shardwise/_src") == 1, error
assert "----> 2     return jnp.reshape(v, (7,))" in error and "ShapeError: reshape:" in error
"""


def test_ipython(tmp_path):
    needs("IPython")
    run(tmp_path, IPYTHON)


# ---------------------------------------------------------------------------------------- PyTorch


def test_torch_differentiates_functions_of_ours():
    torch = needs("torch")

    class Ours(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y, ctx.vjp = sw.vjp(lambda x: jnp.sin(x) * x, from_dlpack(x.detach()))
            return torch.from_dlpack(y)

        @staticmethod
        def backward(ctx, ct):
            return torch.from_dlpack(ctx.vjp(from_dlpack(ct.contiguous()))[0])

    x = torch.linspace(0, 1, 64, requires_grad=True)
    (2 * Ours.apply(x)).sum().backward()
    assert torch.allclose(x.grad, 2 * (torch.sin(x) + x * torch.cos(x)))


def test_tensors_are_operands():
    torch = needs("torch")
    x, t = jnp.arange(3.0), torch.arange(3.0)
    for found in (x + t, t + x, jnp.add(x, t), sw.jit(lambda a, b: a + b)(x, t)):
        assert isinstance(found, sw.Array) and found.tolist() == [0, 2, 4]
    assert jnp.arange(5)[torch.tensor([3, 1])].tolist() == [3, 1]
    assert jnp.zeros_like(t.to(torch.bfloat16)).dtype == jnp.bfloat16
    fails(
        BufferError, "Can't export tensors that require gradient, use tensor.detach()",
        lambda: from_dlpack(torch.ones(3, requires_grad=True)),
    )  # fmt: skip
