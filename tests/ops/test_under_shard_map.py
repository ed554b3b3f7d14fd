"""Every op on shards: whichever operands vary, it returns what it returns on each device alone.

For each sample, sets of operands have different values on each device: all sets of up to three
operands; for more operands none, all, single ones and pairs. The result type varies if one of the
operands varies; with `check_vma=False` types do not track this, and values are the same. The same
holds for derivatives; the cotangent of a replicated operand is the sum over all devices.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise._src.core.infer import type_of
from shardwise._src.core.op import every_op
from shardwise._src.testing.derivatives import _Point, normal
from shardwise._src.testing.sample import close, shown
from shardwise._src.types.dtypes import is_float, is_inexact
from shardwise.sharding import AxisType, Mesh, NamedSharding, get_abstract_mesh
from shardwise.sharding import PartitionSpec as P
from tests.helpers.everyday import everyday
from tests.helpers.meshes import DEVICES, mesh_of
from tests.ops.samples import SAMPLES
from tests.values.programs.placements import QUICKLY

OPS = every_op()
COUNT = 4
LINE = mesh_of(COUNT)
EVERY = {name: SAMPLES[name] for name in sorted(SAMPLES)}
TOLERANCE = 1e-9  # of derivatives, in 64 bits
CASES = [(name, i) for name, samples in EVERY.items() for i in range(len(samples))]

# Ops with sharding parameters, over the remaining mesh axis, by the type of that axis.
PLACED = {"sharding_constraint": AxisType.Auto, "reshard": AxisType.Explicit}


def mesh_for(name):
    if name not in PLACED:
        return LINE
    types = (AxisType.Auto, PLACED[name])
    return Mesh(DEVICES.reshape(COUNT, 2), ("x", "y"), types)


def results(name, sample, *args):
    """The op's results; inside a map, its shardings are over the mesh there."""
    if name in PLACED and sample.params["sharding"] is not None:
        mesh = get_abstract_mesh()
        if mesh.empty:
            return list(args)
        sharding = NamedSharding(mesh, P(None, "y"))
        sample = dataclasses.replace(sample, params={"sharding": sharding})
    return sample.apply(OPS[name], *args)


def patterns(count):
    """Sets of operands."""
    sizes = range(count + 1) if count <= 3 else (0, 1, 2, count)
    return [s for n in sizes for s in itertools.combinations(range(count), n)]


def edged(value, k):
    """The value with NaN, infinities and zeros of both signs among its elements."""
    value = np.array(value)
    if is_float(value.dtype):
        odd = np.array([np.nan, -0.0, np.inf, 0.0, -np.inf]).astype(value.dtype)
        flat = value.reshape(-1)
        flat[k % 3 :: 3] = np.resize(np.roll(odd, -k), flat[k % 3 :: 3].size)
    return value


def over_devices(part, patterns, given, checked, mesh, more=0):
    """The results of `part(*operands)` by device, for each set of operands that vary.

    given: the values of each operand, by device. more: how many of the last ones always vary.
    """
    count = len(given) - more
    whole = [values[0] for values in given[:count]]
    stacks = [np.stack(values) for values in given]
    found = []

    def every(whole, stacks):
        outs = {}
        for varying in patterns:
            args = [stacks[i][0] if i in varying else whole[i] for i in range(count)]
            args += [x[0] for x in stacks[count:]]
            outs[varying] = [jnp.asarray(x) for x in part(varying, *args)]
            found.extend((varying, type_of(x)) for x in outs[varying])
        return {s: [x[None] if s or more else x for x in xs] for s, xs in outs.items()}

    specs = {s: P("x") if s or more else P() for s in patterns}
    run = sw.shard_map(
        every,
        mesh=mesh,
        in_specs=(P(), P("x")),
        out_specs=specs,
        check_vma=checked,
        axis_names={"x"},
    )
    outs = sw.jit(run, compiler_options=QUICKLY)(whole, stacks)
    if not more:
        for varying, t in found:
            wanted = {"x"} if varying and checked else set()
            assert t.varying == wanted, f"operands {varying} vary; the result is {t}"
    return outs


