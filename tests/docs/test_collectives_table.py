"""Every collective in every context, over every kind of axis: docs/collectives.md.

For every kind of axis, values and derivatives match the definition in NumPy.
"""

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.base.context import NamedAxis, current
from shardwise._src.core.op import every_op
from shardwise._src.core.program_tools import walk
from tests.helpers.collectives import FORMS
from tests.helpers.contexts import CONTEXTS, KINDS, REFUSED, XS
from tests.helpers.errors import message
from tests.helpers.everyday import everyday
from tools import collectives_table

CELLS = [
    (c, f, k, i)
    for f in dict.fromkeys(form.name for form in FORMS)
    for c in CONTEXTS
    for k in KINDS
    for i in range(sum(form.name == f for form in FORMS))
]


# Gradients by name, and forms of `psum` and `psum_scatter` for values that are partial sums.
OTHERS = ("share", "shared_sum", "unreduced_psum", "unreduced_reduce_scatter")


@pytest.mark.parametrize(("where", "name", "kind", "number"), everyday(CELLS, 10))
def test_cell(where, name, kind, number):
    form = [form for form in FORMS if form.name == name][number]
    run, wanted = CONTEXTS[where](form, kind)
    if reason := REFUSED.get((name, where)):
        assert message(NotImplementedError, run, XS) == f"shardwise.lax.{name}: {reason}"
        return
    got = sw.tree.leaves(run(XS))
    for came, due in zip(got, sw.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(came, due, rtol=1e-5, atol=1e-4)


def test_the_page_is_current():
    same = collectives_table.page() == collectives_table.PAGE.read_text()
    assert same, "docs/collectives.md is not current: run `python tools/collectives_table.py`"


def test_no_collective_is_left_out():
    """Each op between values along named axes is in the table."""
    used = set()
    for form in FORMS:
        with current().replace(axes=(NamedAxis("i", len(XS), False),)).entered():
            traced = sw.jit(lambda x, form=form: form.call(x, "i")).trace(XS[0])
        used |= {eqn.op.name for eqn in walk(traced.program)}
    every = {op.name for op in every_op().values() if op.named_axes is not None}
    assert every - used == set(OTHERS)
