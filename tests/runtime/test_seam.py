"""Every jaxlib name that `shardwise._src.runtime` uses is listed, and the installed jaxlib has it.

jaxlib's extension module is a private API and changes with each release; this test shows
changes first. The list is `seam_names.txt`. A name that only some releases have is followed by
their range: `_jax.batched_copy_to_host_async  # >=0.11`. To rewrite it and retain the ranges:

    SHARDWISE_UPDATE_GOLDENS=1 pytest tests/runtime/test_seam.py

Names are read from the source: imports, attributes of imported names, aliases of these, and
`getattr` or `hasattr` with a literal. Methods of objects are not detected.

The stubs in `typings/jaxlib` declare the listed names, and the attributes of their objects that the
library uses: no others, and all exist in the installed jaxlib. A line of a stub may end in a range,
too; `# getattr` marks an attribute whose name the library computes.
"""

import ast
import importlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

HERE = Path(__file__).resolve().parent
RUNTIME = HERE.parent.parent / "shardwise" / "_src" / "runtime"
GOLDEN = HERE / "seam_names.txt"
STUBS = HERE.parent.parent / "typings" / "jaxlib"
UPDATE = "SHARDWISE_UPDATE_GOLDENS"


# ---------------------------------------------------------------------------------- collecting


def collect(sources: Mapping[str, str]) -> set[str]:
    """The names below `jaxlib.` that modules {dotted name: source} use."""
    trees = {name.removesuffix(".__init__"): ast.parse(text) for name, text in sources.items()}
    packages = {name.removesuffix(".__init__") for name in sources if name.endswith(".__init__")}
    scopes = {name: _bindings(tree, name, name in packages) for name, tree in trees.items()}
    used: set[str] = set()
    for name, tree in trees.items():
        for node in ast.walk(tree):
            used.update(_resolve(path, scopes) for path in _paths(node, scopes[name]))
        used.update(_resolve(path, scopes) for path in scopes[name].values())
    used = {re.sub(r"(\.__\w+__)\..*", r"\1", path) for path in used}  # __version__.split
    names = {path.removeprefix("jaxlib.") for path in used if path.startswith("jaxlib.")}
    return {name for name in names if not any(other.startswith(name + ".") for other in names)}


def _bindings(tree: ast.Module, module: str, is_package: bool) -> dict[str, str]:
    """{local name: dotted path} for imports and for aliases `A = module.attribute`."""
    scope: dict[str, str] = {}
    package = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    name = alias.name if alias.asname else alias.name.partition(".")[0]
                    scope[alias.asname or name] = name
            case ast.ImportFrom(module=origin, names=names, level=level):
                parts = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*parts, *([origin] if origin else [])])
                scope |= {alias.asname or alias.name: f"{base}.{alias.name}" for alias in names}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                scope.update((name, path) for path in _dotted(value, scope))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                scope.update((name, path) for path in _dotted(value, scope))
    return scope


