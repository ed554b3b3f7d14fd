"""`check_op`: checks an op's whole record on small samples.

    check_op(sin, [Sample((x,), reference=np.sin)])

On each sample: the value, against NumPy; inferred types, against compiled types; `jvp` to second
order, against finite differences; `transpose`, by inner products; `batch`, against a loop; `dims`,
every sharding against the unsharded result, and uneven shardings with NaN as padding. One report
lists all failures. See `Sample` for options, and the modules in this package for each check.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise._src.arrays.signature import stored_type
from shardwise._src.base.config import enable_x64
from shardwise._src.core.infer import infer, type_of
from shardwise._src.core.op import Op
from shardwise._src.running.eager import EAGER
from shardwise._src.testing.batching import check_batch
from shardwise._src.testing.derivatives import check_derivatives
from shardwise._src.testing.placements import check_placements, check_uneven
from shardwise._src.testing.running import staged
from shardwise._src.testing.sample import CheckFailure, Report, Sample
from shardwise._src.transforms.linearize import linearize
from shardwise._src.types.dtypes import is_inexact
from shardwise._src.types.extended import ExtendedDType


def check_op(op: Op, samples: Sequence[Sample | tuple]) -> None:
    """Checks all rules of an op on samples; raises `CheckFailure` with all failures.

    samples: `Sample`s, or tuples (args, params) or (args, params, reference).
    """
    failures = faults(op, samples)
    if failures:
        raise CheckFailure(op.name, failures)


def faults(op: Op, samples: Sequence[Sample | tuple]) -> list[Any]:
    """The failures that `check_op` would report."""
    report = Report()
    rng = np.random.default_rng(zlib.crc32(op.name.encode()))
    taken = [s if isinstance(s, Sample) else Sample(*s) for s in samples]
    check_fields(op, taken, report)
    for number, sample in enumerate(taken):
        report.about = f"sample {number} {sample.describe()}"
        with enable_x64(sample.x64 or enable_x64.value):
            if not check_value(op, sample, report):
                continue
            check_batch(op, sample, report)
            if op.dims is not None:
                check_placements(op, sample, report)
                check_uneven(op, sample, report)
        with enable_x64(True):
            check_derivatives(op, sample, report, rng)
    return report.failures


def check_fields(op: Op, samples: Sequence[Sample], report: Report) -> None:
    """Every op has type_rule, dims, lower, batch; jvp if it takes floating-point operands."""
    for name in ("dims", "lower", "batch"):
        is_nullary = not any(s.args for s in samples)
        if getattr(op, name) is None and not (name == "batch" and is_nullary):
            report.add("missing field", f"{name}=None", f"a `{name}` rule")
    inexact = any(s.order and is_inexact(type_of(a).dtype) for s in samples for a in s.args)
    if inexact and op.jvp is None:
        report.add("missing field", "jvp=None", "a `jvp` rule: the op takes floating operands")
    if op.jvp is not None and op.transpose is None:
        _check_linearized(op, samples, report)


def _check_linearized(op: Op, samples: Sequence[Sample], report: Report) -> None:
    """An op that remains in its own linearization must have a transpose."""
    for sample in samples:
        try:
            with enable_x64(sample.x64 or enable_x64.value):
                args = [EAGER.array(a) for a in sample.args]
                _, linear = linearize(functools.partial(sample.apply, op), args)
        except Exception:
            continue  # reported by the derivative check
        if any(eqn.op is op for eqn in linear.program.eqns):
            report.about = sample.describe()
            report.add(
                "missing field",
                "transpose=None",
                f"a `transpose` rule: the linearization of {op.name} contains {op.name}",
            )
            report.about = "-"
            return


def check_value(op: Op, sample: Sample, report: Report) -> bool:
    """Checks value and types; returns False if the op does not run at all."""
    try:
        found = infer(op, sample.types(), sample.params)
    except Exception as error:
        report.raised("type", error)
        return False
    inferred = found if op.multiple else [found]
    out_types = [stored_type(t) if isinstance(t.dtype, ExtendedDType) else t for t in inferred]
    try:
        given = [type_of(a) for a in sample.args]
        program = staged(functools.partial(sample.apply, op), given, op.name)
        if list(program.out_types) != out_types:
            report.add("staged type", program.out_types, tuple(out_types))
        results = sample.apply(op, *[EAGER.array(a) for a in sample.args])
        _check_actual_types(results, out_types, report)
        values = [np.asarray(r) for r in results]
    except Exception as error:
        report.raised("value", error)
        return False
    try:
        expected = sample.expected()
    except Exception as error:
        report.raised("reference", error)
        return True
    if expected is None:
        return True
    if len(expected) != len(values):
        report.add("number of results", len(values), len(expected))
        return True
    report.compare_results("value", values, expected, sample.tolerance)
    return True


def _check_actual_types(results: Sequence[Any], types: Sequence[Any], report: Report) -> None:
    """Compares each buffer's shape and dtype, as the runtime reports them, with the type."""
    for i, (r, t) in enumerate(zip(results, types, strict=True)):
        held = np.asarray(r.addressable_shards[0].data)
        if held.shape != r.sharding.shard_shape(t.shape) or held.dtype != t.dtype:
            report.add(f"compiled type (result {i})", f"{held.dtype}{list(held.shape)}", t)
