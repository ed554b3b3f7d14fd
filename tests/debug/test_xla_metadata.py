"""`set_xla_metadata`, `xla_metadata_call`, `compute_on`: attributes reach XLA instructions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as snp
from shardwise import lax
from shardwise.experimental import xla_metadata
from shardwise.experimental.compute_on import compute_on, compute_on2
from shardwise.experimental.scheduling_groups import scheduling_group, xla_metadata_call
from shardwise.experimental.xla_metadata import fuse_limit, set_xla_metadata
from shardwise.memory import Space
from tests.helpers.meshes import mesh_of

X = np.arange(1, 9, dtype=np.float32)


def attributes(fun: Any, *args: Any) -> dict[str, list[str]]:
    """{instruction: attributes} for the module of a function."""
    jitted = fun if hasattr(fun, "lower") else sw.jit(fun)
    text = jitted.lower(*args).as_text()
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name = re.search(r"= (?:stablehlo\.|func\.)?(\w+)", line)
        if name:
            held = re.search(r"frontend_attributes = \{([^}]*)\}", line)
            found.setdefault(name[1], []).append(held[1] if held else "")
    return found


def test_a_block_gives_attributes_to_its_instructions_and_to_no_others():
    def f(x: Any) -> Any:
        y = snp.sin(x)
        with set_xla_metadata(group="a", on=True, count=3):
            z = snp.cos(y)
        return snp.tan(z)

    found = attributes(f, X)
    assert found["cosine"] == ['count = "3", group = "a", on = "true"']
    assert found["sine"] == found["tan"] == [""]
    compiled = sw.jit(f).lower(X).compile().as_text()
    assert re.search(r'cosine\(.*frontend_attributes=\{count="3",group="a",on="true"\}', compiled)
    np.testing.assert_allclose(sw.jit(f)(X), np.tan(np.cos(np.sin(X))), rtol=1e-4)


def test_inner_blocks_count_and_none_takes_away():
    def f(x: Any) -> Any:
        with set_xla_metadata(a="1", b="2"):
            with set_xla_metadata(a=None, b="3", c='x/y = "\0"'):
                x = snp.sin(x)
            with set_xla_metadata():
                return snp.cos(x)

    found = attributes(f, X)
    assert found["sine"] == [r'b = "3", c = "x/y = \22\00\22"']
    assert found["cosine"] == ['a = "1", b = "2"']


def test_a_value_names_the_instruction_that_computes_it():
    def f(x: Any, k: Any) -> Any:
        both = {"s": snp.sin(x), "c": lax.top_k(x, 2)[1]}
        both = set_xla_metadata(both, tag="here")
        return set_xla_metadata(k, tag="argument") * set_xla_metadata(both["s"], more=1), both["c"]

    found = attributes(f, X, X)
    assert found["sine"] == ['more = "1", tag = "here"']
    assert found["multiply"] == [""]
    ours = sw.grad(lambda x: set_xla_metadata(snp.sin(x), a=1).sum())(X)
    np.testing.assert_allclose(ours, np.cos(X), rtol=1e-6)
    np.testing.assert_array_equal(set_xla_metadata(X, a=1), X)
    np.testing.assert_array_equal(sw.vmap(lambda x: set_xla_metadata(x, a=1))(X), X)


def test_a_decorated_jitted_function_has_a_program_of_its_own():
    @sw.jit
    def f(x: Any) -> Any:
        return inner(x) + 1

    inner = sw.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, snp.sin(x)))
    marked = set_xla_metadata(k="v")(f)
    assert marked.__name__ == "f"
    found = attributes(marked, X)
    assert found["sine"] == found["add"][:1] == ['k = "v"'] and 'k = "v"' in found["multiply"]
    assert found["call"] == ['k = "v"']
    assert "frontend" not in f.lower(X).as_text()
    np.testing.assert_array_equal(marked(X), f(X))
    with set_xla_metadata(k="w"):
        assert attributes(f, X)["sine"] == ['k = "w"']
    assert "frontend" not in f.lower(X).as_text()


def test_derivatives_and_maps_keep_attributes_and_named_scopes_stay():
    def f(x: Any) -> Any:
        with sw.named_scope("part"), set_xla_metadata(k="v"):
            return snp.sin(x).sum()

    assert attributes(sw.grad(f), X)["cosine"] == ['k = "v"']
    assert attributes(sw.vmap(f), X[None])["sine"] == ['k = "v"']
    text = sw.jit(f).lower(X).compile().as_text()
    assert 'op_name="jit(f)/part/sin"' in text
    assert sw.make_jaxpr(f)(X).eqns[0].source_info.name_stack.stack == ("part",)


def test_attributes_over_devices():
    def f(x: Any) -> Any:
        with set_xla_metadata(k="v"):
            return (x @ x.T).sum()

    placed = sw.device_put(np.ones((8, 4), np.float32), sw.NamedSharding(mesh_of(8), sw.P("x")))
    assert attributes(f, placed)["dot_general"] == ['k = "v"']
    assert sw.jit(f)(placed) == 256


def test_calls_with_attributes():
    group = scheduling_group("g1")(lambda x, *, by: snp.sin(x) * by)

    def f(x: Any) -> Any:
        return group(x, by=2.0)

    found = attributes(f, X)
    assert found["call"] == ['scheduling_group = "g1"'] and found["sine"] == [""]
    assert attributes(sw.vmap(f), X[None])["call"] == ['scheduling_group = "g1"']
    both = attributes(sw.grad(lambda x: f(x).sum()), X)["call"]
    assert both == ['scheduling_group = "g1"'] * 2
    np.testing.assert_allclose(f(X), 2 * np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(sw.grad(lambda x: f(x).sum())(X), 2 * np.cos(X), rtol=1e-6)

    def outer(x: Any) -> Any:
        return xla_metadata_call(lambda y: y * x, a="b", n=1)(x)

    assert attributes(outer, X)["call"] == ['a = "b", n = "1"']
    np.testing.assert_array_equal(sw.jit(outer)(X), X * X)
    ref = sw.new_ref(X)
    xla_metadata_call(lambda: ref.addupdate(1.0), a="b")()
    np.testing.assert_array_equal(ref[...], X + 1)


def test_attributes_of_derivatives():
    def found(ad_metadata: Any) -> list[str]:
        call = xla_metadata.xla_metadata_call2({"a": 1}, ad_metadata=ad_metadata)
        g = sw.grad(lambda x: call(lambda y: snp.sin(y) * y)(x).sum())
        np.testing.assert_allclose(sw.jit(g)(X), np.sin(X) + X * np.cos(X), rtol=1e-5)
        return attributes(g, X)["call"]

    assert found("same") == ['a = "1"', 'a = "1"']
    assert found({"b": True}) == ['a = "1"', 'b = "true"']
    assert found("drop") == ['a = "1"', ""]
    with pytest.raises(TypeError, match="must be a string, a bool or a number; got"):
        xla_metadata.xla_metadata_call(snp.sin, a=None)
    with pytest.raises(TypeError, match="ad_metadata must be a dict of attributes; got 3"):
        xla_metadata.xla_metadata_call2(snp.sin, {}, ad_metadata=3)


def test_what_xla_fuses():
    fused = xla_metadata.must_fuse_call("1")(lambda x: snp.sin(x) * x)
    assert attributes(fused, X)["call"] == ['MUST_FUSE = "1"']

    def bounded(x: Any) -> Any:
        with xla_metadata.fuse_limit():
            return snp.sin(x)

    assert attributes(bounded, X)["sine"] == ['FUSE_LIMIT = "true"']


def test_compute_on_a_block_and_a_function():
    def f(x: Any) -> Any:
        with compute_on("gpu_stream:1"), compute_on("device_host"):
            y = snp.sin(x)
        with compute_on(compute_type="gpu_stream:2"):
            return snp.cos(y)

    found = attributes(f, X)
    assert found["sine"] == ['_xla_compute_type = "host"']
    assert found["cosine"] == ['_xla_stream_annotation = "2", inlineable = "false"']

    @compute_on(compute_type="device_host", out_memory_spaces=(Space.Device, Space.Host))
    def g(x: Any) -> Any:
        return snp.sin(x), [x + 1]

    def h(x: Any) -> Any:
        a, (b,) = g(x)
        return a + b

    found = attributes(h, X)
    assert found["call"] == found["sine"] == ['_xla_compute_type = "host"']
    assert sorted(found["custom_call"]) == [
        '_xla_buffer_placement = "device"',
        '_xla_buffer_placement = "pinned_host"',
    ]
    np.testing.assert_allclose(sw.jit(h)(X), np.sin(X) + X + 1, rtol=1e-6)
    np.testing.assert_allclose(sw.grad(lambda x: h(x).sum())(X), np.cos(X) + 1, rtol=1e-6)
    np.testing.assert_allclose(sw.vmap(h)(X), np.sin(X) + X + 1, rtol=1e-6)
    plain = compute_on2(snp.sin, compute_type="device", out_memory_spaces=Space.Device)
    assert attributes(plain, X)["call"] == ['_xla_compute_type = "dense", inlineable = "false"']
    told = compute_on2(
        snp.sin,
        compute_type="device_host",
        out_memory_spaces=Space.Device,
        compiler_options={"n": 1},
    )
    assert 'backend_config = "{\\22n\\22: 1}"' in sw.jit(told).lower(X).as_text()


def test_mistakes():
    with pytest.raises(
        ValueError,
        match=re.escape(
            "compute_on: compute_type must be 'device_host', 'device', 'tpu_sparsecore' or "
            "'gpu_stream:N' with a number; got 'host'."
        ),
    ):
        compute_on("host")
    with pytest.raises(TypeError, match=r"^compute_on: compute_type must be a string; got 3\.$"):
        compute_on(compute_type=3)
    with pytest.raises(
        TypeError,
        match=re.escape(
            "compute_on: out_memory_spaces is missing: a `shardwise.memory.Space` for each result."
        ),
    ):
        compute_on(snp.sin, compute_type="device")
    odd = compute_on(snp.sin, compute_type="device", out_memory_spaces="device")
    with pytest.raises(
        TypeError,
        match=re.escape(
            "compute_on: out_memory_spaces must have a `shardwise.memory.Space` for each result, or "
            "for pytrees of them; got 'device'."
        ),
    ):
        odd(X)
    on = {"out_memory_spaces": Space.Device}
    inner = compute_on(snp.sin, compute_type="gpu_stream:1", **on)
    with pytest.raises(
        ValueError,
        match=re.escape(
            "compute_on: a function computed in one place is called inside a function computed "
            "in another. Call them one after the other."
        ),
    ):
        compute_on(inner, compute_type="device_host", **on)(X)
    with pytest.raises(
        TypeError,
        match=re.escape("set_xla_metadata: the decorated object must be a function; got 3."),
    ):
        set_xla_metadata(a=1)(3)


def test_equations_have_the_attributes_of_their_block() -> None:
    def f(x: Any) -> Any:
        with set_xla_metadata(a=1), fuse_limit():
            y = x + 1
        return y * 2

    eqns = sw.make_jaxpr(f)(1.0).eqns
    assert [e.ctx.xla_metadata for e in eqns] == [{"a": "1", "FUSE_LIMIT": "true"}, None]