def _dotted(node: ast.expr, scope: Mapping[str, str]) -> list[str]:
    """`[path]` if the node is a chain of attributes of a bound name, else `[]`."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name) and node.id in scope:
        return [".".join([scope[node.id], *reversed(attributes)])]
    return []


def _paths(node: ast.AST, scope: Mapping[str, str]) -> list[str]:
    match node:
        case ast.Attribute():
            return _dotted(node, scope)
        case ast.Call(
            func=ast.Name(id="getattr" | "hasattr"), args=[owner, ast.Constant(value=str(name)), *_]
        ):
            return [f"{path}.{name}" for path in _dotted(owner, scope)]
        case ast.Import(names=names):
            return [alias.name for alias in names]
    return []


def _resolve(path: str, scopes: Mapping[str, Mapping[str, str]]) -> str:
    """Resolves names that one of our modules imports from another: `compat._jax.Client`."""
    for _ in range(10):
        module = max((m for m in scopes if path.startswith(m + ".")), key=len, default=None)
        if module is None:
            return path
        name, dot, rest = path.removeprefix(module + ".").partition(".")
        if name not in scopes[module]:
            return path
        path = scopes[module][name] + dot + rest
    return path


def runtime_sources() -> dict[str, str]:
    sources = {}
    for path in sorted(RUNTIME.rglob("*.py")):
        parts = path.relative_to(RUNTIME.parent.parent).with_suffix("").parts
        sources[".".join(parts)] = path.read_text()
    return sources


# ------------------------------------------------------------------------------------ the list


def read_golden() -> dict[str, str]:
    """{name: range of releases}; the range is empty if all releases have the name."""
    lines = GOLDEN.read_text().splitlines() if GOLDEN.exists() else []
    entries = (line.partition("#") for line in lines if line.strip())
    return {name.strip(): releases.strip() for name, _, releases in entries}


def write_golden(names: set[str]) -> None:
    releases = read_golden()
    lines = [
        f"{name}  # {releases[name]}" if releases.get(name) else name for name in sorted(names)
    ]
    GOLDEN.write_text("".join(line + "\n" for line in lines))


def exists(name: str) -> bool:
    """Whether the installed jaxlib has `name`, a module or an attribute of one."""
    found, path = importlib.import_module("jaxlib"), "jaxlib"
    for part in name.split("."):
        path = f"{path}.{part}"
        if not hasattr(found, part):
            try:
                found = importlib.import_module(path)
            except ImportError:
                return False
        else:
            found = getattr(found, part)
    return True


# ------------------------------------------------------------------------------------ the stubs


@dataclass(frozen=True)
class Declaration:
    """A name in a stub, or an attribute of a class in one.

    line: the first line of the declaration.
    origins: names that have the same attributes: that of an imported object, and of base classes.
    """

    line: str
    origins: tuple[str, ...]

    @property
    def releases(self) -> str:
        """The range of releases; empty if all have the name."""
        found = re.search(r"# ([<>=!][<>=!\d.,]*)$", self.line)
        return found[1] if found else ""


def stubs() -> dict[str, str]:
    """{dotted name below `jaxlib.`: text}; the name of the package itself is empty."""
    found = {}
    for path in sorted(STUBS.rglob("*.pyi")):
        parts = path.relative_to(STUBS).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path.read_text()
    return found


def declarations(texts: Mapping[str, str]) -> dict[str, Declaration]:
    """{dotted name: declaration} of stubs."""
    found = {module: Declaration("", ()) for module in texts if module}
    for module, text in texts.items():
        full = f"jaxlib.{module}".removesuffix(".")
        is_package = any(other.startswith(f"{module}.") for other in texts) or not module
        scope = _bindings(ast.parse(text), full, is_package)
        waiting = [(module, node) for node in ast.parse(text).body]
        for owner, node in waiting:
            for name, named in _declared_by(node):
                path = f"{owner}.{name}".removeprefix(".")
                places = [scope.get(other, f"{full}.{other}") for other in named]
                origins = tuple(place.removeprefix("jaxlib.") for place in places)
                found[path] = Declaration(text.splitlines()[node.lineno - 1], origins)
                if isinstance(node, ast.ClassDef):
                    waiting += [(path, inner) for inner in node.body]
    return found


def _declared_by(node: ast.stmt) -> Iterator[tuple[str, list[str]]]:
    """The names that a statement of a stub declares, and the local names of their origins."""
    match node:
        case ast.ClassDef(name=name, bases=bases):
            yield name, [base.id for base in bases if isinstance(base, ast.Name)]
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name(id=other)):
            yield name, [other]
        case ast.FunctionDef(name=name):
            yield name, []
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
            yield name, []
        case ast.ImportFrom(names=names):  # `import A as A` declares A
            yield from [(alias.name, [alias.name]) for alias in names if alias.asname == alias.name]


def is_declared(name: str, declared: Mapping[str, Declaration]) -> bool:
    """Whether a dotted name is declared, maybe as an attribute of an owner's origins."""
    if name in declared:
        return True
    owners = [o for o in declared if name.startswith(o + ".")]
    pairs = [(place, o) for o in owners for place in declared[o].origins if place != o]
    return any(is_declared(place + name.removeprefix(o), declared) for place, o in pairs)


# --------------------------------------------------------------------------------------- tests


def test_the_list_is_complete():
    names = collect(runtime_sources())
    if os.environ.get(UPDATE):
        write_golden(names)
    listed = set(read_golden())
    advice = f"run with {UPDATE}=1, and give the range of names that only some releases have"
    assert not names - listed, f"shardwise._src.runtime uses names that are not listed; {advice}"
    assert not listed - names, f"shardwise._src.runtime no longer uses listed names; {advice}"


def test_the_list_is_sorted():
    assert list(read_golden()) == sorted(read_golden())


def test_the_installed_jaxlib_has_the_listed_names():
    assert_exist(read_golden())


def assert_exist(names: Mapping[str, str]) -> None:
    """Asserts that the installed jaxlib has names, {name: range of releases}."""
    version = Version(importlib.import_module("jaxlib.version").__version__)
    wrong = []
    for name, releases in names.items():
        expected, found = version in SpecifierSet(releases), exists(name)
        if expected and not found:
            wrong.append(f"{name} is missing; if others have it, give their range: {name}  # >=…")
        if found and not expected:
            wrong.append(f"{name} is there, though the list says {releases}")
    assert not wrong, f"jaxlib {version}:\n" + "\n".join(wrong)


