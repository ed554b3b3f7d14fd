"""`shardwise completion SHELL`: a shell script that completes commands, options and values.

It is generated from the commands' own parsers, and runs no program when Tab is pressed:

    eval "$(shardwise completion bash)"       in ~/.bashrc
    eval "$(shardwise completion zsh)"        in ~/.zshrc, after compinit
    shardwise completion fish > ~/.config/fish/completions/shardwise.fish
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from shardwise._src.cli import COMMANDS
from shardwise._src.cli.arguments import command_parser, data_file
from shardwise._src.cli.explain_error import about

PATHS = {"DIR", "FILE", "PATH", "CHECKPOINT", "script.py", "FILE.py:FUNCTION"}  # metavars of paths


def parser() -> argparse.ArgumentParser:
    parser = command_parser("completion")
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell to print it for")
    return parser


def run(arguments: Sequence[str]) -> int:
    """Prints the script; returns the exit status."""
    shell = parser().parse_args(list(arguments)).shell
    commands = [words_of(c.name, c.about, c.module.parser()) for c in COMMANDS.values()]
    print(SHELLS[shell](commands), end="")
    return 0


class Option(NamedTuple):
    """An option of a command. value: "" if it takes none, else "path", "words" or "any"."""

    names: tuple[str, ...]
    help: str
    value: str
    words: tuple[str, ...]


class Words(NamedTuple):
    """The possible arguments of a command. rest: whether its positional arguments are a program
    with its arguments."""

    name: str
    about: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    paths: bool
    rest: bool


def words_of(name: str, about_it: str, parser: argparse.ArgumentParser) -> Words:
    """The arguments that a parser accepts."""
    options: list[Option] = []
    words: tuple[str, ...] = ()
    paths = rest = False
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]  there is no other list
        value, choices = _value(action)
        if action.option_strings:
            text = (action.help or "").replace("%(default)s", str(action.default))
            options.append(Option(tuple(action.option_strings), text, value, choices))
        else:
            words += tuple(about()) if name == "explain-error" else choices
            paths |= value == "path"
            rest |= action.nargs == argparse.REMAINDER
    return Words(name, about_it, tuple(options), words, paths, rest)


def _filled(name: str, **parts: str) -> str:
    """A script of this package, with `@key@` replaced by each part."""
    text = data_file(name)
    for key, part in parts.items():
        text = text.replace(f"@{key}@", part)
    return text


def _value(action: argparse.Action) -> tuple[str, tuple[str, ...]]:
    if action.nargs == 0:
        return "", ()
    if action.choices is not None:
        return "words", tuple(map(str, action.choices))
    return ("path" if action.type is Path or action.metavar in PATHS else "any"), ()


# -------------------------------------------------------------------------------------- bash


def bash(commands: Sequence[Words]) -> str:
    """The script for bash."""
    values, rows = [], []
    taking = [(c.name, o) for c in commands for o in c.options if o.value]
    for name, option in taking:
        found = f'mapfile -t COMPREPLY < <(compgen -W {_words(option.words)} -- "$current")'
        if option.value == "path":
            found = 'mapfile -t COMPREPLY < <(compgen -f -- "$current")'
        values.append(
            f"            {_cases(name, option)}) "
            f"{'' if option.value == 'any' else found + '; '}return;;"
        )
    for command in commands:
        options = [n for o in command.options for n in o.names if n.startswith("--")]
        plain = f'compgen -W {_words(command.words)} -- "$current"'
        plain += '; compgen -f -- "$current"' if command.paths else ""
        rows.append(
            f"        {command.name}) if [[ $current == -* ]]; then\n"
            f'            mapfile -t COMPREPLY < <(compgen -W {_words(options)} -- "$current")\n'
            f"        else\n            mapfile -t COMPREPLY < <({plain})\n        fi;;"
        )
    return _filled(
        "completion.bash",
        commands=_words([c.name for c in commands]),
        values="\n".join(values),
        with_value="|\\\n            ".join([_cases(n, o) for n, o in taking]),
        programs="|".join([c.name for c in commands if c.rest]),
        rows="\n".join(rows),
    )


def _cases(command: str, option: Option) -> str:
    return "|".join([f'"{command} {name}"' for name in option.names])


def _words(words: Sequence[str]) -> str:
    return shlex.quote(" ".join(words))


# --------------------------------------------------------------------------------------- zsh


def zsh(commands: Sequence[Words]) -> str:
    """The script for zsh."""
    rows = []
    for command in commands:
        specs = [_zsh_option(name, o) for o in command.options for name in o.names]
        if command.words:
            specs.append(f"1:name:({' '.join(command.words)})")
        if command.paths:
            specs.append("*::file:_files" if command.rest else "*:file:_files")
        shown = " \\\n            ".join(map(shlex.quote, specs))
        rows.append(f"        {command.name}) _arguments \\\n            {shown};;")
    names = " ".join([shlex.quote(f"{c.name}:{c.about}") for c in commands])
    return _filled("completion.zsh", commands=names, rows="\n".join(rows))


def _zsh_option(name: str, option: Option) -> str:
    text = option.help.translate(str.maketrans({"[": "(", "]": ")", ":": r"\:"}))
    ends = {"": "", "path": ":file:_files", "any": ":value: "}
    return f"{name}[{text}]" + ends.get(option.value, f":value:({' '.join(option.words)})")


# -------------------------------------------------------------------------------------- fish


def fish(commands: Sequence[Words]) -> str:
    """The script for fish."""
    lines = ["# Completion of `shardwise` for fish", "complete -c shardwise -f"]
    for command in commands:
        lines.append(
            f"complete -c shardwise -n __fish_use_subcommand -a {command.name} "
            f"-d {shlex.quote(command.about)}"
        )
        here = f"complete -c shardwise -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{here} -a {_words(command.words)}")
        if command.paths:
            lines.append(f"{here} -F")
        lines.append(
            "complete -c shardwise -n '__fish_seen_subcommand_from help' -a "
            f"{command.name} -d {shlex.quote(command.about)}"
        )
        for option in command.options:
            long = [f"-l {n[2:]}" for n in option.names if n.startswith("--")]
            short = [f"-s {n[1:]}" for n in option.names if not n.startswith("--")]
            value = {"": "", "path": " -r -F", "any": " -x"}.get(
                option.value, f" -x -a {_words(option.words)}"
            )
            lines.append(f"{here} {' '.join(short + long)}{value} -d {shlex.quote(option.help)}")
    return "\n".join(lines) + "\n"


SHELLS = {"bash": bash, "zsh": zsh, "fish": fish}
