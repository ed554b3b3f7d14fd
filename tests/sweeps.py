"""Which sweeps cover which packages of the library.

`python -m tools.sweep changed` runs the sweeps for the files that the last commits changed. A
package is covered by its own tests and by tests of its users over every op, function or sharding.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = "shardwise/_src/"

OPS = "ops values"  # every op, and random programs
FUNCTIONS = "numpy scipy lax linalg signal special"
PLACES = "uneven transfers values"
PROCESSES = "processes distributed"

# Package in shardwise/_src/ → folders and files in tests/.
PACKAGES = {
    "arguments": f"arguments jit transforms {OPS}",
    "arrays": f"arrays numpy {PLACES}",
    "autodiff": f"autodiff transforms {OPS}",
    "base": "base core jit",
    "cli": "cli docs/test_command_line.py",
    "compat": "compat ecosystem",
    "compiling": "compiling running lowering",
    "control": f"control transforms {OPS}",
    "coordination": PROCESSES,
    "core": f"core transforms control {OPS}",
    "custom": "custom transforms extend",
    "debug": "debug effects",
    "distributed": PROCESSES,
    "distributed_linalg": "distributed_linalg linalg",
    "effects": "effects control",
    "explain": "explain",
    "export": "export",
    "extend": "extend",
    "ffi": "ffi extend",
    "image": "image",
    "jit": f"jit transforms {OPS}",
    "launch": PROCESSES,
    "kernels": "kernels",
    "lax": "lax control docs/test_collectives_table.py",
    "linalg": "linalg",
    "lowering": f"lowering {OPS} {PLACES}",
    "maps": "maps control docs/test_collectives_table.py",
    "messages": "messages arrays/test_deleted.py",
    "models": "models examples",
    "named": "named",
    "nn": "nn models examples",
    "numpy": f"{FUNCTIONS} messages values",
    "ops": f"{OPS} {FUNCTIONS}",
    "partitioning": "partitioning extend",
    "placement": f"placement {PLACES}",
    "planner": "planner explain",
    "random": "random",
    "refs": "refs",
    "running": "running arrays jit/test_devices.py jit/test_values.py",
    "runtime": f"runtime transfers {PROCESSES}",
    "saving": "saving",
    "scipy": "scipy",
    "signal": "signal",
    "sparse": "sparse",
    "special": "special",
    "targets": "targets explain",
    "testing": "testing processes",
    "transfers": f"transfers arrays planner/test_transfer_plan.py {PROCESSES}",
    "transforms": f"transforms control {OPS}",
    "tree": "tree",
    "types": f"types uneven core {OPS}",
    "values": f"{FUNCTIONS} messages values",
    "visualize": "visualize debug/test_visualize_sharding.py",
}


def covered_by(files: Iterable[str]) -> list[str]:
    """The tests, as pytest arguments, whose sweeps cover these files of the project."""
    found: set[str] = set()
    for file in files:
        if file.startswith(SOURCE):
            package = file.removeprefix(SOURCE).partition("/")[0]
            found |= {f"tests/{test}" for test in PACKAGES.get(package, "").split()}
        elif file.startswith(("tests/helpers/", "tests/conftest", "tests/sweeps")):
            continue  # all tests use these: the everyday run shows whether they work
        elif file.startswith("tests/") and (ROOT / file).exists() and file.endswith(".py"):
            parts = file.split("/")
            found.add("/".join(parts[:2]))
        elif file.startswith("examples/"):
            found.add("tests/examples")
        elif file.startswith("docs/"):
            found.add("tests/docs")
        elif file.startswith("benchmarks/"):
            found.add("tests/test_benchmarks.py")
    return sorted(test for test in found if not any(_within(test, other) for other in found))


def _within(test: str, other: str) -> bool:
    return test.startswith(other + "/")
