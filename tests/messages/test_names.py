"""Names in messages: the functions that they advise exist under the stated full name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.base.other_names import NAMESPACES, OTHER_NAMES
from shardwise._src.values.elsewhere import Elsewhere

PACKAGE = Path(sw.__file__).parent
DOTTED = re.compile(r"^(?:with |x = )?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)")
# Messages name the objects that have these attributes.
VARIABLES = {"x", "ref", "os", "a", "mesh", "sharding"}
NUMPYS = {"numpy.asarray"}  # NumPy's own


def texts(source: str) -> Iterator[str]:
    """The strings of a module except docstrings; {} for the replacement fields of f-strings."""
    tree = ast.parse(source)
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.add(id(node.value))
        if isinstance(node, ast.JoinedStr):
            inside.update(map(id, node.values))
            parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            yield "".join(map(str, parts))
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in inside:
            yield text


@cache
def texts_of_files() -> list[tuple[Path, list[str]]]:
    return [(path, [*texts(path.read_text())]) for path in sorted(PACKAGE.rglob("*.py"))]


def quoted() -> list[tuple[str, str]]:
    """(file, name) of each dotted name in back-quotes in the library's strings."""
    found = []
    for path, found_there in texts_of_files():
        for text in found_there:
            for quote in re.findall(r"`([^`]*)`", text):
                match = DOTTED.match(quote)
                if match:
                    found.append((str(path.relative_to(PACKAGE)), match[1]))
    return found


def resolve(name: str):
    """The object with a full name."""
    parts = name.split(".")
    found = import_module(parts[0])
    for part in parts[1:]:
        found = getattr(found, part)
    return found


@pytest.mark.sweep
def test_dotted_names_in_messages_are_full_and_exist():
    names = quoted()
    assert len(names) > 30
    for path, name in names:
        root = name.partition(".")[0]
        if root in VARIABLES or name in NUMPYS:
            continue
        assert root == "shardwise", f"{path}: `{name}` is not a full name"
        resolve(name)


def test_no_message_advises_a_half_name_outside_of_quotes():
    half = re.compile(r"(?:[Uu]se|write|by|with|or) ((?:numpy|lax|random|nn|jnp)\.\w+)")
    known = {"numpy.frombuffer", "numpy.asarray", "numpy.dtype"}  # NumPy's own
    for path, found_there in texts_of_files():
        for text in found_there:
            assert not set(half.findall(text)) - known, f"{path}: {text}"


def test_names_of_other_libraries_lead_to_what_there_is():
    for ours in OTHER_NAMES.values():
        resolve(ours)
    for name in NAMESPACES:
        import_module(name)


@pytest.mark.parametrize(
    ("module", "name", "advice"),
    [
        ("shardwise.numpy", "cat", "Use `shardwise.numpy.concatenate`."),
        ("shardwise.numpy", "permute", "Use `shardwise.numpy.transpose`."),
        ("shardwise.numpy", "unsqueeze", "Use `shardwise.numpy.expand_dims`."),
        ("shardwise.numpy", "clamp", "Use `shardwise.numpy.clip`."),
        ("shardwise.numpy", "float", "Use `shardwise.numpy.float32`."),
        ("shardwise.numpy", "product", "Use `shardwise.numpy.prod`."),
        ("shardwise.numpy", "NaN", "Use `shardwise.numpy.nan`."),
        ("shardwise.numpy", "softmax", "Use `shardwise.nn.softmax`."),
        ("shardwise.numpy", "randn", "Use `shardwise.random.normal`."),
        ("shardwise.numpy", "norm", "Use `shardwise.numpy.linalg.norm`."),
        ("shardwise.numpy", "einsun", "Did you mean 'einsum'?"),
        ("shardwise.lax", "sum", "Use `shardwise.numpy.sum`."),
        ("shardwise.lax", "topk", "Use `shardwise.lax.top_k`."),
        ("shardwise.random", "random", "Use `shardwise.random.uniform`."),
        ("shardwise.random", "default_rng", "Use `shardwise.random.key`."),
        ("shardwise", "zeros", "Use `shardwise.numpy.zeros`."),
        ("shardwise", "detach", "Use `shardwise.lax.stop_gradient`."),
        ("shardwise.numpy", "qqqq", ""),
        ("shardwise", "pallas", "Use `shardwise.experimental.pallas`."),
    ],
)
def test_an_unknown_name_of_a_module(module, name, advice):
    with pytest.raises(AttributeError) as caught:
        getattr(import_module(module), name)
    said = f"module {module!r} has no attribute {name!r}.{advice and ' ' + advice}"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("permute", "x.transpose(axes)"),
        ("unsqueeze", "shardwise.numpy.expand_dims(x, axis)"),
        ("numpy", "numpy.asarray(x)"),
        ("cpu", "shardwise.device_put(x, shardwise.devices('cpu')[0])"),
        ("detach", "shardwise.lax.stop_gradient(x)"),
        ("fill", "x = shardwise.numpy.full_like(x, value)"),
    ],
)
def test_an_unknown_attribute_of_an_array(name, advice):
    x = jnp.ones(3)
    with pytest.raises(AttributeError) as caught:
        getattr(x, name)
    assert str(caught.value) == f"'Array' object has no attribute {name!r}. Use `{advice}`."
    assert not hasattr(x, name)


def test_what_arrays_advise_can_be_done():
    given = {
        "x": jnp.ones((2, 3)),
        "shardwise": sw,
        "axes": (1, 0),
        "axis": 0,
        "dtype": "int32",
        "numpy": np,
        "min": 0,
        "max": 1,
        "shape": (4, 2, 3),
        "mask": np.ones((2, 3), bool),
        "value": 2,
        "idx": 0,
        "device": sw.devices()[0],
        "kth": 1,
        "function": jnp.sum,
        "values": 1.0,
        "file": None,
    }
    for name, missing in vars(Elsewhere).items():
        if hasattr(missing, "instead") and name not in ("cuda", "tofile", "double", "long"):
            for way in missing.instead.split("` or `"):
                exec(way, dict(given))


def test_arrays_are_of_one_class():
    assert jnp.ndarray is sw.Array
    seen = []
    sw.jit(lambda x: seen.append(isinstance(x, jnp.ndarray)))(1.0)
    assert seen == [True]
    assert not isinstance(np.ones(3), jnp.ndarray)


@pytest.mark.sweep
def test_messages_do_not_depend_on_which_names_were_used():
    code = (
        "import shardwise as sw, shardwise.numpy as jnp\n"
        "USED\n"
        "for f in (lambda: jnp.ones(3) + jnp.ones(4), lambda: jnp.ones(3) < 'a',\n"
        "          lambda: jnp.sort(sw.random.key(0)), lambda: sw.random.key(0) < 1):\n"
        "    try:\n"
        "        f()\n"
        "    except Exception as error:\n"
        "        print(error)\n"
    )
    printed = []
    every = "[getattr(space, name) for space in (jnp, sw.lax, sw.nn) for name in dir(space)]"
    for used in ("", every):
        command = [sys.executable, "-c", code.replace("USED", used)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        printed.append(run.stdout)
    assert printed[0] == printed[1] != ""
