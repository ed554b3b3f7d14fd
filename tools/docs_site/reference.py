"""The reference: a page for each public module, with every name in its `dir`.

Pages are generated from the objects: signatures, docstrings, bases, members. An object with several
names has its full entry at the first of them, and links to it at the others.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pkgutil
import re
import types
from typing import Any

import shardwise
from shardwise._src.core.op import Op
from tools.docs_site.docstrings import inline, to_rst

ADDRESS = re.compile(r"<.* at 0x[0-9a-f]+>|<[^<>]*>")
HOMES = re.compile(r"\b(?:shardwise|typing|collections\.abc|jaxlib|numpy)(?:\.\w+)*\.")
OWN = ("shardwise", "builtins", "functools", "numpy")  # modules of functions and callables
LONGEST = 300  # characters of a constant's value


def modules() -> list[types.ModuleType]:
    """All public modules, parents before children."""
    found = [shardwise]
    for module in found:
        for info in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{module.__name__}."):
            if not info.name.rpartition(".")[2].startswith("_"):
                found.append(importlib.import_module(info.name))
    return sorted(found, key=lambda m: m.__name__)


def names(module: types.ModuleType) -> list[str]:
    """The names in the `dir` of a module, except modules."""
    public = [n for n in dir(module) if not n.startswith("_")]
    return [n for n in public if not inspect.ismodule(getattr(module, n))]


def annotation(value: Any) -> str:
    text = value if isinstance(value, str) else inspect.formatannotation(value)
    return HOMES.sub("", text)


def signature(obj: Any) -> str:
    """The signature as in `def`; empty if the parameters are unknown."""
    try:
        found = inspect.signature(obj)
    except (ValueError, TypeError):
        return ""
    empty = inspect.Parameter.empty
    parameters = [
        p.replace(
            annotation=empty if p.annotation is empty else _Plain(annotation(p.annotation)),
            default=p.default if p.default is empty else _Plain(_shown(p.default)),
        )
        for p in found.parameters.values()
    ]
    gives = found.empty if inspect.isclass(obj) else found.return_annotation
    gives = _Plain(annotation(gives)) if gives is not found.empty else gives
    return str(found.replace(parameters=parameters, return_annotation=gives))


class _Plain:
    """Text that a signature prints without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(value: Any) -> str:
    if inspect.isclass(value) or inspect.isfunction(value):
        return value.__name__
    return "..." if ADDRESS.search(repr(value)) else repr(value)


def text_of(obj: Any) -> list[str]:
    """The docstring; of objects of other libraries, its first paragraph only."""
    text = inspect.getdoc(obj) or ""
    home = getattr(obj, "__module__", None) or type(obj).__module__
    if not home.startswith("shardwise"):
        return [inline(" ".join(text.split("\n\n")[0].split())), ""] if text else []
    return to_rst(text)


def kind_of(obj: Any) -> str:
    if inspect.isclass(obj):
        return "exception" if issubclass(obj, BaseException) else "class"
    is_type = isinstance(obj, (types.GenericAlias, types.UnionType))
    foreign = not type(obj).__module__.startswith(OWN)
    if isinstance(obj, Op) or is_type or foreign or not callable(obj):
        return "data"
    return "function"


def _described(obj: Any) -> list[str]:
    """The text below a name."""
    if isinstance(obj, Op):
        return [f"The primitive operation ``{obj.name}``.", ""]
    own = getattr(obj, "__dict__", {}).get("__doc__") if not inspect.isroutine(obj) else None
    if kind_of(obj) != "data" or own or type(obj).__module__.startswith("shardwise"):
        return text_of(obj)
    shown = repr(obj)
    if ADDRESS.search(shown) or len(shown) > LONGEST:
        return [inline(f"A `{type(obj).__name__}`."), ""]
    return [inline(f"`{annotation(shown)}`"), ""]


def members(cls: type) -> list[str]:
    """The public members that a class defines, or inherits from a class of this library."""
    if issubclass(cls, enum.Enum):
        return [name for name in cls.__members__]
    homes = [c for c in cls.__mro__ if c.__module__.startswith("shardwise")]
    found = {name for c in homes for name in vars(c) if not name.startswith("_")}
    return sorted(n for n in found if _is_told(inspect.getattr_static(cls, n)))


