"""Programs and libraries for JAX run on this library, alongside an installed jax."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.helpers.everyday import everyday

ROOT = Path(__file__).parents[2]
LIBRARY = """
import jax
import jax.numpy as jnp
from jax import lax, random
from jax.experimental import multihost_utils
from jax.sharding import PartitionSpec as P

NAME = jnp.sin.__module__

def double(x):
    return jax.jit(lambda x: x * 2)(jnp.asarray(x))
"""
needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")


def run(tmp_path, source, *, args=("main.py",), module=("-W", "error"), expect=0):
    """Runs a program in a separate folder that contains a library written for JAX."""
    (tmp_path / "forjax").mkdir(exist_ok=True)
    (tmp_path / "forjax/__init__.py").write_text("from forjax.inner import double, NAME\n")
    (tmp_path / "forjax/inner.py").write_text(LIBRARY)
    (tmp_path / "onit.py").write_text("from forjax import double\n")  # built on a library for JAX
    (tmp_path / "main.py").write_text(textwrap.dedent(source))
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SHARDWISE_NUM_CPU_DEVICES": "2"}
    done = subprocess.run(
        [sys.executable, *module, *args], cwd=tmp_path, env=env, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout if expect == 0 else done.stderr


def test_a_library_runs_unmodified(tmp_path):
    assert run(tmp_path, """
        import sys
        import shardwise as sw
        with sw.compat.as_jax():
            import forjax, jax, jax.numpy, jax.extend.core
            assert jax.numpy is sw.numpy and jax.extend.core is sw.extend.core
            assert jax.jit is sw.jit and jax.device_count() == 2
            assert jax.__version_info__ >= (0, 10)
            from jax.interpreters import ad
            assert ad is sw.interpreters.ad
        assert "jax" not in sys.modules and "forjax" not in sys.modules
        assert isinstance(forjax.double(3.0), sw.Array)
        with sw.compat.as_jax():
            import forjax as again, jax as once_more
            assert again is forjax and once_more is jax
        print(forjax.NAME)
    """) == "shardwise.numpy\n"  # fmt: skip


def test_arrays_say_that_they_are_of_jax(tmp_path):
    """What libraries for the array API inspect: classes of an imported jax, the module's name."""
    run(
        tmp_path,
        """
        import sys
        import shardwise as sw
        x = sw.numpy.ones(3)
        assert x.__array_namespace__() is sw.numpy
        with sw.compat.as_jax():
            jax = sys.modules["jax"]
            assert isinstance(x, jax.Array) and sys.modules["jax.core"].Tracer
            jnp = x.__array_namespace__(api_version="2024.12")
            assert jnp.__name__ == "jax.numpy" and jnp.sin is sw.numpy.sin
            assert jnp is (x + 1).__array_namespace__() and "sin" in dir(jnp)
            with sw.compat.as_jax():
                pass
            assert x.__array_namespace__() is jnp
        assert x.__array_namespace__() is sw.numpy and "jax" not in sys.modules
    """,
    )


@needs_jax
def test_beside_an_installed_jax(tmp_path):
    assert run(tmp_path, """
        import jax, onit, numpy
        import shardwise as sw
        theirs, first = jax.numpy, onit
        with sw.compat.as_jax():
            import jax, onit
            import jax.numpy as jnp
            assert jnp is sw.numpy and onit is not first
            ours = onit
            assert isinstance(onit.double(1.0), sw.Array)
            import numpy as same
            assert same is numpy
        import jax, onit
        assert jax.numpy is theirs and onit is first
        assert not isinstance(onit.double(1.0), sw.Array) and isinstance(ours.double(1), sw.Array)
        print("ok")
    """, module=()) == "ok\n"  # fmt: skip


def test_for_the_whole_process_and_nested(tmp_path):
    assert run(tmp_path, """
        import shardwise as sw
        alias = sw.compat.as_jax()
        import jax
        with sw.compat.as_jax():
            pass
        import jax.numpy as jnp  # the outer one still holds
        assert jnp is sw.numpy
        alias.end()
        alias.end()
        import sys
        assert "jax" not in sys.modules
        print("ok")
    """) == "ok\n"  # fmt: skip


def test_off_by_default(tmp_path):
    assert run(tmp_path, """
        import sys
        import shardwise.compat
        shardwise.compat.as_jax
        print(any("jax" == m for m in sys.modules), type(sys.meta_path[0]).__name__ == "_Finder")
    """) == "False False\n"  # fmt: skip


def test_whole_programs(tmp_path):
    source = """
        import sys
        import jax, onit
        if __name__ == "__main__":
            print(jax.numpy.sin.__module__, sys.argv[1:], onit.double(2))
    """
    wanted = "shardwise.numpy ['a', '-b'] 4\n"
    on = ("-W", "error", "-m", "shardwise.compat")
    assert run(tmp_path, source, module=on, args=("main.py", "a", "-b")) == wanted
    assert run(tmp_path, source, module=on, args=("-m", "main", "a", "-b")) == wanted
    usage = "usage: python -m shardwise.compat [-m MODULE | SCRIPT] [ARGUMENT ...]\n"
    assert run(tmp_path, source, module=on, args=(), expect=2) == usage
    assert run(tmp_path, source, module=on, args=("--help",)) == usage
    told = run(tmp_path, source, module=on, args=("absent.py",), expect=2)
    assert told == f"shardwise.compat: there is no file 'absent.py'\n{usage}"


