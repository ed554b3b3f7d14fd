"""Source locations of values in the user's program.

`user_site()` skips shardwise's own frames and returns the code object and instruction of the
caller; the line is computed only when an error or a location needs it. If it reaches a function
that replays a program equation by equation (`replays`), it returns the site of that equation: a
transformed program keeps the source lines of the original.

Inside of `named_scope`, a site has the path of names in scope as its third component. Instruction
attributes (`set_xla_metadata`) are also components of this path: marks, `\\0@key=value` with both
in hexadecimal. So are transforms, `\\0%vmap`, which enclose the name that follows:
`vmap(outer)/inner`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import local
from types import CodeType
from typing import Any, TypeVar

import numpy as np

from shardwise._src.base.flags import make_user_context
from shardwise._src.base.warn import PACKAGE

# Frames that are not the user's. A NumPy function that gets a traced value requests its concrete
# value; the line to report is the one that called NumPy.
_NOT_THE_USERS = (PACKAGE, np.__file__.removesuffix("__init__.py"))

# By file, since strings cache their hash and code objects do not. None: one of our own files, in
# which some functions replay programs.
_own: dict[str, bool | None] = {}
_replaying: set[CodeType] = set()

Site = tuple[CodeType, int] | tuple[CodeType, int, str]
F = TypeVar("F", bound=Callable[..., Any])


class _Replay(local):
    """The site of the equation that the innermost replaying function is at, by thread.

    scope: the names in scope, `outer/inner`, of the program that is being staged.
    given: a site that overrides all frames for now.
    """

    site: Site | None = None
    scope: str = ""
    given: Site | None = None


replay = _Replay()
# The marks in scope: programs that are staged separately begin with them.
marks = make_user_context("")
MARK = "\0@"
TRANSFORM = "\0%"
# Whether there have ever been names in scope; checked before looking for them.
names_used = False


def use_names() -> None:
    global names_used
    names_used = True


def scope_of(site: Site | None) -> str:
    """The names in scope where an equation was recorded."""
    return site[2] if site is not None and len(site) == 3 else ""


def place_of(site: Site | None) -> tuple[str, int, int] | None:
    """A key that is equal for sites of one instruction, and cheaper than its line."""
    if site is None:
        return None
    code = site[0]
    return code.co_filename, code.co_firstlineno, site[1]


def under(outer: str, site: Site | None) -> Site | None:
    """A site with the names `outer` in scope around it."""
    if not outer or site is None:
        return site
    inner = scope_of(site)
    if inner != outer and not inner.startswith(outer + "/"):  # else it includes them
        inner = f"{outer}/{inner}" if inner else outer
    return site[0], site[1], inner


def marked(attributes: Mapping[str, str | None]) -> str:
    """Attributes as a path of marks. A value of None removes an outer attribute."""
    return "/".join(
        [
            MARK + key.encode().hex() + ("" if value is None else "=" + value.encode().hex())
            for key, value in attributes.items()
        ]
    )


def attributes_of(path: str) -> dict[str, str]:
    """The attributes in the marks of a path; inner ones override outer ones."""
    found: dict[str, str | None] = {}
    for part in path.split("/"):
        if part.startswith(MARK):
            key, given, value = part.removeprefix(MARK).partition("=")
            held = bytes.fromhex(value).decode() if given else None
            found[bytes.fromhex(key).decode()] = held
    return {key: value for key, value in found.items() if value is not None}


def joined(*paths: str) -> str:
    return "/".join([path for path in paths if path])


def names_of(path: str) -> tuple[str, ...]:
    """The names of a path in the form in which they are shown, without its marks."""
    names, around = [], ""
    for part in path.split("/"):
        if part.startswith(TRANSFORM):
            around += part.removeprefix(TRANSFORM) + "("
        elif part and not part.startswith(MARK):
            names.append(around + part + ")" * around.count("("))
            around = ""
    if around:
        names.append(around + ")" * around.count("("))
    return tuple(names)


def shown(path: str) -> str:
    """A path with its marks, and with transforms around names: `vmap(outer)/inner`."""
    return joined(*_marks_of(path), *names_of(path)) if TRANSFORM in path else path


def has_names(path: str) -> bool:
    """Whether a path has more components than transforms."""
    return any(part and not part.startswith(TRANSFORM) for part in path.split("/"))


def with_names(path: str, names: str) -> str:
    """A path with its marks, and with its names replaced by these."""
    return joined(*_marks_of(path), names)


def _marks_of(path: str) -> list[str]:
    return [part for part in path.split("/") if part.startswith(MARK)]


class transforming:
    """A block in which names are those of a transform's equations."""

    __slots__ = ("name", "outer")

    def __init__(self, name: str):
        self.name = TRANSFORM + name

    def __enter__(self) -> None:
        self.outer = replay.scope
        replay.scope = joined(self.outer, self.name)

    def __exit__(self, *_: object) -> None:
        replay.scope = self.outer


