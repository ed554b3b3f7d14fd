"""Programs of the survey over several devices, with host callbacks, with memory kinds, and sparse.

The collectives run in a `shard_map` over one host and over several hosts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.targets.survey_programs import At, Program

ROWS = np.linspace(0.1, 0.9, 64, dtype=np.float32).reshape(8, 8)
UNEVEN = np.linspace(0.1, 0.9, 50, dtype=np.float32).reshape(10, 5)
GROUPS = [[0, 1, 2, 3], [4, 5, 6, 7]]


def module(at: At, name: str) -> Any:
    """A submodule of the library."""
    return importlib.import_module(f"{at.lib.name}.{name}")


# -- maps --

RING = [(i, (i + 1) % 8) for i in range(8)]
COLLECTIVES: dict[str, Callable[[At, Any], Any]] = {
    "psum": lambda at, x: at.lax.psum(x, "x"),
    "psum of groups": lambda at, x: at.lax.psum(x, "x", axis_index_groups=GROUPS),
    "pmean": lambda at, x: at.lax.pmean(x, "x"),
    "pmax": lambda at, x: at.lax.pmax(x, "x"),
    "pmin": lambda at, x: at.lax.pmin(x, "x"),
    "all_gather": lambda at, x: at.lax.all_gather(x, "x"),
    "all_gather tiled": lambda at, x: at.lax.all_gather(x, "x", axis=1, tiled=True),
    "psum_scatter": lambda at, x: at.lax.psum_scatter(x, "x", scatter_dimension=1, tiled=True),
    "all_to_all": lambda at, x: at.lax.all_to_all(x, "x", 1, 0),
    "all_to_all tiled": lambda at, x: at.lax.all_to_all(x, "x", 1, 0, tiled=True),
    "ppermute": lambda at, x: at.lax.ppermute(x, "x", RING),
    "ppermute of some": lambda at, x: at.lax.ppermute(x, "x", [(0, 3), (3, 1)]),
    "pshuffle": lambda at, x: at.lax.pshuffle(x, "x", [(i + 3) % 8 for i in range(8)]),
    "pbroadcast": lambda at, x: at.lax.pbroadcast(x, "x", 2),
    "axis_index": lambda at, x: x + at.lax.axis_index("x"),
    "psum of int": lambda at, x: at.lax.psum(x.astype(np.int32), "x"),
    "psum of complex": lambda at, x: at.lax.psum(x + 1j, "x"),
    "psum of bool": lambda at, x: at.lax.psum(x > 0.5, "x"),
    "ragged_all_to_all": lambda at, x: at.lax.ragged_all_to_all(
        x[0], at.np.zeros(16), *[at.np.arange(8), at.np.ones(8, int)] * 2, axis_name="x"
    ),
    "collectives in scan": lambda at, x: at.lax.scan(
        lambda c, r: (at.lax.psum(r, "x"), c), x[0], x
    )[1],
    "psum in cond": lambda at, x: at.lax.cond(
        at.lax.psum(x.sum(), "x") > 3, lambda: at.lax.psum(x, "x"), lambda: x
    ),
    "psum_invariant": lambda at, x: at.lax.pcast(at.lax.psum(x, "x"), "x", to="varying"),
}
DIFFERENTIATED = ("psum", "pmean", "all_gather", "psum_scatter", "all_to_all tiled", "ppermute")


def _mapped(run: Callable, checked: bool, grad: bool = False) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        mesh = at.mesh()
        f = at.root.shard_map(
            lambda x: run(at, x), mesh=mesh, in_specs=at.P("x"), out_specs=at.P("x"),
            check_vma=checked,
        )  # fmt: skip
        g = at.root.grad(lambda x: at.np.sum(at.np.sin(f(x)))) if grad else f
        return g, [at.arg(ROWS, "x", mesh=mesh)]

    return make


def collectives() -> Iterator[Program]:
    for where in ("host", "hosts"):
        for name, run in COLLECTIVES.items():
            group = "collectives" if where == "host" else "collectives of hosts"
            yield Program(group, name, _mapped(run, False), where)
            if name in DIFFERENTIATED:
                yield Program(group, f"{name}, grad", _mapped(run, False, True), where)
    yield Program("collectives", "some axes are automatic", _partly_manual, "host")
    yield Program("collectives", "some axes are automatic, product", _manual_product, "host")
    yield Program("collectives", "smap", _smap, "host")
    for name, run in PMAPS.items():
        yield Program("pmap", name, run, "host")
        yield Program("pmap", f"{name}, hosts", run, "hosts")


def _partly_manual(at: At) -> tuple:
    mesh = at.mesh(4, 2)
    f = at.root.shard_map(
        lambda x: at.lax.psum(at.np.sin(x), "x"), mesh=mesh, in_specs=at.P("x"),
        out_specs=at.P(), axis_names={"x"},
    )  # fmt: skip
    return f, [at.arg(ROWS, "x", "y", mesh=mesh)]


def _manual_product(at: At) -> tuple:
    mesh = at.mesh(4, 2)
    f = at.root.shard_map(
        lambda x, y: at.lax.psum(x @ y, "x"), mesh=mesh, in_specs=(at.P(None, "x"), at.P("x")),
        out_specs=at.P(), axis_names={"x"},
    )  # fmt: skip
    return f, [at.arg(ROWS, "y", "x", mesh=mesh), at.arg(ROWS, "x", "y", mesh=mesh)]


def _smap(at: At) -> tuple:
    mesh = at.mesh(explicit=True)
    f = at.root.smap(at.np.sin, in_axes=0, out_axes=0, axis_name="x")
    return f, [at.arg(ROWS, "x", mesh=mesh)], {"set_mesh": mesh}


def _pmap(run: Callable, count: int = 1, **options: Any) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        f = at.root.pmap(lambda *xs: run(at, *xs), axis_name="i", devices=at.devices, **options)
        value = at.root.ShapeDtypeStruct(ROWS.shape, ROWS.dtype)
        return f, [value] * count

    return make


PMAPS = {
    "alone": _pmap(lambda at, x: at.np.sin(x)),
    "psum": _pmap(lambda at, x: at.lax.psum(x, "i")),
    "two arguments": _pmap(lambda at, x, y: (x + y, at.lax.pmean(x, "i")), 2),
    "grad inside": _pmap(
        lambda at, x: at.lax.pmean(at.root.grad(lambda x: at.np.sum(at.np.tanh(x)))(x), "i")
    ),
    "shared result": _pmap(lambda at, x: at.lax.psum(x, "i"), out_axes=None),
    "shared argument": _pmap(lambda at, x, y: x @ y, 2, in_axes=(0, None)),
}

# -- shardings that the partitioner propagates --

SHARDED = {
    "sum": lambda at, x: at.np.sum(x, 0),
    "full sum": lambda at, x: at.np.sum(x),
    "max": lambda at, x: at.np.max(x, 0),
    "argmax": lambda at, x: at.np.argmax(x, 0),
    "product": lambda at, x: x @ x.T,
    "product of columns": lambda at, x: x.T @ x,
    "softmax": lambda at, x: at.lib.nn.softmax(x, 0),
    "cumsum": lambda at, x: at.np.cumsum(x, 0),
    "sort": lambda at, x: at.np.sort(x, 0),
    "transpose": lambda at, x: x.T,
    "reshape": lambda at, x: x.reshape(-1),
    "rows": lambda at, x: x[np.array([3, 1, 1])],
    "slice": lambda at, x: x[1:-1],
    "rotation": lambda at, x: at.np.roll(x, 3, 0),
    "reversal": lambda at, x: x[::-1],
    "concatenation": lambda at, x: at.np.concatenate([x, x]),
    "padding": lambda at, x: at.np.pad(x, 1),
    "scatter": lambda at, x: x.at[np.array([1, 2])].add(1.0),
    "update": lambda at, x: x.at[1:3].set(0),
    "convolution": lambda at, x: at.np.convolve(x[:, 0], x[0], "same"),
    "windows": lambda at, x: at.lax.reduce_window(x, -np.inf, at.lax.max, (3, 1), (1, 1), "SAME"),
    "scan": lambda at, x: at.lax.scan(lambda c, r: (c + r, c), x[0], x),
    "map of rows": lambda at, x: at.lax.map(at.np.sin, x),
    "fft": lambda at, x: at.np.fft.fft(x, axis=1).real,
    "normal": lambda at, x: x + at.lib.random.normal(at.lib.random.key(0), x.shape),
    "where": lambda at, x: at.np.where(x > 0.5, x, 0),
    "nonzero": lambda at, x: at.np.nonzero(x > 0.5, size=4),
    "variance": lambda at, x: at.np.var(x, 0),
    "median": lambda at, x: at.np.median(x, 0),
    "einsum": lambda at, x: at.np.einsum("ij,kj->ik", x, x),
    "grad": lambda at, x: at.root.grad(lambda x: at.np.sum(at.np.tanh(x @ x.T) ** 2))(x),
    "while": lambda at, x: at.lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, x),
}
LAYOUTS = {
    "even": (ROWS, (8,), ("x",)),
    "grid": (ROWS, (4, 2), ("x", "y")),
    "columns": (ROWS, (4, 2), (None, ("x", "y"))),
    "uneven": (UNEVEN, (8,), ("x",)),
    "uneven grid": (UNEVEN, (4, 2), ("x", "y")),
}


def sharded() -> Iterator[Program]:
    for layout, (value, sizes, spec) in LAYOUTS.items():
        for name, run in SHARDED.items():
            for where in ("host", "hosts") if layout == "grid" else ("host",):
                group = f"sharded {layout}" + (" of hosts" if where == "hosts" else "")

                def make(
                    at: At, f: Any = run, v: Any = value, n: Any = sizes, s: Any = spec
                ) -> Any:
                    return lambda x: f(at, x), [at.arg(v, *s, mesh=at.mesh(*n))]

                yield Program(group, name, make, where)
    for name, run in SHARDED.items():

        def explicit(at: At, f: Any = run) -> Any:
            mesh = at.mesh(4, 2, explicit=True)
            args = [at.arg(ROWS, "x", None, mesh=mesh)]
            return lambda x: f(at, x), args, {"set_mesh": mesh}

        yield Program("sharded explicit", name, explicit, "host")
    yield Program("sharded even", "shardings of results", _out_sharded, "host")
    yield Program("sharded even", "constraint", _constrained, "host")
    yield Program("sharded even", "donation", _donated, "host")


def _out_sharded(at: At) -> tuple:
    mesh = at.mesh(4, 2)
    options = {"out_shardings": at.named(mesh, None, "x")}
    return lambda x: x + 1, [at.arg(ROWS, "x", mesh=mesh)], options


def _constrained(at: At) -> tuple:
    mesh = at.mesh(4, 2)
    to = at.named(mesh, "y", "x")
    return lambda x: at.lax.with_sharding_constraint(x, to) + 1, [at.arg(ROWS, "x", mesh=mesh)]


def _donated(at: At) -> tuple:
    return lambda x: x + 1, [at.arg(ROWS, "x", mesh=at.mesh())], {"donate_argnums": 0}


# -- memory kinds --


def _memory(kind_in: str, kind_out: str, sharded: bool) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        if sharded:
            mesh = at.mesh()
            places = [at.named(mesh, "x", memory_kind=k) for k in (kind_in, kind_out)]
        else:
            one = at.sharding.SingleDeviceSharding
            places = [one(at.devices[0], memory_kind=k) for k in (kind_in, kind_out)]
        value = at.root.ShapeDtypeStruct(ROWS.shape, ROWS.dtype, sharding=places[0])
        moved = places[0].with_memory_kind("device")
        back = lambda x: at.root.device_put(x, moved)  # noqa: E731
        run = lambda x: (back(x) if kind_in != "device" else x) * 2  # noqa: E731
        return run, [value], {"out_shardings": places[1]}

    return make


def _space(at: At) -> tuple:
    def run(x: Any) -> Any:
        y = at.root.device_put(at.np.sin(x), at.root.memory.Space.Host)
        return at.root.device_put(y, at.root.memory.Space.Device) + 1

    return run, [at.arg(ROWS)]


def _offloaded(sharded: bool) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        name = module(at, "ad_checkpoint").checkpoint_name
        policy = at.root.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["first"],
            offload_src="device", offload_dst="pinned_host",
        )  # fmt: skip
        f = at.root.checkpoint(
            lambda x: at.np.sum(at.np.sin(name(at.np.sin(x), "first")) * x), policy=policy
        )
        return at.root.grad(f), [at.arg(ROWS, "x", mesh=at.mesh()) if sharded else at.arg(ROWS)]

    return make


def _offloaded_scan(at: At) -> tuple:
    name = module(at, "ad_checkpoint").checkpoint_name
    policy = at.root.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[], names_which_can_be_offloaded=["first"],
        offload_src="device", offload_dst="pinned_host",
    )  # fmt: skip

    def loss(x: Any) -> Any:
        step = lambda c, r: (at.np.sin(name(at.np.sin(c) * r, "first")), None)  # noqa: E731
        return at.np.sum(at.lax.scan(at.root.checkpoint(step, policy=policy), x[0], x)[0])

    return at.root.grad(loss), [at.arg(ROWS)]


def _on_host(at: At) -> tuple:
    compute_on = module(at, "experimental.compute_on").compute_on

    def run(x: Any) -> Any:
        with compute_on("device_host"):
            y = at.np.sin(x)
        return y + 1

    return run, [at.arg(ROWS)]


def memories() -> Iterator[Program]:
    for kinds in (
        ("device", "pinned_host"),
        ("pinned_host", "device"),
        ("pinned_host", "pinned_host"),
        ("device", "unpinned_host"),
        ("unpinned_host", "device"),
    ):
        title = " to ".join(kinds)
        yield Program("memory kinds", title, _memory(*kinds, False))
        yield Program("memory kinds", f"{title}, sharded", _memory(*kinds, True), "host")
    yield Program("memory kinds", "spaces", _space)
    yield Program("memory kinds", "offloaded", _offloaded(False))
    yield Program("memory kinds", "offloaded, sharded", _offloaded(True), "host")
    yield Program("memory kinds", "offloaded in scan", _offloaded_scan)
    yield Program("memory kinds", "compute_on host", _on_host)


# -- host callbacks --

CALLBACKS: dict[str, Callable[[At, Any], Any]] = {
    "pure_callback": lambda at, x: at.root.pure_callback(np.sin, x, x),
    "io_callback": lambda at, x: module(at, "experimental").io_callback(np.sin, x, x),
    "io_callback ordered": lambda at, x: module(at, "experimental").io_callback(
        np.sin, x, x, ordered=True
    ),
    "debug.print": lambda at, x: at.root.debug.print("{}", x) or x,
    "debug.callback": lambda at, x: at.root.debug.callback(lambda x: None, x) or x,
    "in a loop": lambda at, x: at.lax.fori_loop(
        0, 3, lambda i, c: at.root.pure_callback(np.sin, c, c), x
    ),
}


def callbacks() -> Iterator[Program]:
    for name, run in CALLBACKS.items():
        yield Program(
            "callbacks",
            name,
            lambda at, f=run: (lambda x: f(at, x), [at.arg(ROWS)], {"inline": False}),
        )
        yield Program(
            "callbacks",
            f"{name}, sharded",
            lambda at, f=run: (
                lambda x: f(at, x),
                [at.arg(ROWS, "x", mesh=at.mesh())],
                {"inline": False},
            ),
            "host",
        )


# -- sparse arrays --


def _sparse(run: Callable) -> Callable[[At], tuple]:
    def make(at: At) -> tuple:
        sparse = module(at, "experimental.sparse")

        def f(data: Any, places: Any, x: Any) -> Any:
            m = sparse.BCOO((data, places), shape=(8, 8))
            out = run(at, sparse, m, x)
            return at.root.tree.leaves(out)

        data, places = np.ones(5, np.float32), np.zeros((5, 2), np.int32)
        return f, [at.arg(data), at.arg(places), at.arg(ROWS)]

    return make


SPARSE: dict[str, Callable] = {
    "todense": lambda at, sparse, m, x: m.todense(),
    "product": lambda at, sparse, m, x: m @ x,
    "product from the left": lambda at, sparse, m, x: x @ m,
    "product of both": lambda at, sparse, m, x: m @ m,
    "transpose": lambda at, sparse, m, x: m.T,
    "sum": lambda at, sparse, m, x: m.sum(0),
    "sum of duplicates": lambda at, sparse, m, x: m.sum_duplicates(nse=5),
    "times an array": lambda at, sparse, m, x: m * x,
    "slice": lambda at, sparse, m, x: m[1:3],
    "fromdense": lambda at, sparse, m, x: sparse.BCOO.fromdense(x, nse=7),
    "sort": lambda at, sparse, m, x: m.sort_indices(),
    "sparsify": lambda at, sparse, m, x: sparse.sparsify(lambda m, x: 2 * (m @ x))(m, x),
    "csr": lambda at, sparse, m, x: sparse.BCSR.fromdense(x, nse=7) @ x,
    "coo": lambda at, sparse, m, x: sparse.COO.fromdense(x, nse=7) @ x,
    "grad": lambda at, sparse, m, x: sparse.grad(lambda m: (m @ x).sum())(m),
}


def sparse() -> Iterator[Program]:
    for name, run in SPARSE.items():
        yield Program("sparse", name, _sparse(run))


def programs() -> Iterator[Program]:
    yield from callbacks()
    yield from memories()
    yield from collectives()
    yield from sparse()
    yield from sharded()
