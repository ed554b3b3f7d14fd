"""Moves the machine behind the public names to `shardwise/_src`, and rewrites every import.

    python tools/move.py

MOVES has the old and the new name of each module. Files move with `git mv`, so
that their history stays; imports, names of modules in strings, and paths in prose follow.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "shardwise"

ROOMS = {  # new room: the modules that come to it
    "base": "base.caches base.command_line base.config base.context base.errors base.lazy",
    "runtime": "runtime.backend runtime.callbacks runtime.cuda runtime.fingerprint runtime.host "
    "runtime.memory runtime.placement runtime.program runtime.pytree runtime.shardy runtime.window",
    "messages": "core.calls core.leaks core.source core.tracebacks core.trees",
    "types": "types.array_type types.devices types.dims types.dtypes types.extended types.frozen "
    "types.hybrid types.layout types.mesh types.partition_spec types.promotion types.sharding "
    "types.sharding_base types.tiled types.tiling",
    "types.pictures": "types.pictures.html types.pictures.panels types.pictures.svg",
    "core": "core.checker core.explicit core.fused core.infer core.interpreter core.op "
    "core.ordering core.printer core.program core.structure",
    "refs": "control.refs",
    "effects": "control.callback",
    "control": "control.bodies control.call control.cond control.cond_api control.programs "
    "control.reduce control.scan control.scan_api control.scan_lowering control.scan_split "
    "control.while_api control.while_loop",
    "custom": "control.implicit control.linear_call",
    "arrays": "engine.array engine.conversions engine.interchange engine.signature",
    "lowering": "engine.emitter engine.extended engine.module engine.padding engine.storage",
    "compiling": "engine.compiled engine.disk_cache",
    "moving": "engine.copying engine.foreign engine.live engine.parts engine.pieces "
    "engine.regions engine.tiles engine.transfer",
    "running": "engine.eager engine.executable engine.inspection engine.places engine.watch",
}
RENAMED = {
    "control.custom_common": "custom.common",
    "control.custom_jvp": "custom.jvp",
    "control.custom_vjp": "custom.vjp",
    "control.custom_vmap": "custom.vmap",
    "control.custom_refs": "custom.refs",
    "control.remat": "remat.recompute",
    "control.checking": "checks.checking",
    "engine.shardings": "moving.targets",
    "ops.random_bits": "ops.random.bits",
    "ops.rejection": "ops.random.rejection",
    "ops.threefry": "ops.random.threefry",
    "checkpoint_policies": "remat.policies",
    "tree": "tree.functions",
    "tree_util": "tree.registration",
    "ref": "refs.functions",
    "debug": "api.debug",
    "experimental.mesh_utils": "api.mesh_utils",
    "experimental.pjit": "compat.pjit",
    "experimental.state": "api.run_state",
}
WHOLE = "ops numpy transforms api lax nn random explain compat testing cli"  # rooms as they are


def moves() -> dict[str, str]:
    found = {old: f"{room}.{old.split('.')[-1]}" for room, text in ROOMS.items()
             for old in text.split()}
    found |= RENAMED
    for package in WHOLE.split():
        for path in sorted((LIBRARY / package).glob("*.py")):
            if path.stem != "__init__":
                name = f"{package}.{path.stem}"
                found.setdefault(name, name)
    return {old: f"_src.{new}" for old, new in found.items()}


MOVES = moves()
# What each `__init__` becomes: packages without a public face go as a whole.
INITS = {
    name: f"_src.{name}" for name in
    "base runtime types types.pictures ops transforms api control cli".split()
}
ALL = MOVES | INITS


def path_of(name: str) -> Path:
    path = LIBRARY.joinpath(*name.split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def move() -> None:
    for old, new in ALL.items():
        source, target = path_of(old), LIBRARY.joinpath(*new.split("."))
        target = target / "__init__.py" if old in INITS else target.with_suffix(".py")
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["git", "mv", source, target], check=True, cwd=ROOT)


def renamed(module: str) -> str:
    """The new name of a module, `shardwise` included; the same where it stays."""
    tail = module.removeprefix("shardwise.")
    return f"shardwise.{ALL[tail]}" if tail in ALL and module != "shardwise" else module


def rewritten(source: str, inside: bool) -> str:
    """A file with its imports rewritten. inside: whether it is one of the library's own."""
    lines = source.splitlines(keepends=True)
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.ImportFrom | ast.Import)]
    for node in sorted(nodes, key=lambda n: -n.lineno):
        new = _statement(node, inside)
        if new is not None:
            indent = " " * node.col_offset
            first, last = node.lineno - 1, node.end_lineno or node.lineno
            tail = re.search(r"\)?(\s*#.*)?\n?$", lines[last - 1])
            comment = (tail.group(1) or "") if tail else ""
            lines[first:last] = [f"{indent}{line}{comment}\n" for line in new]
    return "".join(lines)


def _statement(node: ast.ImportFrom | ast.Import, inside: bool) -> list[str] | None:
    if isinstance(node, ast.Import):
        if not any(a.name.startswith("shardwise.") and renamed(a.name) != a.name
                   for a in node.names):
            return None
        return [f"import {renamed(a.name)}" + (f" as {a.asname}" if a.asname else "")
                for a in node.names]
    module = node.module or ""
    if module.split(".")[0] != "shardwise" or node.level:
        return None
    groups: dict[str, list[str]] = {}
    for alias in node.names:
        full = f"{module}.{alias.name}"
        target, name, shown = renamed(module), alias.name, alias.asname
        if renamed(full) != full and (inside or full.removeprefix("shardwise.") not in PUBLIC):
            target, _, name = renamed(full).rpartition(".")
            if name != alias.name and shown is None:
                shown = alias.name
        elif not inside and module.removeprefix("shardwise.") in PUBLIC:
            target = module
        groups.setdefault(target, []).append(name + (f" as {shown}" if shown else ""))
    return [
        line for target, names in groups.items()
        for line in (
            [f"from {target} import {n}" for n in names] if any(" as " in n for n in names)
            else [f"from {target} import {', '.join(names)}"]
        )
    ]


# Public modules that stay as faces: outside the library they keep their names.
PUBLIC = {
    "checkpoint_policies", "tree", "tree_util", "ref", "debug", "experimental.mesh_utils",
    "experimental.pjit", "experimental.state", "numpy.linalg",
    "nn.initializers",
}


def texts(source: str) -> str:
    """Names of modules in strings, and paths in prose, followed."""
    for old, new in sorted(ALL.items(), key=lambda pair: -len(pair[0])):
        if "." not in old or old in PUBLIC or (new == f"_src.{old}" and old.split(".")[0] in (
            "numpy", "lax", "random", "nn", "compat", "explain"
        )):
            continue
        slashed, newly = old.replace(".", "/"), new.removeprefix("_src.").replace(".", "/")
        source = re.sub(rf"(?<![\w/]){slashed}\.py\b", f"{newly}.py", source)
        dotted = re.escape(old)
        source = re.sub(rf"(['\"`])shardwise\.{dotted}(?=['\"`.])", rf"\1shardwise.{new}", source)
        short = new.removeprefix("_src.")
        source = re.sub(rf"`{dotted}(?=[`.])", f"`{short}", source)
    return source


def main() -> None:
    move()
    for folder in ("shardwise", "tests", "benchmarks", "tools", "examples", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix not in (".py", ".md") or path.name in ("move.py", "test_layers.py"):
                continue
            source = path.read_text()
            new = source
            if path.suffix == ".py":
                new = rewritten(new, inside=folder == "shardwise")
            new = texts(new)
            if new != source:
                path.write_text(new)


if __name__ == "__main__":
    main()