def same(found, wanted, tolerance, about):
    """Results per device; found: a list of results, stacked, or replicated where nothing varies."""
    faults = []
    for varying, outs in found.items():
        for device in range(COUNT):
            for x, y in zip(outs, wanted(varying, device), strict=True):
                x = np.asarray(x)
                x = x[device] if varying else x
                y = np.asarray(y)
                if x.dtype != y.dtype or x.shape != y.shape or not close(x, y, tolerance):
                    came = f"came {shown(x)}, wanted {shown(y)}"
                    faults.append(f"{about}, operands {varying} vary, device {device}: {came}")
                elif is_float(x.dtype):
                    zeros = (x == 0) & (y == 0)
                    if (np.signbit(x) != np.signbit(y))[zeros].any():
                        faults.append(f"{about}, {varying} vary: signs of zeros {x} {y}")
    return faults


def check_values(name, sample, given):
    alone = {}

    def wanted(varying, device):
        key = tuple([device if i in varying else 0 for i in range(len(given))])
        if key not in alone:
            args = [values[k] for values, k in zip(given, key, strict=True)]
            alone[key] = results(name, sample, *map(jnp.asarray, args))
        return alone[key]

    faults = []
    for checked in (True, False):
        sets = patterns(len(given))
        outs = over_devices(
            lambda _, *args: results(name, sample, *args), sets, given, checked, mesh_for(name)
        )
        faults += same(outs, wanted, sample.tolerance, f"check_vma={checked}")
    assert not faults, "\n".join([sample.describe(), *faults[:6]])


def x64(sample):
    return sw.enable_x64(sample.x64 or sw.config.enable_x64)


@pytest.mark.parametrize(
    ("name", "number"), dict.fromkeys([("add", 1), *everyday(CASES, 3, "values")])
)
def test_values(name, number):
    sample = EVERY[name][number]
    with x64(sample):
        given = [
            [np.asarray(sample.variant(i, k % 3)) for k in range(COUNT)]
            for i in range(len(sample.args))
        ]
        check_values(name, sample, given)


@pytest.mark.parametrize(("name", "number"), everyday(CASES, 4, "edges"))
def test_values_that_are_not_numbers(name, number):
    sample = EVERY[name][number]
    with x64(sample):
        given = [[edged(a, k) for k in range(COUNT)] for a in sample.args]
        if any(is_float(np.asarray(a).dtype) for a in sample.args):
            check_values(name, sample, given)


def test_of_nothing():
    """XLA turns operands without elements into constants, and loses the start of the map."""

    def part(whole, parts):
        return jnp.sum(whole), jnp.sum(parts, (1, 2))

    f = sw.shard_map(part, mesh=LINE, in_specs=(P(), P("x")), out_specs=(P(), P("x")))
    total, sums = sw.jit(f)(np.zeros((2, 0)), np.zeros((4, 2, 0)))
    assert (total, list(sums)) == (0, [0] * 4)


# -- derivatives --


class Derivatives:
    """`jvp` and `vjp` of an op by its inexact operands, in 64 bits, with values by device.

    given: operands; tangents: of inexact operands; weights: of inexact results.
    """

    def __init__(self, name, sample):
        self.point = point = _Point(OPS[name], sample, np.random.default_rng(0))
        self.active = point.active
        types, self.outs = point.out_types, point.outs
        self.given = [self._values(sample, i) for i in range(len(point.args))]
        results = [np.zeros(types[i].shape, types[i].dtype) for i in self.outs]
        self.tangents, self.weights = [
            [[normal(point.rng, x) for _ in range(COUNT)] for x in like]
            for like in ([point.args[i] for i in self.active], results)
        ]

    def _values(self, sample, i):
        own = np.asarray(self.point.args[i])
        return [
            own if k % 3 == 0 else np.asarray(sample.variant(i, k % 3)).astype(own.dtype)
            for k in range(COUNT)
        ]

    def function(self, *args):
        found = self.point.function(*args)
        return [found[i] for i in self.outs]

    def slopes(self, args, tangents, function=None):
        f, primals = self._by_active(function or self.function, args)
        return sw.jvp(f, primals, tuple(tangents))[1]

    def cotangents(self, args, weights, function=None):
        f, primals = self._by_active(function or self.function, args)
        return list(sw.vjp(f, *primals)[1](list(weights)))

    def _by_active(self, function, args):
        def f(*primals):
            every = list(args)
            for i, x in zip(self.active, primals, strict=True):
                every[i] = x
            return function(*every)

        return f, tuple([args[i] for i in self.active])

    def at(self, varying, device, tangents_vary=False):
        """The tangents and cotangents of a single device."""
        args = [values[device if i in varying else 0] for i, values in enumerate(self.given)]
        moves = [i in varying or tangents_vary for i in self.active]
        ts = [t[device if own else 0] for t, own in zip(self.tangents, moves, strict=True)]
        ws = [values[device if varying else 0] for values in self.weights]
        return [list(map(np.asarray, outs)) for outs in self.alone(args, ts, ws)]

    @functools.cached_property
    def alone(self):
        return sw.jit(
            lambda args, ts, ws: (self.slopes(args, ts), self.cotangents(args, ws)),
            compiler_options=QUICKLY,
        )

    def summed(self, varying):
        """The cotangents of all devices; for operands that do not vary they are sums."""
        rows = [self.at(varying, k)[1] for k in range(COUNT)]
        return [
            np.stack(cts) if i in varying else sum(cts) if varying else cts[0]
            for i, cts in zip(self.active, zip(*rows, strict=True), strict=True)
        ]


