"""Programs as text. Variables are named a, b, … z, aa, … in the order of their definition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardwise._src.core.program import Equation, Program, Var


def text(program: Program, indent: str = "") -> str:
    """The program, one equation a line; held programs are printed inside, indented."""
    return _Printer().program(program, indent)


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


class _Printer:
    def __init__(self) -> None:
        self._fresh = _names()
        self._known: dict[Var, str] = {}

    def name(self, atom: Any) -> str:
        if hasattr(atom, "value"):
            return f"{_scalar(atom.value)}:{atom.aval.str_short(True)}"
        if atom not in self._known:
            self._known[atom] = next(self._fresh)
        return self._known[atom]

    def typed(self, var: Var) -> str:
        return f"{self.name(var)}:{var.aval.str_short(True)}"

    def program(self, program: Program, indent: str) -> str:
        constants = " ".join(self.typed(v) for v in program.constant_vars)
        arguments = " ".join(self.typed(v) for v in program.arguments)
        head = f"{{ lambda {constants + ' ' if constants else ''}; {arguments}. let"
        lines = [head]
        lines += [f"{indent}    {self.equation(e, indent + '    ')}" for e in program.equations]
        outputs = ", ".join(self.name(a) for a in program.outputs)
        if len(program.outputs) == 1:
            outputs += ","
        lines.append(f"{indent}  in ({outputs}) }}")
        return "\n".join(lines)

    def equation(self, eqn: Equation, indent: str) -> str:
        inputs = " ".join(self.name(a) for a in eqn.inputs)
        outputs = " ".join(self.typed(v) for v in eqn.outputs)
        params = self.params(eqn, indent)
        return f"{outputs} = {eqn.op.name}{params} {inputs}".rstrip()

    def params(self, eqn: Equation, indent: str) -> str:
        if not eqn.params:
            return ""
        if eqn.op.programs:
            inner = indent + "  "
            rows = [f"\n{inner}{k}={self.value(v, inner)}" for k, v in eqn.params.items()]
            return "[" + "".join(rows) + f"\n{indent}]"
        return "[" + " ".join(f"{k}={self.value(v, indent)}" for k, v in eqn.params.items()) + "]"

    def value(self, value: Any, indent: str) -> str:
        if hasattr(value, "equations"):
            return _Printer().program(value, indent)
        if _are_programs(value):
            return "(" + " ".join(self.value(v, indent) for v in value) + ")"
        name = getattr(value, "__name__", None)  # of a class or function
        return str(value) if name is None else str(name)


def _are_programs(value: Any) -> bool:
    return value.__class__ is tuple and len(value) > 0 and hasattr(value[0], "equations")


def _scalar(value: Any) -> str:
    return str(value.item() if hasattr(value, "item") else value)
