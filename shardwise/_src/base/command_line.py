"""Command-line flags of programs that use absl: `--shardwise_NAME`, else `--jax_NAME`.

Flags `jax_NAME` that another library has defined already are read and left unchanged. absl is
imported when a program requests these flags, and must then be installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

PREFIXES = ("shardwise_", "jax_")
Update = Callable[[str, Any], None]


def define(settings: Mapping[str, Any], update: Update) -> None:
    """Defines an absl flag for each setting; `update` is called with parsed values at absl's start.

    settings: name → `Flag`.
    """
    app, flags = _absl()
    for name, setting in settings.items():
        for prefix in PREFIXES:
            if prefix + name in flags.FLAGS:
                continue
            if isinstance(setting.default, bool):  # also --noNAME
                flags.DEFINE_bool(prefix + name, setting.value, setting.__doc__)
            else:  # `update` parses it
                held = None if setting.value is None else str(setting.value)
                flags.DEFINE_string(prefix + name, held, setting.__doc__)
    app.call_after_init(lambda: _apply(settings, update))


def parse(settings: Mapping[str, Any], update: Update) -> None:
    """Defines the flags, and reads them from the command line now; others are left for absl."""
    define(settings, update)
    _absl()[1].FLAGS(sys.argv, known_only=True)
    _apply(settings, update)


def _apply(settings: Mapping[str, Any], update: Update) -> None:
    flags = _absl()[1].FLAGS
    for name in settings:
        for prefix in PREFIXES:
            if prefix + name in flags and not flags[prefix + name].using_default_value:
                update(name, flags[prefix + name].value)
                break


def _absl() -> tuple[Any, Any]:
    try:
        return import_module("absl.app"), import_module("absl.flags")
    except ImportError as error:
        raise ImportError(
            "command-line flags need absl, which is not installed: `pip install absl-py`. "
            "Without it, use `shardwise.config.update` or environment variables."
        ) from error
