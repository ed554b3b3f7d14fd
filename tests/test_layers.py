"""Imports only go down the list of layers, and the modules of a package have no import cycles.

Everything is read from the source by AST; nothing is imported. Imports for the type checker
(`if TYPE_CHECKING:`) must go down too and close no cycle: a name in an annotation is a dependency.

    read_imports(source, module)  ->  the imports of one file
    check(sources)                ->  the violations in a full source tree, as lines of text
"""

import ast
import gc
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "shardwise"

# The packages of `shardwise._src`, from the bottom up. The public names are above them all.
LAYERS = (
    *(
        "base",
        "runtime",
        "coordination",
        "messages",
        "targets",
        "types",
        "visualize",
        "core",
        "ops",
        "values",
    ),
    *("transforms", "refs", "effects", "control", "custom", "numpy", "distributed_linalg"),
    *("arrays", "lowering", "compiling", "transfers", "running", "arguments", "placement", "jit"),
    *("maps", "autodiff", "partitioning", "debug", "lax", "linalg", "tree", "random", "nn"),
    "kernels",
    *("special", "signal", "scipy", "image", "models", "sparse", "named", "distributed", "launch"),
    *("explain", "planner", "ffi", "extend", "export", "saving", "compat", "testing", "cli"),
)
ROOT_LAYER = len(LAYERS)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

# Packages that may be missing, or that are too slow to import before they are needed.
ON_FIRST_USE = {
    *("absl", "click", "difflib", "hashlib", "hypothesis", "IPython", "jaxlib", "matplotlib"),
    *("ml_dtypes", "pkgutil", "socket"),
    *("crc32c", "importlib", "mpi4py"),
    "opt_einsum",
    *("polars", "pyarrow"),
    *("psutil", "pytest", "resource", "rich", "scipy", "ssl", "tensorstore", "typer", "zarr"),
}

SEAM = "shardwise._src.runtime"
MAX_FILES, MAX_LINES = 25, 5000  # of a package: a folder without its subfolders
# The source of result types for functions in all packages; only type checkers follow it.
ANNOTATIONS = ("shardwise._src.types.annotations", "shardwise._src.arrays.array.Array")
# Modules that are written as users write programs, with public names, above which they are. Public
# modules import them when a name is first used.
PAGES = "shardwise._src.kernels.library."


@dataclass(frozen=True)
class Import:
    """`name` is the module, or the name in a module, that line `line` of `module` imports."""

    module: str
    line: int
    name: str
    in_function: bool
    for_types: bool

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]


# ------------------------------------------------------------------------------------ reading


def read_imports(source: str, module: str, is_package: bool = False) -> list[Import]:
    """All imports of a file: statements and `import_module("literal")`."""
    package = module if is_package else module.rpartition(".")[0]
    return [
        Import(module, line, name, in_function, for_types)
        for node, in_function, for_types in _nodes(parse(source))
        for line, name in _imported_names(node, package)
    ]


def parse(source: str) -> ast.Module:
    """The AST of a source. A garbage collection in between lets other threads run, and two parses
    at the same time conflict in Python 3.11, which adds up the recursion depth of both."""
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        gc.enable()


def _nodes(tree: ast.AST) -> Iterator[tuple[ast.AST, bool, bool]]:
    """(node, whether in a function, whether for type checkers only), in source order."""
    waiting = [(tree, False, False)]
    while waiting:
        node, in_function, for_types = waiting.pop()
        yield node, in_function, for_types
        inside = in_function or isinstance(node, FUNCTIONS)
        guarded = _only_for_types(node)
        below = [(x, inside, for_types or x in guarded) for x in ast.iter_child_nodes(node)]
        waiting += reversed(below)


