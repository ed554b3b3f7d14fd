"""Visualizations in HTML, as text; `test_browser` tests their appearance in a browser."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import shardwise as sw
from shardwise._src.visualize import array_html, mesh_html, sharding_html
from shardwise._src.visualize.panels import COLORS
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding, SingleDeviceSharding
from tests.helpers.layouts import NASTY, P, mesh, meshes, shardings, simulated

VOID = {"br", "rect"}


class Reader(HTMLParser):
    """Collects unclosed elements, attributes and texts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def values(self, name):
        return [value for key, value in self.attributes if key == name]


PICTURES = {
    **{f"sharding, {name}": (sharding_html, s, shape) for name, (shape, s) in shardings().items()},
    **{f"mesh, {name}": (mesh_html, m) for name, m in meshes().items()},
}


@pytest.fixture(params=PICTURES)
def picture(request):
    draw, *args = PICTURES[request.param]
    return draw(*args)


def test_one_figure_that_needs_nothing_else(picture):
    read = Reader(picture)
    assert not read.open
    assert read.tags[0] == "figure" and read.tags.count("figure") == 1
    allowed = "figure figcaption b br span div svg g title rect text"
    assert set(read.tags) <= set(allowed.split())
    names = {name for name, _ in read.attributes}
    assert not any(name.startswith("on") for name in names)
    assert not names & {"id", "href", "src", "class"}
    assert all(read.values("aria-label")) and set(read.values("role")) == {"img"}


def test_size_is_bounded(picture):
    assert len(picture) < 160_000
    picture.encode()


def test_eight_thousand_devices_are_not_all_drawn():
    on = simulated(128, 64)
    sharding = NamedSharding(on, P("a", "b"))
    assert len(mesh_html(on)) < 160_000
    assert len(sharding_html(sharding, (1 << 16, 1 << 12))) < 160_000


def test_names_are_text_only():
    text = mesh_html(mesh(4, 2, names=NASTY))
    read = Reader(text)
    assert "script" not in read.tags
    labels = [name.partition("'")[0] for name in read.texts]
    assert any(label.startswith("</svg><script>") for label in labels)
    assert "\x1b" not in text and "\ud800" not in text


def test_what_a_chip_says():
    read = Reader(sharding_html(NamedSharding(mesh(4, 2), P("data")), (9, 4)))
    assert [text for text in read.texts if "replica" in text][:3] == [
        "CPU 0: [0:3, 0:4], shape (3, 4), replica 0 of 2, process 0",
        "CPU 1: [0:3, 0:4], shape (3, 4), replica 1 of 2, process 0",
        "CPU 2: [3:6, 0:4], shape (3, 4), replica 0 of 2, process 0",
    ]
    assert "CPU 6: [9:9, 0:4], shape (0, 4), replica 0 of 2, process 0" in read.texts


def test_what_a_place_of_a_mesh_says():
    read = Reader(mesh_html(simulated(2, 3, 2, per_process=6)))
    said = [text for text in read.texts if "process" in text]
    assert said[1] == "TPU 1: a=0, b=0, c=1, process 0"
    assert said[-2:] == [
        "TPU 11: a=1, b=2, c=1, process 1 (another)",
        "p1: devices of another process; this is process 0.",
    ]


@pytest.mark.parametrize(
    "shape, spec, expected",
    [
        ((8, 16), P("data", "model"), "8 blocks of (2, 8), each on 1 device"),
        ((8, 16), P("model"), "2 blocks of (4, 16), each on 4 devices"),
        ((8, 16), P(), "whole on 8 devices"),
        ((7,), P("data"), "4 blocks of up to (2,), each on 2 devices"),
        ((3,), P("data"), "3 blocks of (1,), each on 2 devices; nothing on 2 devices"),
        ((1,), P("data"), "one block of (1,) on 2 devices; nothing on 6 devices"),
        ((0,), P("data"), "whole on 8 devices"),
    ],
)
def test_the_caption_counts(shape, spec, expected):
    read = Reader(sharding_html(NamedSharding(mesh(4, 2), spec), shape))
    assert read.texts[0] == f"sharding of shape {shape}: {expected}"


def test_a_sharding_alone_is_drawn_in_the_least_dimensions_it_takes():
    sharding = NamedSharding(mesh(4, 2), P("model", None, "data"))
    read = Reader(sharding._repr_html_())
    assert read.texts[0] == (
        "sharding of 3 dimensions, in blocks: 8 blocks of (1, 1, 1), each on 1 device"
    )
    assert read.texts[1] == repr(sharding)
    (device,) = sw.devices("cpu")[:1]
    alone = Reader(SingleDeviceSharding(device)._repr_html_())
    assert alone.texts[0] == "sharding of 0 dimensions, in blocks: whole on 1 device"


def test_what_has_no_devices_has_no_picture():
    abstract = AbstractMesh((4, 2), ("x", "y"))
    assert abstract._repr_html_() is None
    assert NamedSharding(abstract, P("x"))._repr_html_() is None
    assert Mesh(np.empty((0,), object), ("x",))._repr_html_() is None


def test_meshes_show_themselves():
    assert mesh(4, 2)._repr_html_() == mesh_html(mesh(4, 2))


# ---- arrays --------------------------------------------------------------------------------------


def put(value, spec):
    return sw.device_put(value, NamedSharding(mesh(4, 2), spec))


def test_arrays_show_values_and_shards():
    x = put(np.arange(8, dtype=np.float32).reshape(4, 2), P("data"))
    read = Reader(x._repr_html_())
    assert read.texts[:3] == [
        repr(x),
        "f32[4,2]: 4 blocks of (1, 2), each on 2 devices",
        repr(x.sharding),
    ]
    assert sorted(read.values("data-device")) == list("01234567")


def test_arrays_on_one_device_need_no_picture():
    read = Reader(sw.numpy.ones(3)._repr_html_())
    assert read.texts == [
        "Array([1., 1., 1.], dtype=float32)",
        "f32[3]: whole on 1 device",
        repr(sw.numpy.ones(3).sharding),
    ]


def test_values_are_cut_short():
    x = put(np.zeros(100_000, np.float32), P("data"))
    with np.printoptions(threshold=10**6):
        text = x._repr_html_()
    assert len(text) < 40_000
    assert re.search(r"\n… [\d,]+ more letters</pre>", text)


def test_deleted_arrays_and_keys():
    x = put(np.zeros((4, 2), np.float32), P("data"))
    x.delete()
    assert Reader(x._repr_html_()).texts[0] == repr(x)
    key = sw.random.key(0)
    assert Reader(key._repr_html_()).texts[0] == repr(key)
    assert array_html(key) == key._repr_html_()


def test_tracers_have_no_picture():
    seen = []
    sw.jit(lambda x: seen.append(hasattr(x, "_repr_html_")) or x)(1.0)
    assert seen == [False]


# ---- colors -------------------------------------------------------------------------------------


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("color", COLORS)
def test_white_text_is_readable_on_each_colour(color):
    assert contrast(color, "#ffffff") >= 4.5
    assert contrast(color, "#111111") >= 1.9  # outlines on a dark page
    assert set(re.findall("..", color[1:])) <= {"00", "5f", "87", "af", "d7", "ff"}  # of terminals


def test_a_device_has_one_colour_in_all_pictures():
    fill = r'data-device="5"[^>]*fill="(#\w+)"'
    on = mesh(4, 2)
    drawn = [mesh_html(on), sharding_html(NamedSharding(on, P()), (8,))]
    assert {tuple(re.findall(fill, text)) for text in drawn} == {(COLORS[5],)}
