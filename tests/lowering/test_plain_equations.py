"""Equations whose operands and result have one type are emitted without calling a rule."""

import numpy as np
import pytest

from shardwise._src.core.op import OPS
from shardwise._src.lowering.emitter import Emitter
from shardwise._src.transforms.stage import program_of
from shardwise._src.types.array_type import array_type

DTYPES = ("float32", "bfloat16", "int32", "uint8", "bool", "complex64")


def operands(op):
    return op.lower.__code__.co_varnames[4 : op.lower.__code__.co_argcount]


@pytest.mark.parametrize("name", sorted(n for n, op in OPS.items() if op.instruction))
def test_text_is_that_of_the_rule(name):
    op, seen = OPS[name], 0
    for dtype in DTYPES:
        for shape in ((), (2, 3)):
            t = array_type(shape, np.dtype(dtype))
            types = [t] * len(operands(op))
            try:
                program = program_of(lambda *xs: [op(*xs)], types, name, "test")
            except TypeError:  # not supported for this dtype
                continue
            if program.out_types != (t,):
                continue
            names = ["%x", "%y"][: len(types)]
            direct, asked = Emitter(), Emitter()
            assert direct.program(program, names) == [op.lower(op, asked, types, [t], *names)]
            assert direct.lines == asked.lines
            seen += 1
    assert seen