def test_the_stubs_declare_the_listed_names():
    declared = declarations(stubs())
    missing = [n for n in read_golden() if not is_declared(n.removesuffix(".__doc__"), declared)]
    assert not missing, "declare in typings/jaxlib"
    listed = read_golden()
    ranges = {n: d.releases for n, d in declared.items() if n in listed}
    assert ranges == {n: listed[n] for n in ranges}


def test_the_installed_jaxlib_has_what_the_stubs_declare():
    assert_exist({name: d.releases for name, d in declarations(stubs()).items()})


def test_the_stubs_declare_only_what_is_used():
    texts, listed = stubs(), read_golden()
    nodes = [node for text in texts.values() for node in ast.walk(ast.parse(text))]
    types = {node.id for node in nodes if isinstance(node, ast.Name)}
    types |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    sources = [path.read_text() for path in RUNTIME.parent.rglob("*.py")]
    words = {word for text in sources for word in re.findall(r"\w+", text)}
    unused = []
    for name, declared in declarations(texts).items():
        owner, _, last = name.rpartition(".")
        if any(n == name or n.startswith(name + ".") for n in listed):
            continue
        if owner in texts:
            is_used = name in texts or last in types
        else:  # an attribute of a class
            is_used = last in words or "# getattr" in declared.line or last.startswith("__")
        if not is_used:
            unused.append(name)
    assert not unused, "remove from typings/jaxlib"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("class A:\n    x: int  # >=0.11\n    def f(self): ...", {"A": "", "A.x": ">=0.11", "A.f": ""}),
        ("from .b import B as B\nfrom .b import C", {"B": ""}),
        ("class A(Enum):\n    ONE = ...  # getattr", {"A": "", "A.ONE": ""}),
    ],
)  # fmt: skip
def test_declarations_are_read_with_their_ranges(text, names):
    found = {name: d.releases for name, d in declarations({"": text}).items()}
    assert found == names


def test_attributes_are_found_at_their_origin():
    declared = declarations({
        "a": "from .b import B as B\nclass A(B):\n    T = C\nclass C:\n    ONE = ...",
        "b": "class B:\n    x: int",
    })  # fmt: skip
    names = ["a", "a.A", "a.B.x", "a.A.x", "a.A.T", "a.A.T.ONE", "b.B.x"]
    assert all(is_declared(name, declared) for name in names)
    assert not any(is_declared(name, declared) for name in ["c", "a.D", "a.A.y", "a.A.T.TWO"])


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from jaxlib import _jax\n_jax.Client.compile()", {"_jax.Client.compile"}),
        (
            "from jaxlib import xla_client as xc\nf = xc.a\ng = xc.b(1)",
            {"xla_client.a", "xla_client.b"},
        ),
        ("import jaxlib.xla_client as xc\nxc.ops", {"xla_client.ops"}),
        ("import jaxlib.mlir.ir\njaxlib.mlir.ir.Context", {"mlir.ir.Context"}),
        ("from jaxlib._jax import ArrayImpl", {"_jax.ArrayImpl"}),
        ("def f():\n    from jaxlib import lapack\n    return lapack.x()", {"lapack.x"}),
        ("from jaxlib import _jax\nDef = _jax.pytree.Def\nDef.make()", {"_jax.pytree.Def.make"}),
        ("from jaxlib import _jax\nx: object = _jax.Device", {"_jax.Device"}),
        (
            "from jaxlib import _jax\nif hasattr(_jax, 'new'):\n    getattr(_jax, 'old')()",
            {"_jax.new", "_jax.old"},
        ),
        ("from numpy import array\narray.shape", set()),
    ],
)
def test_names_are_found_however_they_are_used(source, names):
    assert collect({"shardwise._src.runtime.module": source}) == names


def test_names_are_followed_through_our_own_modules():
    sources = {
        "shardwise._src.runtime.__init__": "from .compat import _jax\n_jax.A",
        "shardwise._src.runtime.compat": "from jaxlib import _jax\nimport jaxlib.version",
        "shardwise._src.runtime.b": "from shardwise._src.runtime import compat\ncompat._jax.B",
        "shardwise._src.runtime.c": "from ..runtime.compat import _jax as j\nj.C",
    }
    assert collect(sources) == {"_jax.A", "_jax.B", "_jax.C", "version"}


def test_existence_is_that_of_the_installed_jaxlib():
    assert exists("xla_client.make_cpu_client") and exists("mlir.ir") and exists("version")
    assert not exists("xla_client.no_such_name") and not exists("no_such_module.x")