def transposed(site: Site | None, around: str) -> tuple[Site | None, str]:
    """The site and the names in scope of an equation of forward mode in the backward pass, whose
    names are those of a transform: `transpose(jvp(name))`.

    around: the names in scope around the backward pass.
    """
    path = scope_of(site)
    inner = path.removeprefix(around + "/") if around else path
    at = inner.find(TRANSFORM + "jvp")
    if site is None or at < 0 or path == around:
        return site, around
    return site[:2], joined(around, TRANSFORM + "transpose", inner[at:])


def replays(fun: F) -> F:
    """Declares that a function replays a program, and sets `replay.site` at each equation.

    The function must always restore it at its end.
    """
    _replaying.add(fun.__code__)
    _own[fun.__code__.co_filename] = None
    return fun


def user_site(depth: int = 1) -> Site | None:
    """The site of the innermost frame outside of shardwise, or of a replayed equation."""
    frame = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage] (faster than `inspect`)
    own = _own
    while frame is not None:
        code = frame.f_code
        inside = own.get(code.co_filename, own)
        if inside is not True:
            if inside is own:
                inside = own[code.co_filename] = code.co_filename.startswith(_NOT_THE_USERS)
            if inside is False:
                site = code, frame.f_lasti
                return under(replay.scope, replay.given or site) if names_used else site
            if inside is None and code in _replaying and replay.site is not None:
                return under(replay.scope, replay.site) if names_used else replay.site
        frame = frame.f_back
    return None


def exclude(path: str) -> None:
    """Excludes frames of files whose paths begin with `path` from the user's frames."""
    global _NOT_THE_USERS
    _NOT_THE_USERS = (*_NOT_THE_USERS, path)
    for file in [file for file, inside in _own.items() if inside is False]:
        del _own[file]  # checked again


@dataclass(frozen=True, slots=True)
class NameStack:
    """Names in scope, from outermost to innermost."""

    stack: tuple[str, ...] = ()

    def extend(self, name: str) -> NameStack:
        return NameStack((*self.stack, name))

    def __add__(self, other: NameStack) -> NameStack:
        return NameStack(self.stack + other.stack)

    def __len__(self) -> int:
        return len(self.stack)

    def __str__(self) -> str:
        return "/".join(self.stack)


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """The source of an equation.

    traceback: its site, which only this library reads; None if unknown.
    """

    traceback: Site | None

    @property
    def name_stack(self) -> NameStack:
        return NameStack(names_of(scope_of(self.traceback)))

    def replace(
        self, *, traceback: Site | None = None, name_stack: NameStack | None = None
    ) -> SourceInfo:
        """A copy with the given fields replaced."""
        site = traceback or self.traceback
        names = self.name_stack if name_stack is None else name_stack
        if site is None:
            return SourceInfo(None)
        path = with_names(scope_of(site), str(names))
        return SourceInfo((site[0], site[1], path) if path else site[:2])


def is_own(file: str) -> bool:
    """Whether a file is one of shardwise's own."""
    return file.startswith(PACKAGE)


def line_of(site: Site | None) -> tuple[str, int, str]:
    """(file, line, function) of a site; ('<unknown>', 0, '') if None."""
    if site is None:
        return "<unknown>", 0, ""
    code, instruction, *_ = site
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            line = number
            break
    return code.co_filename, line, code.co_name


_CALLED_AT = "The op was called at "


def note_line(error: BaseException, site: Site | None) -> None:
    """Adds the user's line to an error about an op, if it is known and not there already."""
    notes = getattr(error, "__notes__", ())
    if site is not None and not any(note.startswith(_CALLED_AT) for note in notes):
        error.add_note(_CALLED_AT + describe(site))


def describe(site: Site | None) -> str:
    """`file.py:12 (name)`."""
    file, line, function = line_of(site)
    return f"{file}:{line} ({function})" if function else f"{file}:{line}"
