"""The workflow of a forge runs the commands of the Makefile, on all supported Pythons."""

import os
import re

import pytest

from tools.test_matrix import MATRIX, ROOT

yaml = pytest.importorskip("yaml")
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def steps(job: str) -> list[dict]:
    return WORKFLOW["jobs"][job]["steps"]


def commands(job: str) -> list[str]:
    return [step["run"] for step in steps(job) if "run" in step]


def test_the_commands_are_those_of_every_machine():
    assert commands("everyday") == [".ci/run"] and os.access(ROOT / ".ci/run", os.X_OK)
    assert commands("smoke") == ["make test-matrix"]
    script = (ROOT / ".ci/run").read_text()
    called = {*re.findall(r"^make ([a-z-]+)", script, re.MULTILINE), "test-matrix"}
    assert {"test", "lint"} <= called <= TARGETS


def test_the_pythons_are_the_supported_ones():
    pythons = WORKFLOW["jobs"]["smoke"]["strategy"]["matrix"]["python"]
    assert pythons == [pair.python for pair in MATRIX]


@pytest.mark.parametrize("job", ["everyday", "smoke"])
def test_jobs_run_on_ubuntu_with_a_cache_and_an_end(job):
    assert WORKFLOW["jobs"][job]["runs-on"].startswith("ubuntu-")
    assert WORKFLOW["jobs"][job]["timeout-minutes"] <= 90
    (python,) = [s["with"] for s in steps(job) if "setup-python" in s.get("uses", "")]
    assert (python["cache"], python["cache-dependency-path"]) == ("pip", "pyproject.toml")