def test_private_names(tmp_path):
    assert run(tmp_path, """
        import shardwise as sw
        alias = sw.compat.as_jax()
        from jax._src.xla_bridge import _backends
        import jax
        assert "cpu" not in _backends and jax.devices() and "cpu" in _backends
        from jax._src import core
        from jax._src.flatten_util import ravel_pytree
        from jax._src.tree_util import tree_map
        import jax._src.core
        assert jax._src.core is core and core.Primitive is sw.extend.core.Primitive
        assert ravel_pytree is sw.flatten_util.ravel_pytree and tree_map is sw.tree_util.tree_map
        from jax.extend.ifrt_programs import ifrt_programs
        from jax.interpreters import ad, pxla
        assert ad is sw.interpreters.ad and pxla.thread_resources.env.physical_mesh.empty
        mesh = jax.make_mesh((2,), ("x",), (jax.sharding.AxisType.Explicit,))
        with jax.set_mesh(mesh):
            assert jax._src.mesh.thread_resources.env.physical_mesh is mesh
            assert mesh.devices[0] in jax.NamedSharding(mesh, jax.P())._device_assignment
        try:
            ifrt_programs.make_plugin_program("")
        except NotImplementedError as error:
            assert str(error) == (
                "jax.extend.ifrt_programs.ifrt_programs.make_plugin_program: plugin programs are "
                "not supported. Only Pathways has them."
            )
        from jax._src.state.types import AbstractRef
        assert isinstance(jax.typeof(jax.new_ref(1.0)), AbstractRef)
        assert core.trace_state_clean() and not sw.jit(lambda: core.trace_state_clean())()
        from jax.experimental import hijax, shard_map
        import jax.experimental.ode as ode, jax.experimental
        assert shard_map is sw.experimental.shard_map and ode is sw.experimental.ode
        assert hijax is jax.experimental.hijax and issubclass(hijax.MutableHiType, object)
        own = type("Own", (hijax.HiPrim,), {})
        try:
            own()
        except NotImplementedError as error:
            assert str(error) == (
                "Own: operations of jax.experimental.hijax are not supported. "
                "For operations on arrays, use `shardwise.extend.core.Primitive`."
            )
        else:
            raise AssertionError(own)
        assert dir(jax.experimental) == dir(sw.experimental)
        print(hasattr(core, "no_such_thing"))
    """) == "False\n"  # fmt: skip


HINT = "To request it, report this line."
MISSING = {
    "from jax._src.core import no_such_thing":
        "ImportError: the program uses jax._src.core.no_such_thing, a private name of JAX's "
        "that shardwise {0} does not have ({1}:1). " + HINT,
    "import jax._src.core as c; c.no_such_thing":
        "AttributeError: the program uses jax._src.core.no_such_thing, a private name of JAX's "
        "that shardwise {0} does not have ({1}:1). " + HINT,
    "import jax._src.no_such_module":
        "ModuleNotFoundError: the program uses jax._src.no_such_module, a private name of "
        "JAX's that shardwise {0} does not have ({1}:1). " + HINT,
    "import jax.experimental.no_such_module":
        "ModuleNotFoundError: the program uses jax.experimental.no_such_module, a name of "
        "JAX's that shardwise {0} does not have ({1}:1). " + HINT,
    "import jax; jax.numpy.sinn":
        "AttributeError: module 'shardwise.numpy' has no attribute 'sinn'. Did you mean 'sin'?",
}  # fmt: skip


ASKED = {  # how a library checks, and how its error begins
    "from jax._src.core import no_such_thing": ("ImportError", "jax._src.core.no_such_thing"),
    "import jax._src.core as c; c.no_such_thing": (
        "AttributeError", "jax._src.core.no_such_thing",
    ),
    "import jax._src.no_such_module": ("ModuleNotFoundError", "jax._src.no_such_module"),
}  # fmt: skip
LIBRARIES = {  # installed distributions, with their packages → the library that checks
    "a distribution of its name": ({"asking": ["asking"]}, "asking 1.2.3"),
    "a distribution of another name": ({"dm-asking": ["asking", "other"]}, "dm-asking 1.2.3"),
    "no distribution": ({"unlike": ["other"]}, "asking"),
    "several, one of them of its name": (
        {"asking": ["asking"], "asking-more": ["asking"]}, "asking 1.2.3",
    ),
    "several distributions": ({"asking-a": ["asking"], "asking-b": ["asking"]}, "asking"),
}  # fmt: skip


CASES = [(next(iter(LIBRARIES)), line) for line in ASKED]
CASES += [(library, next(iter(ASKED))) for library in list(LIBRARIES)[1:]]


@pytest.mark.parametrize(("library", "line"), everyday(CASES, 1))
def test_a_missing_name_says_which_library_asks(library, line, tmp_path):
    """The library is restored under its installed name, version and location."""
    from shardwise import __version__

    installed, who = LIBRARIES[library]
    (tmp_path / "asking").mkdir()
    (tmp_path / "asking/__init__.py").write_text("import asking.inner\n")
    (tmp_path / "asking/inner.py").write_text(f"# A comment.\n\n{line}\n")
    for name, packages in installed.items():
        folder = tmp_path / f"{name.replace('-', '_')}-1.2.3.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
        (folder / "top_level.txt").write_text("\n".join(packages))
    kind, full = ASKED[line]
    told = run(tmp_path, "import asking", module=("-m", "shardwise.compat"), expect=1)
    assert told.splitlines()[-1] == (
        f"{kind}: {who} uses {full}, a private name of JAX's that shardwise {__version__} does "
        f"not have ({tmp_path / 'asking/inner.py'}:3). {HINT}"
    )


@pytest.mark.parametrize("line", everyday(MISSING, 2))
def test_what_is_not_there(line, tmp_path):
    from shardwise import __version__

    told = run(tmp_path, line, module=("-m", "shardwise.compat"), expect=1)
    assert told.splitlines()[-1] == MISSING[line].format(__version__, "main.py")
