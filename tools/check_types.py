"""Type-checks, from a user's perspective, the programs that demonstrate the library.

    python tools/check_types.py

These are the Python blocks of README.md and of docs/ (with its tutorials and migration pages),
where the blocks of a document are one program with the original line numbers; the examples; and
`tests/typed`, which states the expected results of checkers. Pyright (basic, and strict for
`tests/typed`, whose functions are fully annotated) and mypy check them against an installed
library: errors in the library's own source are ignored.
Pages with programs that show errors, docs/errors and docs/values.md, are excluded.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from os.path import relpath
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "typed"
BLOCK = re.compile(r"^```python(?: needs [\w ]+)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIMIT = 540  # seconds per checker
FOLDERS = ("docs", "docs/tutorials", "docs/migration")
# Its blocks are separate programs, in which one name is functions of different signatures.
MANY_PROGRAMS = {"values.md"}


def program_of(text: str) -> str:
    """The Python blocks of a document at their original lines, and nothing else."""
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start()) + 1
        body = block[1].splitlines()
        lines[first : first + len(body)] = body
    return "\n".join(lines).rstrip() + "\n"


def programs() -> Iterator[Path]:
    """The files to check; writes the programs of documents first."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.py"):
        old.unlink()
    documents = [p for folder in FOLDERS for p in sorted((ROOT / folder).glob("*.md"))]
    for path in [ROOT / "README.md", *documents]:
        text = path.read_text()
        if BLOCK.search(text) and path.name not in MANY_PROGRAMS:
            words = path.relative_to(ROOT).with_suffix("").parts
            file = FOLDER / f"in_{'_'.join(words).lower()}.py"
            file.write_text(program_of(text))
            yield file
    yield from sorted((ROOT / "examples").glob("*.py"))
    yield from sorted((ROOT / "tests" / "typed").glob("*.py"))


def pyright(files: list[Path]) -> list[str]:
    """The pyright command."""
    settings = {
        "include": [relpath(f, FOLDER) for f in files],
        "extraPaths": [str(ROOT), str(ROOT / "examples")],
        "venvPath": str(ROOT),
        "venv": ".venv",
        "pythonVersion": "3.11",
        "typeCheckingMode": "basic",
        "strict": [relpath(ROOT / "tests" / "typed", FOLDER)],
        "reportMissingImports": False,
        "reportMissingModuleSource": False,
        "enableTypeIgnoreComments": False,
        "reportRedeclaration": False,  # blocks of a document define their own `f`
    }
    config = FOLDER / "pyrightconfig.json"
    config.write_text(json.dumps(settings))
    return [str(Path(sys.executable).with_name("pyright")), "-p", str(config)]


def mypy(files: list[Path]) -> list[str]:
    """The mypy command."""
    return [
        sys.executable, "-m", "mypy", "--follow-imports=silent", "--ignore-missing-imports",
        "--check-untyped-defs", "--warn-unused-ignores", "--python-version=3.11",
        "--disable-error-code=no-redef",  # blocks of a document define their own `f`
        f"--cache-dir={FOLDER / 'mypy'}", *map(str, files),
    ]  # fmt: skip


def main() -> int:
    files = list(programs())
    failed = 0
    for command in (pyright(files), mypy(files)):
        failed += subprocess.run(command, cwd=ROOT, timeout=LIMIT, check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