def _is_told(member: Any) -> bool:
    kinds = (property, staticmethod, classmethod, types.FunctionType)
    return isinstance(member, kinds) or (hasattr(member, "__get__") and callable(member))


def _member(cls: type, name: str) -> list[str]:
    raw = inspect.getattr_static(cls, name)
    if isinstance(raw, property):
        gives = getattr(raw.fget, "__annotations__", {}).get("return")
        head = [f".. py:property:: {name}"]
        head += [f"   :type: {annotation(gives)}"] if gives else []
        return [*head, "", *_shifted(to_rst(inspect.getdoc(raw) or "")), ""]
    if issubclass(cls, enum.Enum):
        return [f".. py:attribute:: {name}", "", ""]
    fixed = isinstance(raw, (staticmethod, classmethod))
    called = signature(getattr(cls, name))
    if not fixed:
        called = re.sub(r"^\(self(?:, /)?(?:, )?", "(", called)
    head = [f".. py:method:: {name}{called}"]
    head += [f"   :{type(raw).__name__}:"] if fixed else []
    text = to_rst(inspect.getdoc(getattr(cls, name)) or "")
    if not text and hasattr(shardwise.numpy, name):
        text = [f"As :py:obj:`shardwise.numpy.{name}`.", ""]
    return [*head, "", *_shifted(text), ""]


def _shifted(lines: list[str]) -> list[str]:
    return ["   " + line if line.strip() else "" for line in lines]


class Reference:
    """The pages, and the location of each object's full entry."""

    def __init__(self) -> None:
        self.modules = modules()
        self.homes: dict[int, str] = {}
        self.kept: list[Any] = []  # so that no id is reused
        for module in sorted(self.modules, key=lambda m: m.__name__.count(".")):
            for name in names(module):
                obj = getattr(module, name)
                self.homes.setdefault(id(obj), f"{module.__name__}.{name}")
                self.kept.append(obj)

    def entry(self, module: types.ModuleType, name: str) -> list[str]:
        """A name of a module: its directive with the contents."""
        obj, qualified = getattr(module, name), f"{module.__name__}.{name}"
        kind = kind_of(obj)
        told = kind in ("function", "class") and not isinstance(obj, enum.EnumMeta)
        called = signature(obj) if told else ""
        head = [f".. py:{kind}:: {name}{called}"]
        home = self.homes[id(obj)]
        if home != qualified and not isinstance(obj, (int, float, str, type(None))):
            also = [f"The same as :py:obj:`{home}`.", ""]
            first = _described(obj)[:2] if kind != "class" else []
            return [*head, "", *_shifted([*first, *also]), ""]
        inner = _described(obj)
        if inspect.isclass(obj) and obj.__module__.startswith("shardwise"):
            for member in members(obj):
                inner += _member(obj, member)
        return [*head, "", *_shifted(inner), ""]

    def page(self, module: types.ModuleType) -> str:
        name = module.__name__
        deep = [":orphan:", ""] if name.count(".") > 1 else []  # its parent lists it
        lines = [*deep, name, "=" * len(name), "", f".. py:module:: {name}", ""]
        lines += to_rst(module.__doc__ or "")  # `getdoc` would remove the indentation of code
        lines += [f".. py:currentmodule:: {name}", ""]
        children = [m.__name__ for m in self.modules if m.__name__.rpartition(".")[0] == name]
        if children and module is not shardwise:
            lines += ["Modules:", "", *[f"- :doc:`{c}`" for c in children], ""]
        for one in names(module):
            lines += self.entry(module, one)
        return "\n".join(lines) + "\n"

    def index(self) -> str:
        """All modules, with their purposes."""
        lines = ["Reference", "=========", ""]
        lines += ["Every public name, from the docstrings. The module is the page.", ""]
        lines += [".. list-table::", "   :widths: auto", ""]
        for module in self.modules:
            first = " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())
            lines += [f"   * - :doc:`{module.__name__}`", f"     - {inline(first)}"]
        shown = [m.__name__ for m in self.modules if m.__name__.count(".") < 2]
        rows = [f"   {name.removeprefix('shardwise.')} <{name}>" for name in shown]
        lines += ["", ".. toctree::", "   :hidden:", "", *rows, ""]
        return "\n".join(lines)

    def pages(self) -> dict[str, str]:
        """The texts of all pages, by file name."""
        texts = {f"{module.__name__}.rst": self.page(module) for module in self.modules}
        return {"index.rst": self.index()} | texts
