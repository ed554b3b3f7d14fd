"""Finds phrases in comments, docstrings and documentation that are not the field's plain English.

    python tools/check_words.py            # the exit status is 1 if there are any

`PHRASES` maps phrases that are no longer used to their replacements. Code, strings other than
docstrings, and code blocks in Markdown are not checked.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PHRASES = {
    r"(?<!so )that there is no\w*": "missing, absent",
    r"there is none": "if absent, missing",
    r"is no (array|tree|text|list|number|string)": "is not an array, a pytree, a string, …",
    r"anew": "again",
    r"lets? go of": "releases",
    r"its like": "similar ones",
    r"akin|kin": "similar",
    r"mends?|mended": "works around, fixes",
    r"addends?": "partial sums",
    r"sums that are not taken yet": "unreduced values",
    r"somebody": "name who: a process, a thread, the user",
    r"house": "codebase",
    r"as users give (it|them)": "leave it out",
    r"switchboard|judge": "coordinator, failure detector",
    r"(?<!class=\")beside": "next to, alongside, compared with",
    r"nobody": "name who does not: no process, no test",
    r"lest": "so that … not",
    r"stands? for": "represents",
    r"an? \w+ of (its|their) own": "its own …, a separate …",
    r"(colour|behaviour|neighbour|favour|labelled|modelled|signalled)\w*": "color, behavior, …",
    r"(normal|initial|vector|quant|linear|serial|canonical|optim|parallel|summar|general|recogn|"
    r"synchron|minim|maxim|factor|token)is(e[sd]?|ing|ations?)": "the spelling with z",
}
_FOUND = {re.compile(rf"\b({phrase})\b", re.IGNORECASE): say for phrase, say in PHRASES.items()}


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that people read: their numbers and texts."""
    text = path.read_text()
    yield from _of_python(text) if path.suffix == ".py" else _of_markdown(text)


def _of_python(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            literal = node.body[0]
            lines = text.splitlines()[literal.lineno - 1 : literal.end_lineno]
            yield from enumerate(lines, literal.lineno)


def _of_markdown(text: str) -> Iterator[tuple[int, str]]:
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`", "", line)


def complaints(path: Path, name: str) -> list[str]:
    """The phrases of a file that should be replaced, one line each."""
    return [
        f"{name}:{number}: {match[0]!r}: say {say}"
        for number, line in prose(path)
        for pattern, say in _FOUND.items()
        if (match := pattern.search(line))
    ]


def main() -> int:
    listed = ["git", "ls-files", "*.py", "*.md"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    own = ("tools/check_words.py", "tests/test_words.py")
    found = [
        line
        for name in names.split()
        if name not in own and (ROOT / name).exists()
        for line in complaints(ROOT / name, name)
    ]
    print("\n".join(sorted(found)) or "no phrases to replace")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
