"""Runs tests/ecosystem in an environment of its own: `python tools/ecosystem.py [--newest] [ARGS]`.

It is made in .venv-ecosystem, with the versions of the extra `ecosystem` in pyproject.toml, or with
the newest releases. Other arguments are pytest's.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
HOME = ROOT / ".venv-ecosystem"


def requirements(newest: bool) -> list[str]:
    """What to install, with its versions or without."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["optional-dependencies"]["ecosystem"]
    return [re.split("[=<>]", r)[0] if newest else r for r in named]


def main(arguments: list[str]) -> int:
    newest = "--newest" in arguments
    if not HOME.exists():
        venv.create(HOME, with_pip=True)
    python = HOME / "bin/python"
    install = [python, "-m", "pip", "install", "-q", *["--upgrade"] * newest]
    subprocess.run([*install, "-e", f"{ROOT}[dev]", *requirements(newest)], check=True)
    test = [python, "-m", "pytest", "tests/ecosystem", "-n", "0", "-s"]
    return subprocess.run([*test, *[a for a in arguments if a != "--newest"]], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
