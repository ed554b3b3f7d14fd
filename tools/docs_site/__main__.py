"""The documentation as a site: `python -m tools.docs_site [--check] [ARGS]`.

Sphinx builds it in build/docs, in a separate environment, .venv-docs, with the versions of the
extra `docs` in pyproject.toml. `--check` then runs tests/docs/test_site.py on the built site; other
arguments are passed to pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".venv-docs"
SOURCES = ROOT / "build" / "docs-source"
TREES = ROOT / "build" / "docs-trees"  # Sphinx's parsed documents
SITE = ROOT / "build" / "docs"


def install() -> Path:
    """The environment's Python; the environment is updated if pyproject.toml is newer."""
    python, stamp = HOME / "bin/python", HOME / ".installed"
    project = ROOT / "pyproject.toml"
    if stamp.exists() and stamp.stat().st_mtime >= project.stat().st_mtime:
        return python
    venv.create(HOME, with_pip=True)
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, "--editable", f"{ROOT}[docs]"], check=True)
    stamp.touch()
    return python


def build(python: Path) -> int:
    """Writes the pages that Sphinx reads, and runs it. Warnings are errors."""
    settings = [*Path(__file__).parent.glob("*.py"), ROOT / "pyproject.toml"]
    newest = max([path.stat().st_mtime for path in settings])
    if not (SITE / "index.html").exists() or (SITE / "index.html").stat().st_mtime < newest:
        for folder in (SITE, TREES):
            shutil.rmtree(folder, ignore_errors=True)
    write = [python, "-m", "tools.docs_site.sources", SOURCES]
    subprocess.run(write, cwd=ROOT, check=True, env=os.environ | {"JAX_PLATFORMS": "cpu"})
    sphinx = [python, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto", "-b", "html"]
    places = ["-c", ROOT / "tools" / "docs_site", "-d", TREES]
    return subprocess.run([*sphinx, *places, SOURCES, SITE], cwd=ROOT).returncode


def main(arguments: list[str]) -> int:
    failed = build(install())
    if failed:
        return failed
    print(f"The site is in {SITE.relative_to(ROOT)}: open index.html there.")
    if "--check" not in arguments:
        return 0
    test = [sys.executable, "-m", "pytest", "tests/docs/test_site.py", "-n", "0"]
    others = [a for a in arguments if a != "--check"]
    env = os.environ | {"DOCS_SITE": str(SITE)}
    return subprocess.run([*test, *others], cwd=ROOT, env=env).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
