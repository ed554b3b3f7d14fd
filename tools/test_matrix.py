"""Runs the smoke tests on every supported pair of Python and jaxlib.

    python tools/test_matrix.py                  # tests/smoke and the seam test
    python tools/test_matrix.py tests/types -x   # any other pytest arguments
    python tools/test_matrix.py --compilers      # tests/targets, with compilers for GPUs, TPUs
    python tools/test_matrix.py --compilers=3.11 # the same for one Python

Each pair has its own environment, `.venv-3.12-jaxlib0.11`, which is created on first use and
updated when the dependencies in `pyproject.toml` change. A missing interpreter is reported as
skipped; it is a failure if all are skipped. jax is not installed: the library must work without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_TESTS = ["tests/smoke", "tests/runtime/test_seam.py"]
COMPILER_TESTS = [
    "tests/targets",
    "tests/cli/test_compile.py",
    "tests/explain/test_hlo_counts.py",
    "tests/lowering/test_narrow_dtypes.py",
    "tests/nn/test_cudnn_attention.py",
]


@dataclass(frozen=True)
class Pair:
    """One supported combination.

    jaxlib: "0.11", names the environment. exact, libtpu: a jaxlib release with compilers, and the
    libtpu release that goes with it. compilers: whether the compilers are installed too.
    """

    python: str  # "3.12"
    jaxlib: str
    requirement: str
    exact: str
    libtpu: str
    compilers: bool = False

    def __str__(self) -> str:
        return f"Python {self.python} with jaxlib {self.jaxlib}"

    @property
    def environment(self) -> Path:
        return ROOT / f".venv-{self.python}-jaxlib{self.jaxlib}{'-compilers' * self.compilers}"

    @property
    def packages(self) -> list[str]:
        """What is installed next to the library."""
        if not self.compilers:
            return [self.requirement, "pytest>=9", "pytest-timeout"]
        cuda = [f"{name}=={self.exact}" for name in ("jax-cuda13-plugin", "jax-cuda13-pjrt")]
        nvidia = ["nvidia-cuda-nvcc", "nvidia-nvvm"]
        tests = ["pytest>=9", "pytest-timeout", "pytest-xdist", "hypothesis", "scipy"]
        return [f"jaxlib=={self.exact}", f"libtpu=={self.libtpu}.*", *cuda, *nvidia, *tests]


MATRIX = (
    Pair("3.11", "0.10", "jaxlib==0.10.2", "0.10.2", "0.0.42"),
    Pair("3.12", "0.11", "jaxlib>=0.11,<0.12", "0.11.2", "0.0.48"),
    Pair("3.13", "0.12", "jaxlib>=0.12,<0.13", "0.12.0.1", "0.0.50"),
)


def candidates(python: str) -> Iterator[str]:
    """Possible locations of an interpreter; a pyenv shim on PATH may not work."""
    yield sys.executable
    for name in (f"python{python}", "python3"):
        for folder in os.get_exec_path():
            if path := shutil.which(name, path=folder):
                yield path
    root = os.environ.get("PYENV_ROOT")
    if root is None and (pyenv := shutil.which("pyenv")):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True).stdout.strip()
    if root:
        yield from (str(p) for p in sorted(Path(root, "versions").glob(f"{python}.*/bin/python3")))


def find_python(python: str) -> str | None:
    """The first candidate that runs, has this version, and can create environments."""
    probe = "import ensurepip, venv, sys; print('%d.%d' % sys.version_info[:2])"
    for path in dict.fromkeys(candidates(python)):
        done = subprocess.run([path, "-c", probe], capture_output=True, text=True)
        if done.returncode == 0 and done.stdout.strip() == python:
            return path
    return None


def fingerprint(pair: Pair) -> str:
    """Changes when the packages that `prepare` installs change."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    inputs = json.dumps([settings["build-system"], settings["project"], pair.packages])
    return hashlib.sha256(inputs.encode()).hexdigest()


def prepare(pair: Pair, interpreter: str) -> None:
    """Creates the environment unless it exists and is up to date."""
    stamp = pair.environment / ".installed"
    wanted = fingerprint(pair)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not stamp.exists():
        subprocess.run([interpreter, "-m", "venv", "--clear", str(pair.environment)], check=True)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    packages = ["--editable", str(ROOT), *pair.packages]
    subprocess.run([str(pair.environment / "bin/python"), *install, *packages], check=True)
    stamp.write_text(wanted)


def run(pair: Pair, pytest_arguments: list[str]) -> str:
    """Runs the tests for one pair; returns a line with the outcome."""
    interpreter = find_python(pair.python)
    if interpreter is None:
        return f"SKIPPED: no Python {pair.python} on PATH or under pyenv"
    print(f"\n=== {pair}", flush=True)
    try:
        prepare(pair, interpreter)
    except subprocess.CalledProcessError as error:
        return f"FAILED: could not make {pair.environment.name}: {error}"
    python = str(pair.environment / "bin/python")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *pytest_arguments]
    code = subprocess.run(command, cwd=ROOT).returncode
    return "passed" if code == 0 else f"FAILED: pytest exited with {code}"


def main() -> int:
    given = sys.argv[1:]
    pairs, tests = list(MATRIX), DEFAULT_TESTS
    if given and given[0].startswith("--compilers"):
        only = given.pop(0).partition("=")[2]
        pairs = [replace(pair, compilers=True) for pair in MATRIX if only in ("", pair.python)]
        tests = COMPILER_TESTS
    outcomes = {pair: run(pair, given or tests) for pair in pairs}
    print()
    for pair, outcome in outcomes.items():
        print(f"{pair}: {outcome}")
    if all(outcome.startswith("SKIPPED") for outcome in outcomes.values()):
        print("FAILED: no supported Python was found, so nothing was tested")
        return 1
    return int(any(outcome.startswith("FAILED") for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
