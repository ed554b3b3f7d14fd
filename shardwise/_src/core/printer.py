"""Prints programs. Variables are named a, b, … z, aa, … in the order of their definition."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from shardwise._src.messages.source import SourceInfo, describe

if TYPE_CHECKING:
    from shardwise._src.core.program import Equation, Program, Var


class Style(NamedTuple):
    """What is printed in addition to names, ops and parameters."""

    types: bool = True
    lines: bool = False
    scopes: bool = False
    effects: bool = False
    width: int | None = None
    colour: bool = False


def text(program: Program, indent: str = "", style: Style = Style()) -> str:  # noqa: B008
    """The program, one equation a line; nested programs are printed inside, indented."""
    rows = list(_Printer(style).program(program, indent))
    column = max([len(row) for row, comment in rows if comment], default=0) + 1
    shown = [f"{row:{column}}# {comment}" if comment else row for row, comment in rows]
    return _coloured("\n".join(shown)) if style.colour else "\n".join(shown)


def equation_text(eqn: Equation) -> str:
    """A single equation, with separate names for its variables."""
    return "\n".join([row for row, _ in _Printer(Style()).equation(eqn, "")])


def _names() -> Iterator[str]:
    number = 0
    while True:
        digits, rest = "", number
        while True:
            digits = chr(ord("a") + rest % 26) + digits
            rest = rest // 26 - 1
            if rest < 0:
                break
        yield digits
        number += 1


Row = tuple[str, str]  # a line, and the comment at its end


class _Printer:
    def __init__(self, style: Style) -> None:
        self._style = style
        self._fresh = _names()
        self._known: dict[Var, str] = {}

    def name(self, atom: Any) -> str:
        if hasattr(atom, "value"):
            return f"{_scalar(atom.value)}:{atom.aval.str_short(True)}"
        if atom not in self._known:
            self._known[atom] = next(self._fresh)
        return self._known[atom]

    def defined(self, variables: Iterable[Var]) -> str:
        if not self._style.types:
            return " ".join([self.name(v) for v in variables])
        return " ".join([f"{self.name(v)}:{v.aval.str_short(True)}" for v in variables])

    def program(self, program: Program, indent: str) -> Iterator[Row]:
        constants = self.defined(program.constant_vars)
        arguments = self.defined(program.arguments)
        yield f"{{ lambda {constants + ' ' if constants else ''}; {arguments}. let", ""
        for eqn in program.equations:
            (first, _), *rest = self.equation(eqn, indent + "    ")
            yield f"{indent}    {first}", self.comment(eqn)
            yield from rest
        outputs = ", ".join(self.name(a) for a in program.outputs)
        if len(program.outputs) == 1:
            outputs += ","
        yield f"{indent}  in ({outputs}){self.effects(program)} }}", ""

    def comment(self, eqn: Equation) -> str:
        said = [describe(eqn.site)] if self._style.lines else []
        if self._style.scopes:
            said.append(f"[{SourceInfo(eqn.site).name_stack}]")
        return " ".join(said)

    def effects(self, program: Program) -> str:
        if not self._style.effects:
            return ""
        return f" : {{ {', '.join(sorted(map(str, program.effects)))} }}"

    def equation(self, eqn: Equation, indent: str) -> Iterator[Row]:
        inputs = "".join([f" {self.name(a)}" for a in eqn.inputs])
        head = f"{self.defined(eqn.outputs)} = {eqn.op.name}" if eqn.outputs else eqn.op.name
        if not eqn.params:
            yield head + inputs, ""
            return
        if not eqn.op.programs:
            written = " ".join([f"{k}={_plain(v)}" for k, v in eqn.params.items()])
            line = f"{head}[{written}]{inputs}"
            if self._style.width is None or len(indent + line) <= self._style.width:
                yield line, ""
                return
        yield f"{head}[", ""
        for key, value in eqn.params.items():
            yield from self.parameter(key, value, indent + "  ")
        yield f"{indent}]{inputs}", ""

    def parameter(self, key: str, value: Any, indent: str) -> Iterator[Row]:
        several = value.__class__ is tuple and len(value) > 0
        held = value if several else (value,)
        if not hasattr(held[0], "equations"):
            yield f"{indent}{key}={_plain(value)}", ""
            return
        begun = f"{indent}{key}={'(' if several else ''}"
        for program in held:
            (first, _), *rows, (last, _) = _Printer(self._style).program(program, indent)
            yield begun + first, ""
            yield from rows
            begun = f"{last} "
        yield begun[:-1] + (")" if several else ""), ""


def _plain(value: Any) -> str:
    name = getattr(value, "__name__", None)  # of a class or function
    return str(value) if name is None else str(name)


def _coloured(text: str) -> str:
    """Keywords in bold, types in cyan, the comments at the ends of lines in grey."""
    text = re.sub(r"(?<=:)[a-z]\w*\[[^\]\s]*\](?:{[^}]*})?", "\033[36m\\g<0>\033[0m", text)
    text = re.sub(r"(?<=[{. ])(?:lambda|let|in)(?= |$)", "\033[1m\\g<0>\033[0m", text, flags=re.M)
    return re.sub(r"# .*$", "\033[90m\\g<0>\033[0m", text, flags=re.M)


def _scalar(value: Any) -> str:
    return str(value.item() if hasattr(value, "item") else value)
