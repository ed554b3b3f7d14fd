"""Tables of pytrees of arrays, with numbers counted by NumPy."""

import io
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import explain
from shardwise.sharding import AbstractMesh, GSPMDSharding, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.helpers.meshes import DEVICES, MESH

ROWS, COLUMNS = NamedSharding(MESH, P("x")), NamedSharding(MESH, P(None, "y"))


def shaped(shape, dtype: Any = np.float32, place=None):
    return sw.ShapeDtypeStruct(shape, dtype, sharding=place)


def rows(x):
    return {row.path: row for row in explain.tree(x).rows}


MODEL = {
    "embed": shaped((1000, 64), np.float32, COLUMNS),
    "layers": [
        {"w": shaped((64, 256), "bfloat16", ROWS), "b": shaped((256,), np.float32, ROWS)}
        for _ in range(2)
    ],
}

TEXT = """\
array               shape       dtype     sharding      elements      bytes  per device
───────────────────────────────────────────────────────────────────────────────────────
['embed']           (1000, 64)  float32   P(None, 'y')    64,000  250.0 KiB   125.0 KiB
['layers'][0]['b']  (256,)      float32   P('x')             256    1.0 KiB       256 B
['layers'][0]['w']  (64, 256)   bfloat16  P('x')          16,384   32.0 KiB     8.0 KiB
['layers'][1]['b']  (256,)      float32   P('x')             256    1.0 KiB       256 B
['layers'][1]['w']  (64, 256)   bfloat16  P('x')          16,384   32.0 KiB     8.0 KiB
───────────────────────────────────────────────────────────────────────────────────────
5 arrays                                                  97,280  316.0 KiB   141.5 KiB
float32: 3 arrays, 252.0 KiB; bfloat16: 2 arrays, 64.0 KiB
over a mesh of 8 devices (x: 4, y: 2)"""


def test_a_model():
    found = explain.tree(MODEL)
    assert repr(found) == str(found) == TEXT
    assert found.elements == 97_280 and found.bytes == 256_000 + 2 * (1024 + 32_768)
    assert found.bytes_per_device == 128_000 + 2 * (256 + 8192)
    assert found.dtypes == {"float32": (3, 64_512, 258_048), "bfloat16": (2, 32_768, 65_536)}


def test_bytes_on_devices_are_those_of_the_arrays():
    rng = np.random.default_rng(0)
    values = [rng.random(shape).astype(np.float32) for shape in ((8, 6), (9, 7), (3,), ())]
    places = [COLUMNS, NamedSharding(MESH, P("x", "y")), NamedSharding(MESH, P("y")), DEVICES[2]]
    arrays = [sw.device_put(v, p) for v, p in zip(values, places, strict=True)]
    held = dict.fromkeys(DEVICES, 0)
    for x in arrays:
        size = x.on_device_size_in_bytes() // len(x.sharding.device_set)
        for device in x.sharding.device_set:
            held[device] += size
    found = explain.tree(arrays)
    assert found.bytes_per_device == max(held.values())
    assert found.bytes == sum(v.nbytes for v in values)
    assert [row.bytes for row in found.rows] == [v.nbytes for v in values]


def test_every_kind_of_leaf():
    x = sw.device_put(np.ones((4, 4), np.float32), DEVICES[3])
    whole = GSPMDSharding.get_replicated(tuple(DEVICES))
    found = rows(
        {
            "array": x,
            "host": np.ones((3, 2)),
            "number": 3,
            "text": "gpt",
            "object": object(),
            "key": sw.random.key(0),
            "shape": shaped((5,), np.int8),
            "ref": sw.ref.new_ref(x),
            "whole": shaped((4,), place=whole),
            "scalar": np.float32(1),
            "tiles": shaped((4, 4), place=GSPMDSharding(ROWS.devices, ROWS.tiling(2))),
        }
    )
    text = {
        path[2:-2]: (row.shape, row.dtype, row.place, row.bytes, row.per_device)
        for path, row in found.items()
    }
    assert text == {
        "array": ((4, 4), "float32", "CPU 3", 64, 64),
        "host": ((3, 2), "float64", "host", 48, None),
        "number": (None, "int", "", None, None),
        "text": (None, "str", "", None, None),
        "object": (None, "object", "", None, None),
        "key": ((), "key<fry>", "CPU 0", 8, 8),
        "shape": ((5,), "int8", "", 5, None),
        "ref": ((4, 4), "float32", "CPU 3", 64, 64),
        "whole": ((4,), "float32", "replicated on 8 devices", 16, 16),
        "scalar": ((), "float32", "", 4, None),
        "tiles": ((4, 4), "float32", "4 × 1 tiles on 8 devices", 64, 16),
    }


def test_one_array_and_none():
    x = sw.device_put(np.ones((4, 4), np.float32), ROWS)
    assert list(rows(x)) == ["x"]
    empty = explain.tree({})
    assert (empty.rows, empty.bytes, empty.bytes_per_device) == ((), 0, 0)
    assert str(empty).splitlines()[-1].split() == ["0", "arrays", "0", "0", "B", "0", "B"]
    assert "<table" in empty._repr_html_()