def _only_for_types(node: ast.AST) -> list[ast.stmt]:
    """The body of `if TYPE_CHECKING:`."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return node.body
    return []


def _imported_names(node: ast.AST, package: str) -> list[tuple[int, str]]:
    match node:
        case ast.Import(lineno=line, names=names):
            return [(line, alias.name) for alias in names]
        case ast.ImportFrom(lineno=line, module=origin, names=names, level=level):
            base = _absolute(origin, level, package)
            return [(line, f"{base}.{alias.name}") for alias in names]
        case ast.Call(lineno=line, func=function, args=[ast.Constant(value=str(name)), *_]):
            called = ast.unparse(function).rpartition(".")[2]
            return [(line, name)] if called in ("import_module", "__import__") else []
    return []


def _absolute(origin: str | None, level: int, package: str) -> str:
    if level == 0:
        return origin or ""
    parts = package.split(".")
    return ".".join(parts[: len(parts) - level + 1] + ([origin] if origin else []))


def read_tree(root: Path) -> dict[str, str]:
    """{module: source}; the name of a package ends in `.__init__`."""
    sources = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        sources[".".join(parts)] = path.read_text()
    return sources


# ----------------------------------------------------------------------------------- checking


def check(sources: Mapping[str, str]) -> list[str]:
    """Complaints about the modules `sources` (names as in `read_tree`), empty if there are none."""
    modules = {name.removesuffix(".__init__") for name in sources}
    imports: list[Import] = []
    for name, source in sources.items():
        module = name.removesuffix(".__init__")
        imports += read_imports(source, module, is_package=module != name)
    complaints = [line for found in imports for line in _complaints(found)]
    rooms = [m.split(".")[2] for m in modules if m.startswith("shardwise._src.")]
    unknown = sorted({*rooms} - {*LAYERS})
    complaints += [f"shardwise._src.{n} is in no layer: add it to LAYERS" for n in unknown]
    programs = ("shardwise.__main__", "shardwise.compat.__main__")
    others = ("shardwise._src", "shardwise._version", *programs)
    faces = [n for n in sources if not n.startswith(others)]
    complaints += [line for n in faces for line in _more_than_names(n, sources[n])]
    return complaints + _cycle(imports, modules)


def _complaints(found: Import) -> Iterator[str]:
    where = f"{found.module}:{found.line} imports {found.name}"
    in_seam = found.module == SEAM or found.module.startswith(SEAM + ".")
    if found.package in ("jax", "jax_plugins"):
        yield f"{where}: the library never imports jax"
    elif found.package.startswith("jax") and not in_seam:
        yield f"{where}: only {SEAM} imports jaxlib"
    declared = found.for_types and _is_declared(found)
    if found.package == "shardwise" and _layer(found.name) > _layer(found.module) and not declared:
        yield f"{where}, which is above it"
    if found.in_function and found.package not in ON_FIRST_USE:
        kind = "ours" if found.package == "shardwise" else "always there"
        if found.package in sys.stdlib_module_names:
            kind = "in the standard library"
        yield f"{where} inside a function, though it is {kind}"


def _is_declared(found: Import) -> bool:
    """Whether it may go up the layers, if only type checkers follow it."""
    is_page = found.name.startswith(PAGES) and _layer(found.module) == ROOT_LAYER
    return is_page or (found.module, found.name) == ANNOTATIONS


def _more_than_names(name: str, source: str) -> Iterator[str]:
    """Complaints about statements in a public module that are not imports of names."""
    for node in parse(source).body:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
                continue
            case ast.If() if all(isinstance(n, ast.ImportFrom) for n in _only_for_types(node)):
                continue
            case ast.Assign(targets=[ast.Name("__all__")]):
                continue
            case ast.Expr(value=ast.Call()) if ast.unparse(node).startswith("lazy_names(__name__"):
                continue
        module = name.removesuffix(".__init__")
        yield f"{module}:{node.lineno} is more than a name: the machine belongs under _src"


def _layer(module: str) -> int:
    """Position in LAYERS; -1 for modules below them, ROOT_LAYER for the public names."""
    if module.startswith(PAGES):
        return ROOT_LAYER + 1
    parts = [*module.split("."), "", ""]
    if parts[1] == "_src" and parts[2]:
        return LAYERS.index(parts[2]) if parts[2] in LAYERS else ROOT_LAYER
    return -1 if parts[1] in ("_src", "_version") else ROOT_LAYER


def _cycle(imports: list[Import], modules: set[str]) -> list[str]:
    graph: dict[str, set[str]] = {}
    for found in imports:
        target = _module_of(found.name, modules)
        if not _is_declared(found) and target in modules and target != found.module:
            graph.setdefault(found.module, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return ["modules import each other: " + " <- ".join(error.args[1])]
    return []


def _module_of(name: str, modules: set[str]) -> str:
    """`shardwise.types.mesh.Mesh` is in module `shardwise.types.mesh`."""
    while name not in modules and "." in name:
        name = name.rpartition(".")[0]
    return name


def oversized(root: Path) -> dict[str, tuple[int, int]]:
    """Packages (folders without their subfolders) over the bounds: {folder: (files, lines)}."""
    found = {}
    for folder in [p for p in sorted(root.rglob("*")) if p.is_dir()]:
        files = sorted(folder.glob("*.py"))
        lines = sum(len(p.read_text().splitlines()) for p in files)
        if len(files) > MAX_FILES or lines > MAX_LINES:
            found[folder.relative_to(root).as_posix()] = (len(files), lines)
    return found


# -------------------------------------------------------------------------------------- tests


def test_the_library_keeps_to_its_layers():
    complaints = check(read_tree(PACKAGE))
    assert not complaints, "\n" + "\n".join(complaints)


def test_packages_are_small():
    assert oversized(PACKAGE / "_src") == {}


def test_file_names_are_unique():
    names = Counter(p.name for p in (PACKAGE / "_src").rglob("*.py"))
    assert [n for n, count in names.items() if count > 1 and n != "__init__.py"] == []


def complain(**sources: str) -> list[str]:
    """Checks modules given as `core__op="source"`, under `shardwise._src`."""
    root = {"shardwise.__init__": sources.pop("root", ""), "shardwise._src.__init__": ""}
    named = {f"shardwise._src.{name.replace('__', '.')}": text for name, text in sources.items()}
    return check({**root, **named})


def test_downward_imports_are_fine():
    op = "from shardwise._src.types import mesh"
    assert not complain(base="", types__mesh="from shardwise._src import base", core__op=op)


@pytest.mark.parametrize(
    "source",
    [
        "import shardwise._src.core.op",
        "import shardwise._src.core.op as op",
        "from shardwise._src.core import op",
        "from shardwise._src.core.op import Op",
        "from ..core.op import Op",
        "from ..core import op",
        "from importlib import import_module\nimport_module('shardwise._src.core.op')",
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from shardwise._src.core.op import Op",
        "class A:\n    from shardwise._src.core.op import Op",
        "try:\n    from shardwise._src.core.op import Op\nexcept ImportError:\n    pass",
    ],
)
def test_an_upward_import_is_found_however_it_is_written(source):
    (complaint,) = complain(types__mesh=source, core__op="")
    where, what = complaint.split(" imports ")
    assert "core" in source.splitlines()[int(where.removeprefix("shardwise._src.types.mesh:")) - 1]
    assert what in [f"shardwise._src.core.op{end}, which is above it" for end in ("", ".Op")]


def test_annotations_name_the_class_of_arrays_for_type_checkers_only():
    array = "from shardwise._src.arrays.array import Array"
    guard = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
    where = "shardwise._src.types.annotations"
    assert not complain(types__annotations=guard + array, arrays__array="")
    assert complain(types__annotations=array, arrays__array="") == [
        f"{where}:1 imports shardwise._src.arrays.array.Array, which is above it"
    ]
    other = guard + array.replace("Array", "wrap")
    assert complain(types__annotations=other, arrays__array="") == [
        f"{where}:3 imports shardwise._src.arrays.array.wrap, which is above it"
    ]
    assert complain(types__mesh=guard + array, arrays__array="") != []


def test_nobody_imports_the_public_package():
    assert complain(types__mesh="import shardwise", cli__main="from shardwise import jit") == [
        "shardwise._src.types.mesh:1 imports shardwise, which is above it",
        "shardwise._src.cli.main:1 imports shardwise.jit, which is above it",
    ]


def test_pages_import_public_names_and_only_public_names_are_made_of_them():
    page = "shardwise._src.kernels.library.page"
    public = "from shardwise._src.kernels.library.page import f as f"
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
    sources = {
        "shardwise.__init__": lazy + "from shardwise import kernels as kernels",
        "shardwise.kernels": lazy + public,
        page: "from shardwise import kernels",
    }
    assert not check(sources)
    assert check({**sources, "shardwise.kernels": public}) == [
        "shardwise.kernels:1 imports shardwise._src.kernels.library.page.f, which is above it"
    ]
    complaint = check({**sources, "shardwise._src.cli.main": lazy + public})
    assert complaint == [
        "shardwise._src.cli.main:3 imports shardwise._src.kernels.library.page.f, which is above it"
    ]


def test_public_namespaces_go_down_in_their_order():
    assert not complain(lax="", random="from shardwise._src import lax")
    assert complain(lax="from shardwise._src import random", random="") == [
        "shardwise._src.lax:1 imports shardwise._src.random, which is above it"
    ]


def test_relative_imports_in_a_package_file_start_there():
    sources = {
        "shardwise.__init__": "",
        "shardwise._src.core.__init__": "from .op import Op\nfrom ..ops import sin",
        "shardwise._src.core.op": "",
        "shardwise._src.ops.__init__": "",
    }
    assert check(sources) == [
        "shardwise._src.core:2 imports shardwise._src.ops.sin, which is above it"
    ]


def test_imports_inside_functions_are_for_optional_packages_only():
    assert not complain(cli__tables="def f():\n    from rich.table import Table")
    assert complain(base="", core__op="def f():\n    from shardwise._src import base") == [
        "shardwise._src.core.op:2 imports shardwise._src.base inside a function, though it is ours"
    ]
    assert complain(core__op="f = lambda: __import__('json')") == [
        "shardwise._src.core.op:1 imports json inside a function, though it is in the standard "
        "library"
    ]
    assert complain(core__op="class A:\n    def f(self):\n        import numpy") == [
        "shardwise._src.core.op:3 imports numpy inside a function, though it is always there"
    ]


def test_public_modules_hold_names_only():
    assert not complain(root="from shardwise._src.nn import relu as relu", nn="")
    late = "def __getattr__(name):\n    return name"
    assert complain(root=late) == [
        "shardwise:1 is more than a name: the machine belongs under _src"
    ]


def test_jaxlib_belongs_to_the_seam():
    assert not complain(runtime__client="from jaxlib import _jax")
    assert not complain(runtime__cuda="def f():\n    import jaxlib.gpu_solver")
    assert complain(lowering__module="from jaxlib.mlir import ir") == [
        "shardwise._src.lowering.module:1 imports jaxlib.mlir.ir: only shardwise._src.runtime "
        "imports jaxlib"
    ]
    assert complain(lowering__module="import jax_cuda13_plugin") != []
    assert complain(runtimes="import jaxlib")[-1] == (
        "shardwise._src.runtimes is in no layer: add it to LAYERS"
    )


@pytest.mark.parametrize("source", ["import jax", "from jax import numpy", "import jax_plugins.x"])
def test_nobody_imports_jax(source):
    (complaint,) = complain(runtime__client=source)
    assert complaint.endswith("the library never imports jax")


def test_modules_that_import_in_a_circle_are_named():
    complaints = complain(
        core__a="from shardwise._src.core import b",
        core__b="from shardwise._src.core.c import x",
        core__c="import shardwise._src.core.a",
    )
    assert len(complaints) == 1
    assert complaints[0].startswith("modules import each other: ")
    assert set(complaints[0].partition(": ")[2].split(" <- ")) == {
        f"shardwise._src.core.{name}" for name in "abc"
    }


def test_annotations_close_no_circle():
    guard = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
    needs_b, needs_a = "import shardwise._src.core.b", "import shardwise._src.core.a"
    assert not complain(core__a="", core__b=guard + needs_a)
    assert complain(core__a=needs_b, core__b=guard + needs_a) == [
        "modules import each other: shardwise._src.core.a <- shardwise._src.core.b <- "
        "shardwise._src.core.a"
    ]


def test_a_package_file_and_its_module_may_not_need_each_other():
    sources = {
        "shardwise._src.core.__init__": "from shardwise._src.core.op import Op\nsize = 1",
        "shardwise._src.core.op": "from shardwise._src.core import size",
    }
    (complaint,) = check(sources)
    assert complaint.startswith("modules import each other: ")
    sources["shardwise._src.core.op"] = "from shardwise._src.core import other"
    assert not check({**sources, "shardwise._src.core.other": ""})
