"""`print_environment_info`: versions, devices and processes."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw


def test_environment(capsys: pytest.CaptureFixture[str]):
    text = sw.print_environment_info(return_string=True)
    rows = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    assert rows["shardwise"].strip() == sw.__version__ == sw.version.__version__
    assert rows["numpy"].strip() == np.__version__
    assert rows["device info"].strip() == "cpu-8, 8 local devices"
    assert rows["process_count"].strip() == "1"
    assert ".".join(map(str, sw.version.__version_info__)) == sw.__version__
    sw.print_environment_info()
    assert capsys.readouterr().out == text + "\n"