def test_what_a_device_holds_counts_once():
    x = sw.device_put(np.ones((4, 4), np.float32), DEVICES[1])
    found = explain.tree([x, x])
    assert (found.bytes, found.bytes_per_device) == (128, 64)


def test_an_array_that_is_gone():
    x = sw.device_put(np.ones((4, 4), np.float32), DEVICES[1])
    x.delete()
    (row,) = explain.tree(x).rows
    assert (row.place, row.bytes, row.per_device) == ("deleted", 0, None)


def test_shapes_of_results_and_traced_values():
    shapes = sw.eval_shape(lambda x: {"y": x @ x, "z": x.sum()}, shaped((4, 4)))
    assert {p: r.bytes for p, r in rows(shapes).items()} == {"['y']": 64, "['z']": 4}
    seen = []
    sw.jit(lambda x: (seen.append(explain.tree({"x": x})), x)[1])(np.ones((3, 2), np.float32))
    assert [(r.shape, r.bytes, r.per_device) for r in seen[0].rows] == [((3, 2), 24, None)]


def test_symbolic_shapes_are_not_in_the_sums():
    n = sw.export.symbolic_shape("n, 4")
    found = explain.tree({"a": shaped(n), "b": shaped((4,))})
    assert found.rows[0].bytes is None and found.bytes == 16
    assert "(n, 4)" in str(found)
    assert str(found).splitlines()[-1] == "1 array of symbolic shapes, not in the totals"
    assert json.loads(json.dumps(found.to_dict()))["arrays"][0]["shape"] == ["n", 4]


def test_a_mesh_that_is_not_there():
    place = NamedSharding(AbstractMesh((512, 16), ("data", "model")), P("data", "model"))
    found = explain.tree({"w": shaped((8192, 8192), np.float32, place)})
    assert found.bytes_per_device == 16 * 512 * 4
    assert str(found).splitlines()[-1] == (
        "over an abstract mesh of 8192 devices (data: 512, model: 16)"
    )


# ------------------------------------------------------------------------------------- large trees


def test_layers_are_folded():
    tree = {"layers": [MODEL["layers"][0] for _ in range(1000)], "embed": MODEL["embed"]}
    found = explain.tree(tree)
    lines = str(found).splitlines()
    assert len(found.rows) == 2001 and len(lines) < 12
    assert lines[2].split()[:1] == ["['embed']"]
    assert re.match(r"\['layers'\]\[\*\]\['b'\] \(1,000 times\) +\(256,\)", lines[3])
    assert "16,384,000" in lines[4] and "31.2 MiB" in lines[4]
    assert len(found._repr_html_()) < 20_000
    assert len(found.to_dict()["arrays"]) == 2001


def test_the_smallest_are_left_to_a_row():
    tree = {f"{chr(97 + i // 26)}{chr(97 + i % 26)}": shaped((i + 1,)) for i in range(200)}
    lines = str(explain.tree(tree)).splitlines()
    (rest,) = [line for line in lines if line.startswith("…")]
    # All but the largest 29 of 1 to 200 elements.
    assert rest.split()[:4] == ["…", "and", "171", "smaller"]
    assert f"{171 * 172 // 2:,}" in rest
    assert len(lines) == 2 + 30 + 2
    assert f"{200 * 201 // 2:,}" in lines[-1]


# ------------------------------------------------------------------------------ as data and as HTML


def test_as_data():
    data = json.loads(json.dumps(explain.tree(MODEL).to_dict()))
    assert data["bytes_per_device"] == 144_896
    assert data["meshes"] == ["a mesh of 8 devices (x: 4, y: 2)"]
    assert data["dtypes"]["bfloat16"] == {"arrays": 2, "elements": 32_768, "bytes": 65_536}
    assert data["arrays"][0] == {
        "path": "['embed']",
        "shape": [1000, 64],
        "dtype": "float32",
        "sharding": "P(None, 'y')",
        "elements": 64_000,
        "bytes": 256_000,
        "bytes_per_device": 128_000,
    }


class Cells(HTMLParser):
    """The texts of a table, row by row; fails if a tag is not closed."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.open = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag not in ("script", "style", "link", "img")
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def test_as_html():
    found = Cells(explain.tree(MODEL)._repr_html_()).rows
    assert [len(row) for row in found] == [7] * 7
    assert found[1] == [
        "['embed']",
        "(1000, 64)",
        "float32",
        "P(None, 'y')",
        "64,000",
        "250.0 KiB",
        "125.0 KiB",
    ]
    hostile = Cells(explain.tree({"<script>&": shaped((1,))})._repr_html_()).rows
    assert hostile[1][0] == "['<script>&']"


def test_with_rich():
    rich = pytest.importorskip("rich.console")
    out = io.StringIO()
    rich.Console(file=out, width=120).print(explain.tree(MODEL))
    text = out.getvalue()
    assert "['layers'][0]['w']" in text and "141.5 KiB" in text
    assert "over a mesh of 8 devices (x: 4, y: 2)" in text
