"""Docstrings of the library as reStructuredText, for the pages of the reference.

Docstrings are plain text: paragraphs, `code` in backticks, lists of `name: text`, the sections
`Args:`, `Returns:`, `Raises:`, examples after `>>>`, and indented blocks, which are unchanged.
Nothing else is markup, so all other special characters are escaped.
"""

from __future__ import annotations

import re

SECTION = re.compile(r"(Args|Returns|Yields|Raises|Example|Examples|Attributes):$")
ENTRY = re.compile(r"(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*(?: \([^)]*\))?):(\s+)(\S.*)$")
CODE = re.compile(r"`+([^`]+)`+")
TITLES = {"Args": "Arguments"}


def to_rst(text: str) -> list[str]:
    """The lines of a docstring as reStructuredText."""
    return _blocks(text.expandtabs().splitlines(), inside=False)


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_|`])", r"\\\1", text)


def _code(text: str) -> str:
    """Inline code; a backslash at the end would be parsed as an escape."""
    return f"``{text.strip()}``"


def inline(text: str) -> str:
    """A paragraph on one line, with code between backticks."""
    parts = CODE.split(text)
    found = ""
    for i, part in enumerate(parts):
        if i % 2 == 0:
            if i and part and not part[0].isspace():
                part = "\\ " + _escaped(part)
            else:
                part = _escaped(part)
            found += part
        else:
            apart = not found or found[-1].isspace()
            found += ("" if apart else "\\ ") + _code(part)
    return found if re.match(r"[\w`][\w`]", found) and not _enumerates(found) else "\\ " + found


def _enumerates(text: str) -> bool:
    """Whether a paragraph would be parsed as an item of a numbered list."""
    return bool(re.match(r"\(?\w{1,4}[.)](\s|$)", text))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _taken(lines: list[str], start: int, above: int) -> tuple[list[str], int]:
    """The lines from `start` that are indented by more than `above`, without that indent."""
    end = start
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > above):
        end += 1
    block = lines[start:end]
    while block and not block[-1].strip():
        block.pop()
    least = min((_indent(line) for line in block if line.strip()), default=0)
    return [line[least:] for line in block], end


def _shifted(lines: list[str], by: int = 4) -> list[str]:
    return [" " * by + line if line.strip() else "" for line in lines]


def _blocks(lines: list[str], inside: bool) -> list[str]:
    """Converts block after block. If `inside` a section, any `name: text` is an entry."""
    out: list[str] = []
    i = 0
    while i < len(lines):
        line = lines[i]
        if not line.strip():
            i += 1
        elif found := SECTION.match(line):
            body, i = _taken(lines, i + 1, 0)
            title = TITLES.get(found[1], found[1])
            out += [f":{title}:", *_shifted(_blocks(body, inside=True)), ""]
        elif line.startswith(">>>"):
            example, i = _paragraph(lines, i)
            out += [".. code-block:: pycon", "", *_shifted(example), ""]
        elif line[0] == " ":
            body, i = _taken(lines, i, 0)
            out += ["::", "", *_shifted(body), ""]
        elif line.startswith(("- ", "* ")):
            body, end = _taken(lines, i + 1, 0)
            out += ["- " + inline(" ".join([line[2:], *[b.strip() for b in body]])), ""]
            i = end
        elif _is_entry(lines, i, inside):
            entry, i = _entry(lines, i)
            out += [*entry, ""]
        else:
            start = i
            paragraph, i = _paragraph(lines, i, to_indent=True)
            if i < len(lines) and lines[i].startswith(" ") and not paragraph[-1].endswith(":"):
                _, i = _taken(lines, i, 0)  # such as a call, with its arguments below it
                out += ["::", "", *_shifted(lines[start:i]), ""]
            else:
                out += [inline(" ".join(paragraph)), ""]
    return out


def _paragraph(lines: list[str], start: int, to_indent: bool = False) -> tuple[list[str], int]:
    end = start + 1
    while end < len(lines) and lines[end].strip() and not (to_indent and lines[end][0] == " "):
        end += 1
    return lines[start:end], end


def _is_entry(lines: list[str], i: int, inside: bool) -> bool:
    found = ENTRY.match(lines[i])
    if not found:
        return False
    body, end = _taken(lines, i + 1, 0)
    following = end < len(lines) and ENTRY.match(lines[end])
    before = i > 0 and (ENTRY.match(lines[i - 1]) or lines[i - 1].startswith("  "))
    return inside or len(found[2]) > 1 or bool(body or following or before)


def _entry(lines: list[str], i: int) -> tuple[list[str], int]:
    """An item of a definition list: names as code, and their descriptions."""
    found = ENTRY.match(lines[i])
    assert found
    body, end = _taken(lines, i + 1, 0)
    names, _, note = found[1].partition(" (")
    term = ", ".join([_code(name) for name in names.split(", ")])
    term += f" ({_escaped(note)}" if note else ""
    return [term, *_shifted(_blocks([found[3], *body], inside=False))], end
