"""The text of some kernels for GPUs, against the files in tests/kernels/golden_triton.

Regenerate texts that changed on purpose with

    SHARDWISE_UPDATE_GOLDENS=1 pytest tests/kernels/test_triton_golden.py

and review the diff of the files.
"""

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.triton_numpy import kernel_text
from tests.kernels.kernels import CASES
from tests.kernels.test_triton_values import flash, product
from tests.test_goldens import UPDATE, difference

FOLDER = Path(__file__).parent / "golden_triton"


def ones(*shape):
    return np.ones(shape, np.float32)


TEXTS = {
    "softmax": (CASES["softmax"].launch, CASES["softmax"].args),
    "matmul": (lambda: product(40, 64, 64, (16, 32, 32)), (ones(40, 64), ones(64, 64))),
    "attention": (lambda: flash(True, 16), (ones(2, 64, 16),) * 3),
}


@pytest.mark.parametrize("name", TEXTS)
def test_golden(name):
    launch, args = TEXTS[name]
    new, path = kernel_text(launch(), *args), FOLDER / f"{name}.mlir"
    if UPDATE:
        path.write_text(new)
    old = path.read_text()
    assert new == old, difference(name, old, new)
