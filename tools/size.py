"""Counts lines per package: code, prose (docstrings and comments), blank, total.

    python tools/size.py            # the table
    python tools/size.py --check    # fails if a part is over its bound in size_bounds.toml

A line with code and a comment is code. The library's total is the number to consider in reviews;
tests, benchmarks, docs and examples are listed below it.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BESIDE = ("tests", "benchmarks", "docs", "examples", "tools")
COLUMNS = ("files", "code", "prose", "blank", "total")
SILENT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstring_lines(source: str) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def count(source: str) -> Counter[str]:
    """Counts the lines of a file by kind."""
    prose = docstring_lines(source)
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        lines = range(token.start[0], token.end[0] + 1)
        if token.type == tokenize.COMMENT:
            prose.update(lines)
        elif token.type not in SILENT and token.start[0] not in prose:
            code.update(lines)
    total = len(source.splitlines())
    prose -= code
    sizes = {"code": len(code), "prose": len(prose), "total": total}
    return Counter(files=1, blank=total - len(code) - len(prose), **sizes)


def count_folder(folder: Path) -> Counter[str]:
    files = sorted(folder.glob("**/*.py"))
    return sum((count(path.read_text()) for path in files), Counter[str]())


def over_bounds(bounds: dict[str, int], sizes: dict[str, int]) -> list[str]:
    """A line for each part with more lines of code than its bound."""
    return [
        f"{name} has {sizes[name]:,} lines of code; the bound in tools/size_bounds.toml is "
        f"{bound:,}. Remove code, or raise the bound with the reason beside it."
        for name, bound in bounds.items()
        if sizes[name] > bound
    ]


def check() -> None:
    """Exits with 1 if a part is over its bound."""
    bounds = tomllib.loads(Path(__file__).with_name("size_bounds.toml").read_text())
    folders = {name: ROOT / name.replace("library", "shardwise") for name in bounds}
    found = over_bounds(bounds, {name: count_folder(f)["code"] for name, f in folders.items()})
    print("\n".join(found) or "sizes: all parts are within their bounds")
    sys.exit(bool(found))


def main() -> None:
    if "--check" in sys.argv[1:]:
        check()
    print(f"{'':24}" + "".join(f"{name:>9}" for name in COLUMNS))
    library = ROOT / "shardwise"
    machine = library / "_src"
    rooms = sorted(path for path in machine.iterdir() if path.is_dir())
    whole, behind = count_folder(library), count_folder(machine)
    rows = [("public names", Counter({k: whole[k] - behind[k] for k in COLUMNS}))]
    rows += [(f"_src/{path.name}", count_folder(path)) for path in rooms]
    show([*rows, ("library", whole)])
    print()
    show([(name, count_folder(ROOT / name)) for name in BESIDE])


def show(rows: list[tuple[str, Counter[str]]]) -> None:
    for name, sizes in rows:
        if sizes["files"]:
            print(f"{name:24}" + "".join(f"{sizes[column]:>9,}" for column in COLUMNS))


if __name__ == "__main__":
    main()
