"""Writes docs/options.md: all options, and all environment variables that the library reads.

    python tools/options_page.py

Options are those that `base.config` defines, with their help texts. Variables that are not options
are listed below, and a test checks that the list is complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shardwise._src.base import config as made
from shardwise._src.base import context

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "options.md"

TEXT = """\
# Options and environment variables

This page is written by `tools/options_page.py`; change `shardwise/_src/base/config.py` instead.

An option is set for the whole process, or inside a `with` block of one thread:

```python
import shardwise as sw

sw.config.update("enable_x64", True)     # everywhere
print(sw.config.enable_x64)
sw.config.update("enable_x64", False)

with sw.enable_x64(True):                # here
    print(sw.numpy.arange(2.0).dtype)
```

```text
True
float64
```

Before the program starts, an option is read from the environment: `SHARDWISE_ENABLE_X64=1`, or
`JAX_ENABLE_X64=1` if that is not set. Switches take 1, true, t, yes, y and on, or 0, false, f,
no, n, off and the empty string. Names with the prefix `jax_`, as in `jax_enable_x64`, are accepted
too. With absl, `config.config_with_absl()` defines `--shardwise_enable_x64` and similar flags.

An option marked *traced* is part of the cache key of a trace: functions are traced again if its
value changes. The others are read when they are used.

"""

VARIABLES = {
    "XLA_FLAGS": "Options of XLA, read once, when the first device is requested. "
    "`--xla_force_host_platform_device_count=8` makes eight CPU devices if the option "
    "`num_cpu_devices` is not set; with `--xla_dump_to=FOLDER`, every program is compiled, even "
    "one cached on disk.",
    "CXX": "The compiler of `ffi.build_and_load`, if none is passed.",
    "CUDA_VISIBLE_DEVICES": "Which GPUs are visible; with an empty value, none.",
    "TPU_LIBRARY_PATH": "The library of libtpu, instead of the one of its package.",
    "XDG_CACHE_HOME": "The folder of the user's caches, if `compilation_cache_dir` is not set.",
    "XDG_RUNTIME_DIR": "The folder in which `shardwise launch` registers itself for `shardwise "
    "top`, if set; else a folder of the user among the temporary files.",
    "MPITRAMPOLINE_LIB": "The library through which XLA calls MPI if the "
    "option `cpu_collectives_implementation` is mpi.",
    "SHARDWISE_INITIALIZATION_TIMEOUT": "Seconds that a process which `shardwise launch` started "
    "waits for the others.",
    "SHARDWISE_COORDINATOR_STARTED": "Set by `shardwise launch`: 1, as the launcher has started "
    "the coordinator.",
    "SHARDWISE_BOARD": "Set by `shardwise launch`: the file in which a process reports its "
    "status to `shardwise top`.",
    "AWS_ACCESS_KEY_ID": "With `AWS_SECRET_ACCESS_KEY`, the credentials for checkpoints "
    "on S3; otherwise TensorStore looks for credentials.",
    "AWS_SECRET_ACCESS_KEY": "See `AWS_ACCESS_KEY_ID`.",
    "AWS_ENDPOINT_URL": "The address of an S3-compatible store other than Amazon's.",
    "AWS_ENDPOINT_URL_S3": "The same; takes precedence over `AWS_ENDPOINT_URL`.",
    "AWS_REGION": "The region of such a store; us-east-1 if not set.",
    "AWS_DEFAULT_REGION": "The same; `AWS_REGION` takes precedence.",
    "TERM": "The kind of terminal; on one that is `dumb`, no progress is shown.",
    "TF_CPP_MIN_LOG_LEVEL": "What XLA logs; 1 (warnings and errors) if not set.",
}


def options() -> Iterator[str]:
    """A row for each option: name, default, values, whether it is traced, what it does."""
    yield "| option | default | values | | |"
    yield "|---|---|---|---|---|"
    for name, flag in made.FLAGS.items():
        traced = "traced" if name in context.TRACE_FLAGS else ""
        default = _code(flag.default)
        yield f"| `{name}` | {default} | {_values(flag)} | {traced} | {flag.__doc__} |"


def _values(flag: made.Flag[Any]) -> str:
    if flag.choices:
        return ", ".join(_code(c) for c in flag.choices)
    if isinstance(flag.default, bool):
        return "`True`, `False`"
    kinds = {int: "an int", float: "a number", str: "a string"}
    kind = kinds.get(flag.parse, "a device, a platform's name") if flag.parse else "a device"
    return f"{kind}, `None`" if flag.default is None else kind


def _code(value: Any) -> str:
    return f"`{value!r}`"


def historic() -> Iterator[str]:
    """A row for each legacy option."""
    yield "| option | value | why |"
    yield "|---|---|---|"
    for name, (value, why) in made.HISTORIC.items():
        yield f"| `{name}` | {_code(value)} | {why} |"


def variables() -> Iterator[str]:
    """A row for each environment variable that is not an option."""
    yield "| variable | |"
    yield "|---|---|"
    for name, what in VARIABLES.items():
        yield f"| `{name}` | {what} |"


def read_in_source() -> set[str]:
    """The environment variables that the library's source names."""
    found: set[str] = set()
    for path in (ROOT / "shardwise").rglob("*.py"):
        text = path.read_text()
        found.update(re.findall(r"environ(?:\.\w+\(|\[)\"(\w+)\"", text))
        found.update(re.findall(r"getenv\(\"(\w+)\"", text))
    return found


def page() -> str:
    """The full page."""
    parts = [
        TEXT + "## Options\n\n" + "\n".join(options()),
        "## Environment variables that are not options\n\n" + "\n".join(variables()),
        "## Legacy options\n\nThese can be set, but have no effect except a line in "
        "the log.\n\n" + "\n".join(historic()),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    PAGE.write_text(page())
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