def inside(case, checked):
    """Derivatives in the map, also with varying tangents of operands that do not vary."""
    sets = [s for s in patterns(len(case.given)) if s]
    n, k = len(case.given), len(case.tangents)

    def part(varying, *args):
        args, ts, ws = args[:n], args[n : n + k], args[n + k :]
        slopes, cts = case.slopes(args, ts), case.cotangents(args, ws)
        for i, ct in zip(case.active, cts, strict=True):
            assert type_of(ct).varying == ({"x"} if i in varying and checked else set())
        return [*slopes, *cts]

    def wanted(varying, device):
        slopes, cts = case.at(varying, device, True)
        sums = case.summed(varying) if checked else cts
        cts = [
            ct if i in varying else total
            for i, ct, total in zip(case.active, cts, sums, strict=True)
        ]
        return [*slopes, *cts]

    given = [*case.given, *case.tangents, *case.weights]
    found = over_devices(part, sets, given, checked, LINE, len(given) - n)
    return same(found, wanted, TOLERANCE, f"inside, check_vma={checked}")


def through(case, checked):
    """Derivatives of the map."""
    sets = patterns(len(case.given))

    def over(varying):
        def part(*args):
            args = [x[0] if i in varying else x for i, x in enumerate(args)]
            return [x[None] if varying else x for x in case.function(*args)]

        specs = tuple([P("x") if i in varying else P() for i in range(len(case.given))])
        out = P("x") if varying else P()
        return sw.shard_map(part, mesh=LINE, in_specs=specs, out_specs=out, check_vma=checked)

    def every(given, tangents, weights):
        outs = {}
        for s in sets:
            args = [x if i in s else x[0] for i, x in enumerate(given)]
            ts = [t if i in s else t[0] for i, t in zip(case.active, tangents, strict=True)]
            ws = [w if s else w[0] for w in weights]
            outs[s] = case.slopes(args, ts, over(s)), case.cotangents(args, ws, over(s))
        return outs

    stacks = [
        [np.stack(values) for values in rows] for rows in (case.given, case.tangents, case.weights)
    ]
    found = sw.jit(every, compiler_options=QUICKLY)(*stacks)
    faults = []
    for s, (slopes, cts) in found.items():
        rows = [case.at(s, k)[0] for k in range(COUNT)]
        wanted = [np.stack(r) if s else r[0] for r in zip(*rows, strict=True)]
        pairs = zip([*slopes, *cts], [*wanted, *case.summed(s)], strict=True)
        faults += [
            f"through, check_vma={checked}, operands {s} vary: came {shown(x)}, wanted {shown(y)}"
            for x, y in pairs
            if not close(np.asarray(x), y, TOLERANCE)
        ]
    return faults


def smooth(case):
    name, number = case
    sample = EVERY[name][number]
    inexact = any(is_inexact(type_of(a).dtype) for a in sample.args)
    return sample.order > 0 and OPS[name].jvp is not None and inexact and name not in PLACED


@pytest.mark.parametrize("checked", [True, False])
@pytest.mark.parametrize(
    ("name", "number"), dict.fromkeys([("mul", 0), *everyday(filter(smooth, CASES), 2)])
)
def test_derivatives(name, number, checked):
    sample = EVERY[name][number]
    with sw.enable_x64(True):
        case = Derivatives(name, sample)
        if case.outs:
            faults = inside(case, checked) + through(case, checked)
            assert not faults, "\n".join([sample.describe(), *faults[:6]])
