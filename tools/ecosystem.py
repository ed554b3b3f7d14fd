"""Runs tests/ecosystem and tests/saving in a separate environment:
`python tools/ecosystem.py [--newest] [ARGS]`.

The environment is .venv-ecosystem, with the versions of the extras `ecosystem` and `friends` in
pyproject.toml, or .venv-ecosystem-newest, with the newest releases. The versions that ran are
printed at the end. Other arguments are passed to pytest.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent


def requirements(newest: bool) -> list[str]:
    """The requirements to install, with or without versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    named = [*extras["ecosystem"], *extras["friends"]]
    return [re.split("[=<>]", r)[0] if newest else r for r in named]


def versions(python: Path, newest: bool) -> str:
    """The installed libraries and their versions, one per line."""
    names = ["jaxlib", "jax", *[re.split("[=<>]", r)[0] for r in requirements(newest)]]
    show = "import sys\nfrom importlib.metadata import version\n"
    show += "for name in sys.argv[1:]: print(name, version(name))"
    done = subprocess.run([python, "-c", show, *names], check=True, capture_output=True, text=True)
    return done.stdout


def main(arguments: list[str]) -> int:
    newest = "--newest" in arguments
    home = ROOT / (".venv-ecosystem-newest" if newest else ".venv-ecosystem")
    if not home.exists():
        venv.create(home, with_pip=True)
    python = home / "bin/python"
    install = [python, "-m", "pip", "install", "-q", *["--upgrade"] * newest]
    subprocess.run([*install, "-e", f"{ROOT}[dev]", *requirements(newest)], check=True)
    test = [python, "-m", "pytest", "tests/ecosystem", "tests/saving", "-n", "0", "-s"]
    test += [a for a in arguments if a != "--newest"]
    result = subprocess.run(test, cwd=ROOT, check=False).returncode
    print(versions(python, newest), end="")
    return result


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
