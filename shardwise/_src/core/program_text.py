"""Programs as text: an equation a line, variables named a, b, … z, aa, … as they are defined.

The program of a function that is called several times is printed once, above, and so is a long one.
Any other is printed inside its equation, in one line if it fits.

    let f = { lambda ; a:f32[3]. let b:f32[3] = sin a in (b,) } in
    { lambda ; c:f32[3]. let
        d:f32[3] = jit[name=f jaxpr=f] c
        e:f32[3] = jit[name=f jaxpr=f] d
      in (e,) }

Names of variables are unique, except that a called program has those of the operands and results of
its call, and that equal bodies of loops have the same. A result that is not used is `_`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator
from typing import Any, NamedTuple

from shardwise._src.messages.source import SourceInfo, describe

WIDTH = 80  # in characters, for programs in one line
LONG = 10  # equations in a program
Row = tuple[str, str]  # a line, and the comment at its end


class Style(NamedTuple):
    """What is printed in addition to names, ops and parameters."""

    types: bool = True
    lines: bool = False
    scopes: bool = False
    effects: bool = False
    width: int | None = None
    colour: bool = False


def text(program: Any, style: Style = Style()) -> str:  # noqa: B008
    """The program, after those that it contains more than once."""
    shared = _shared(program)
    printer = _Printer(style, shared)
    rows: list[Row] = []
    for one, name in shared.items():
        rows += printer.program(one, "", f"let {name} = ", " in")
    rows += printer.program(program, "")
    column = max([len(row) for row, comment in rows if comment], default=0) + 1
    shown = [f"{row:{column}}# {comment}" if comment else row for row, comment in rows]
    return _coloured("\n".join(shown)) if style.colour else "\n".join(shown)


def equation_text(eqn: Any) -> str:
    """A single equation, with separate names for its variables."""
    return "\n".join([row for row, _ in _Printer(Style(), {}).equation(eqn, "")])


def _shared(program: Any) -> dict[Any, str]:
    """The programs that are printed above, and their names."""
    counts, todo = Counter[Any](), deque([program])
    names: dict[Any, str] = {}
    while todo:
        found = todo.popleft()
        counts[found] += 1
        if counts[found] > 2:
            continue
        for eqn in found.eqns:
            for inner in eqn.programs():
                if eqn.op.contains.is_call or inner not in names:  # equal bodies of loops are one
                    todo.append(inner)
                names.setdefault(inner, str(eqn.params.get("name") or "jaxpr").strip("<>"))
    numbers = Counter[str]()
    shared: dict[str, Any] = {}
    for inner in [p for p in names if counts[p] > 1 or len(p.eqns) > LONG]:
        name = names[inner]
        while name in shared:
            numbers[names[inner]] += 1
            name = f"{names[inner]}{numbers[names[inner]]}"
        shared[name] = inner
    return {inner: name for name, inner in shared.items()}


def _names(reserved: Iterable[str] = ()) -> Iterator[str]:
    number = 0
    while True:
        digits, rest = "", number
        while True:
            digits = chr(ord("a") + rest % 26) + digits
            rest = rest // 26 - 1
            if rest < 0:
                break
        if digits not in reserved:
            yield digits
        number += 1


class _Printer:
    def __init__(self, style: Style, shared: dict[Any, str]) -> None:
        self._style = style
        self._shared = shared
        self._fresh = _names({*shared.values()})
        self._known: dict[Any, str] = {}

    def name(self, atom: Any) -> str:
        if hasattr(atom, "value"):
            return f"{_scalar(atom.value)}:{atom.aval.str_short(True)}"
        if atom not in self._known:
            self._known[atom] = next(self._fresh)
        return self._known[atom]

    def defined(self, variables: Iterable[Any], used: Container[Any] | None = None) -> str:
        named = [
            (v, "_" if used is not None and v not in used else self.name(v)) for v in variables
        ]
        if not self._style.types:
            return " ".join([name for _, name in named])
        return " ".join([f"{name}:{v.aval.str_short(True)}" for v, name in named])

    def program(self, program: Any, indent: str, begun: str = "", ended: str = "") -> list[Row]:
        """The lines of a program, between other text; a single one if it is in another program."""
        constants, arguments = self.defined(program.constvars), self.defined(program.invars)
        first = f"{begun}{{ lambda {constants}; {arguments}. let"
        used = {*program.outvars}.union(*[eqn.invars for eqn in program.eqns])
        equations = [self.equation(eqn, indent + "    ", used) for eqn in program.eqns]
        outputs = ", ".join(self.name(a) for a in program.outvars)
        if len(program.outvars) == 1:
            outputs += ","
        last = f"in ({outputs}){self.effects(program)} }}{ended}"
        if begun and not (self._style.lines or self._style.scopes):
            limit = self._style.width or WIDTH
            if line := _in_one_line(f"{first} ", equations, f" {last}", limit, "; "):
                return line
        rows = [(first, "")]
        for eqn, ((head, _), *rest) in zip(program.eqns, equations, strict=True):
            rows += [(head, self.comment(eqn)), *rest]
        return [*rows, (f"{indent}  {last}", "")]

    def comment(self, eqn: Any) -> str:
        said = [describe(eqn.site)] if self._style.lines else []
        if self._style.scopes:
            said.append(f"[{SourceInfo(eqn.site).name_stack}]")
        return " ".join(said)

    def effects(self, program: Any) -> str:
        if not self._style.effects:
            return ""
        return f" : {{ {', '.join(sorted(map(str, program.effects)))} }}"

    def equation(self, eqn: Any, indent: str, used: Container[Any] | None = None) -> list[Row]:
        inputs = "".join([f" {self.name(a)}" for a in eqn.invars])
        outputs = f"{self.defined(eqn.outvars, used)} = " if eqn.outvars else ""
        head = f"{indent}{outputs}{eqn.op.name}"
        if not eqn.params:
            return [(head + inputs, "")]
        self.name_called(eqn)
        rows = [self.parameter(k, v, indent + "  ") for k, v in _shown(eqn).items()]
        narrow = bool(eqn.op.programs) or self._style.width is not None
        return self.joined(f"{head}[", rows, f"]{inputs}", indent, narrow)

    def joined(
        self, first: str, parts: list[list[Row]], last: str, indent: str, narrow: bool = True
    ) -> list[Row]:
        """The parts between other text: in one line if it fits, or if it is not to be narrow."""
        limit = (self._style.width or WIDTH) if narrow else sys.maxsize
        line = _in_one_line(first, parts, last, limit)
        return line or [(first, ""), *[row for rows in parts for row in rows], (indent + last, "")]

    def name_called(self, eqn: Any) -> None:
        """Gives variables of a called program the names of the operands and results of the call."""
        inner = eqn.called
        if inner is None or inner in self._shared:
            return
        given = (*eqn.invars, *eqn.outvars)
        left = {self._known[a] for a in given if a in self._known}
        own = [*inner.inputs, *[v for e in inner.eqns for v in e.outvars]]
        left -= {self._known[v] for v in own if v in self._known}  # by an earlier program with them
        for v, a in zip((*inner.invars, *inner.outvars), given, strict=False):
            name = self._known.get(a, "")
            if name in left and v not in self._known and not hasattr(v, "value"):
                self._known[v] = name
                left.remove(name)

    def parameter(self, key: str, value: Any, indent: str) -> list[Row]:
        begun = f"{indent}{key}="
        if hasattr(value, "eqns"):
            return self.nested(value, indent, begun)
        if value.__class__ is not tuple or not value or not hasattr(value[0], "eqns"):
            return [(f"{begun}{_plain(value)}", "")]
        rows = [self.nested(p, f"{indent}  ", f"{indent}  ") for p in value]
        return self.joined(f"{begun}(", rows, ")", indent)

    def nested(self, program: Any, indent: str, begun: str) -> list[Row]:
        name = self._shared.get(program)
        return self.program(program, indent, begun) if name is None else [(begun + name, "")]


def _in_one_line(
    first: str, parts: list[list[Row]], last: str, limit: int, between: str = " "
) -> list[Row]:
    """A single line, or none if a part has several lines or the limit is exceeded."""
    line = f"{first}{between.join([part[0][0].strip() for part in parts])}{last}"
    return [(line, "")] if len(line) <= limit and all([len(p) == 1 for p in parts]) else []


def _shown(eqn: Any) -> dict[str, Any]:
    """The parameters; in an op that contains programs, by JAX's names."""
    params: dict[str, Any] = eqn.params
    known: dict[str, Any] = (eqn.op.aliases or {}) if eqn.op.programs else {}
    derived = {name: params[name] for name, own in known.items() if callable(own)}
    names = {own: name for name, own in reversed(known.items()) if not callable(own)}
    return derived | {names.get(key, key): value for key, value in params.items()}


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
