"""Describes a program, for messages and as a file, when processes do not run the same one."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

SHOWN = 8  # parameters, and results
_MAIN = re.compile(r"func\.func public @main\((.*?)\) -> \((.*?)\) \{\n", re.DOTALL)
_TENSOR = re.compile(r"(?:^|[ ,])tensor<([^<>]*(?:<[^<>]*>)?)>([^%]*?)(?=, (?:%|tensor<)|$)")
_SPLIT = re.compile(r"#sdy\.sharding<@\w+, \[((?:\{[^}]*\}(?:, )?)*)\]")
_NAMES = {"i1": "bool", "complex<f32>": "c64", "complex<f64>": "c128"}


def program_types(text: str) -> str:
    """The types of a module's parameters and results: `f32[8@x,4], i32[] -> f32[]`.

    Axes are shown if the program says which ones split a dimension; the size of an unevenly split
    dimension includes its padding.
    """
    found = _MAIN.search(text)
    if found is None:
        return ""
    return " -> ".join(map(_types, found.groups()))


def _types(text: str) -> str:
    types = [_type(*tensor.groups()) for tensor in islice(_TENSOR.finditer(text), SHOWN)]
    count = text.count("tensor<")
    more = f" and {count - SHOWN} more" if count > SHOWN else ""
    return ", ".join(types) + more if types else "()"


def _type(tensor: str, attributes: str) -> str:
    *sizes, dtype = re.findall(r"\d+(?=x)|[^\dx].*", tensor)
    split = _SPLIT.search(attributes)
    axes = re.findall(r"\{([^}]*)\}", split[1]) if split else []
    for i, held in enumerate(axes[: len(sizes)]):
        names = re.findall(r'"([^"]*)"', held)
        if names:
            sizes[i] += f"@{names[0]}" if len(names) == 1 else f"@({','.join(names)})"
    short = f"u{dtype[2:]}" if dtype.startswith("ui") else _NAMES.get(dtype, dtype)
    return f"{short}[{','.join(sizes)}]"


def program_text(module: Any) -> str:
    """The text of a program over several processes, for a line-by-line comparison."""
    ids = ", ".join([str(d.id) for d in module.devices])
    return f"// {module.name} over devices {ids}\n{module.text}"
