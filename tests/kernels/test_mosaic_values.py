"""Values of kernels for TPUs: their modules, run by NumPy, against the functions they compute."""

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.control.expand import expanded
from shardwise._src.core.program import eval_program
from shardwise._src.kernels.on_tpu.mosaic_call import mosaic_call
from shardwise._src.runtime.platforms import TPU
from tests.helpers.mosaic_numpy import run
from tests.kernels.mosaic_cases import CASES


def evaluated(program, args):
    """A program with its kernels run by NumPy."""

    def bind(eqn, values):
        if eqn.op is mosaic_call:
            return run(eqn.params["launch"], eqn.params["kernel"].module, *values)
        if eqn.called is not None:
            return evaluated(eqn.called, values)
        result = eqn.op(*values, **eqn.params)
        return list(result) if eqn.op.multiple else [result]

    return eval_program(program, args, bind)


@pytest.mark.parametrize("name", CASES)
def test_values(name):
    case = CASES[name]
    close = {"rtol": 3e-2, "atol": 1e-2} if "bf16" in name else {"rtol": 1e-3, "atol": 1e-3}
    program = expanded(sw.make_jaxpr(case.launch())(*case.args), TPU)
    found, wanted = evaluated(program, case.args), sw.tree.leaves(case.wanted(*case.args))
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), **close)
