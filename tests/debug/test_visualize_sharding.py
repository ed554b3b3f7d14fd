"""Visualizations of shardings and meshes, compared as text at a fixed width."""

import io
from textwrap import dedent
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from rich.console import Console

import shardwise as sw
from shardwise._src.debug.visualize_sharding import (
    MeshPicture,
    ShardingPicture,
    blocks,
    visualize_array_sharding,
    visualize_mesh,
    visualize_sharding,
)
from shardwise._src.types.tiling import Tiling


def mesh(**sizes: int) -> Mesh:
    shape = tuple(sizes.values())
    return Mesh(np.array(jax.devices("cpu")[: np.prod(shape)]).reshape(shape), tuple(sizes))


FLAT, CUBE = dict(data=4, model=2), dict(a=2, b=2, c=2)


def printed(picture, width: int = 80) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(picture)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def draw(shape, spec, width: int = 80, sizes=FLAT, **options) -> str:
    return printed(ShardingPicture(shape, NamedSharding(mesh(**sizes), spec), **options), width)


def check(drawn: str, expected: str) -> None:
    assert drawn == dedent(expected).strip("\n")


class Device(SimpleNamespace):
    """A fake device; unlike its base class it can be a key."""

    __hash__ = object.__hash__


def simulated(cuts: tuple[int, ...]) -> SimpleNamespace:
    """A sharding that splits dimension `i` into `cuts[i]` blocks, one for each fake device."""

    def devices_indices_map(shape):
        steps = [-(-size // cut) for size, cut in zip(shape, cuts, strict=True)]
        return {
            Device(id=i, platform="tpu"): tuple(
                slice(min(size, at * step), min(size, (at + 1) * step))
                for size, at, step in zip(shape, place, steps, strict=True)
            )
            for i, place in enumerate(np.ndindex(*cuts))
        }

    return SimpleNamespace(devices_indices_map=devices_indices_map)


# ---- one and two dimensions ----------------------------------------------------------------------


def test_scalar():
    expected = """
 ┌─────────────────────┐
 │ CPU 0,1,2,3,4,5,6,7 │
 └─────────────────────┘
"""
    assert draw((), P()) == expected.strip("\n")


def test_one_dimension():
    expected = """
  0:4       4:8       8:12      12:16
 ┌─────────┬─────────┬─────────┬─────────┐
 │ CPU 0,1 │ CPU 2,3 │ CPU 4,5 │ CPU 6,7 │
 └─────────┴─────────┴─────────┴─────────┘
"""
    assert draw((16,), P("data")) == expected.strip("\n")


def test_two_dimensions():
    check(
        draw((8, 16), P("data", "model")),
        """
             0:8     8:16
            ┌───────┬───────┐
        0:2 │ CPU 0 │ CPU 1 │
            ├───────┼───────┤
        2:4 │ CPU 2 │ CPU 3 │
            ├───────┼───────┤
        4:6 │ CPU 4 │ CPU 5 │
            ├───────┼───────┤
        6:8 │ CPU 6 │ CPU 7 │
            └───────┴───────┘
        """,
    )


def test_replicated_over_one_axis():
    check(
        draw((8, 16), P(None, "model")),
        """
             0:8           8:16
            ┌─────────────┬─────────────┐
        0:8 │ CPU 0,2,4,6 │ CPU 1,3,5,7 │
            └─────────────┴─────────────┘
        """,
    )


def test_narrow_terminal_wraps_device_lists():
    expected = """
  0:4      4:8      8:12     12:16
 ┌────────┬────────┬────────┬────────┐
 │ CPU 0, │ CPU 2, │ CPU 4, │ CPU 6, │
 │   1    │   3    │   5    │   7    │
 └────────┴────────┴────────┴────────┘
"""
    assert draw((16,), P("data"), width=40) == expected.strip("\n")


def test_too_narrow_for_boxes_is_a_table():
    check(
        draw((64,), P(("data", "model")), width=30),
        """
        ┏━━━━━━━━━┳━━━━━━━━━┓
        ┃ block   ┃ devices ┃
        ┡━━━━━━━━━╇━━━━━━━━━┩
        │ [0:8]   │ CPU 0   │
        │ [8:16]  │ CPU 1   │
        │ [16:24] │ CPU 2   │
        │ [24:32] │ CPU 3   │
        │ [32:40] │ CPU 4   │
        │ [40:48] │ CPU 5   │
        │ [48:56] │ CPU 6   │
        │ [56:64] │ CPU 7   │
        └─────────┴─────────┘
        """,
    )


# ---- more dimensions -----------------------------------------------------------------------------


def test_three_dimensions_split_in_two():
    check(
        draw((4, 8, 16), P("model", None, "data")),
        """
        [rows, :, columns]
             0:4     4:8     8:12    12:16
            ┌───────┬───────┬───────┬───────┐
        0:2 │ CPU 0 │ CPU 2 │ CPU 4 │ CPU 6 │
            ├───────┼───────┼───────┼───────┤
        2:4 │ CPU 1 │ CPU 3 │ CPU 5 │ CPU 7 │
            └───────┴───────┴───────┴───────┘
        """,
    )


def test_three_dimensions_split_in_one():
    check(
        draw((4, 8, 16), P(None, "model")),
        """
        [:, rows, columns]
             0:16
            ┌─────────────┐
        0:4 │ CPU 0,2,4,6 │
            ├─────────────┤
        4:8 │ CPU 1,3,5,7 │
            └─────────────┘
        """,
    )


def test_three_split_dimensions_are_slices():
    check(
        draw((4, 8, 16), P("a", "b", "c"), sizes=CUBE),
        """
        [0:2, rows, columns]   [2:4, rows, columns]
             0:8     8:16           0:8     8:16
            ┌───────┬───────┐      ┌───────┬───────┐
        0:4 │ CPU 0 │ CPU 1 │  0:4 │ CPU 4 │ CPU 5 │
            ├───────┼───────┤      ├───────┼───────┤
        4:8 │ CPU 2 │ CPU 3 │  4:8 │ CPU 6 │ CPU 7 │
            └───────┴───────┘      └───────┴───────┘
        """,
    )
    below = draw((4, 8, 16), P("a", "b", "c"), 40, sizes=CUBE).splitlines()
    assert [line for line in below if "rows" in line] == [
        "[0:2, rows, columns]",
        "[2:4, rows, columns]",
    ]


def test_many_slices_leave_out_the_middle():
    drawn = printed(ShardingPicture((32, 4, 4), simulated((32, 4, 4))), 60)
    lines = drawn.splitlines()
    headings = [line for line in lines if "rows" in line]
    assert headings == [f"[{at}, rows, columns]" for at in ("0:1", "1:2", "31:32")]
    assert lines[-2:] == [
        "    └─────────┴─────────┴─────────┴─────────┘",
        "512 blocks, some of which are not shown.",
    ]


def test_many_blocks_leave_out_the_middle():
    drawn = printed(ShardingPicture((12, 1000), simulated((12, 1000))), 40)
    check(
        "\n".join([*drawn.splitlines()[:5], *drawn.splitlines()[-8:]]),
        """
               0:1      1:2      …   999:1000
              ┌────────┬────────┬───┬─────────┐
          0:1 │ TPU 0  │ TPU 1  │ … │ TPU 999 │
              ├────────┼────────┼───┼─────────┤
          1:2 │  TPU   │  TPU   │ … │   TPU   │
              ├────────┼────────┼───┼─────────┤
            … │   …    │   …    │ … │    …    │
              ├────────┼────────┼───┼─────────┤
        11:12 │  TPU   │  TPU   │ … │   TPU   │
              │ 11000  │ 11001  │   │  11999  │
              └────────┴────────┴───┴─────────┘
        12,000 blocks, some of which are not
        shown.
        """,
    )


def test_eight_thousand_devices_are_not_all_drawn():
    drawn = printed(ShardingPicture((128, 64), simulated((128, 64))), 80)
    assert len(drawn.splitlines()) < 40
    assert drawn.splitlines()[-1] == "8,192 blocks, some of which are not shown."


# ---- uneven, colored, large ---------------------------------------------------------------------


def test_sizes_are_drawn_in_proportion():
    check(
        printed(ShardingPicture((5, 3), simulated((2, 2)))),
        """
             0:2            2:3
            ┌──────────────┬───────┐
        0:3 │    TPU 0     │ TPU 1 │
            │              │       │
            ├──────────────┼───────┤
        3:5 │    TPU 2     │ TPU 3 │
            └──────────────┴───────┘
        """,
    )


def test_blocks_without_elements():
    expected = """
  0:2          2:4          4:5      5:5
 ┌────────────┬────────────┬────────┬──────────┐
 │   TPU 0    │   TPU 1    │ TPU 2  │  TPU 3   │
 │            │            │        │ (empty)  │
 └────────────┴────────────┴────────┴──────────┘
"""
    assert printed(ShardingPicture((5,), simulated((4,))), 50) == expected.strip("\n")
    check(
        printed(ShardingPicture((0, 4), simulated((2, 1)))),
        """
             0:4
            ┌─────────────────┐
        0:0 │ TPU 0,1 (empty) │
            └─────────────────┘
        """,
    )


def test_scale():
    check(
        draw((8, 16), P("model"), scale=2),
        """
             0:16
            ┌──────────────────────────┐
        0:4 │       CPU 0,2,4,6        │
            │                          │
            ├──────────────────────────┤
        4:8 │       CPU 1,3,5,7        │
            │                          │
            └──────────────────────────┘
        """,
    )


def test_long_device_lists_show_ends_and_length():
    devices = [Device(id=i, platform="tpu") for i in range(4096)]
    whole = SimpleNamespace(
        devices_indices_map=lambda shape: dict.fromkeys(devices, (slice(None),))
    )
    assert "TPU 0,1,…,4095 (4096)" in printed(ShardingPicture((8,), whole))


def test_blocks_lists_ranges_and_holders():
    cut = blocks((8, 16), NamedSharding(mesh(**FLAT), P(None, "model")))
    assert cut.ranges == (((0, 8),), ((0, 8), (8, 16)))
    ids = {place: [device.id for device in devices] for place, devices in cut.holders.items()}
    assert ids == {(0, 0): [0, 2, 4, 6], (0, 1): [1, 3, 5, 7]}


def test_devices_of_other_processes_are_marked():
    devices = [Device(id=i, platform="gpu", process_index=i // 4) for i in range(12)]
    spread = sw.sharding.NamedSharding(
        sw.sharding.Mesh(np.array(devices).reshape(3, 4), ("host", "x")), sw.P("x")
    )
    expected = """
  0:2              2:4              4:6              6:8
 ┌────────────────┬────────────────┬────────────────┬────────────────┐
 │  GPU 0, p1:4,  │  GPU 1, p1:5,  │  GPU 2, p1:6,  │  GPU 3, p1:7,  │
 │      p2:8      │      p2:9      │     p2:10      │     p2:11      │
 └────────────────┴────────────────┴────────────────┴────────────────┘
p1 to p2: devices of other processes; this is process 0.
"""
    assert printed(ShardingPicture((8,), spread), 70) == expected.strip("\n")


def test_any_kind_of_sharding():
    devices = sw.devices("cpu")[:4]
    by_hand = sw.sharding.GSPMDSharding(
        devices, Tiling((1, 2), (4,), (0,), True, assignment=(3, 0, 1, 2))
    )
    check(
        printed(ShardingPicture((2, 6), by_hand)),
        """
             0:3       3:6
            ┌─────────┬─────────┐
        0:2 │ CPU 0,3 │ CPU 1,2 │
            └─────────┴─────────┘
        """,
    )
    positional = sw.sharding.PositionalSharding(devices).reshape(2, 2)
    check(
        printed(ShardingPicture((3, 4), positional)),
        """
             0:2     2:4
            ┌───────┬───────┐
        0:2 │ CPU 0 │ CPU 1 │
            │       │       │
            ├───────┼───────┤
        2:3 │ CPU 2 │ CPU 3 │
            └───────┴───────┘
        """,
    )


def test_names_of_axes_are_one_line_of_text():
    named = mesh(**{"a\n\x1b[31m": 2, "[red]": 2})
    check(
        printed(MeshPicture(named)),
        """
        mesh of 4 devices (a��[31m: 2, [red]: 2)
                   [red]=0   [red]=1
                  ┌─────────┬─────────┐
        a��[31m=0 │  CPU 0  │  CPU 1  │
                  ├─────────┼─────────┤
        a��[31m=1 │  CPU 2  │  CPU 3  │
                  └─────────┴─────────┘
        """,
    )


@pytest.mark.parametrize(
    "environment, colored", [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colours_are_for_terminals_that_want_them(monkeypatch, environment, colored):
    for name, value in {"TERM": "xterm-256color", "COLORTERM": "", **environment}.items():
        monkeypatch.setenv(name, value)
    out = Terminal()
    visualize_sharding((8,), NamedSharding(mesh(**FLAT), P("data")), console=Console(file=out))
    assert ("48;5;" in out.getvalue()) == colored


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("use_color", [True, False])
def test_one_colour_per_block(use_color):
    console = Console(width=80, color_system="256", force_terminal=True)
    sharding = NamedSharding(mesh(**FLAT), P("data", "model"))
    with console.capture() as captured:
        visualize_sharding((8, 16), sharding, use_color=use_color, console=console)
    escapes = {part.split("m")[0] for part in captured.get().split("\x1b[") if "48;5;" in part}
    assert len(escapes) == (8 if use_color else 0)


def test_a_map_of_colours():
    asked = []

    def grey(x):
        asked.append(x)
        return (x, x, x, 1.0)

    console = Console(width=80, color_system="truecolor", force_terminal=True)
    with console.capture() as captured:
        sharding = NamedSharding(mesh(**FLAT), P("data", "model"))
        visualize_sharding((8, 16), sharding, color_map=grey, console=console)
    assert sorted(set(asked)) == [i / 7 for i in range(8)]
    used = {part.split("m")[0] for part in captured.get().split("\x1b[") if "48;2;" in part}
    levels = [round(255 * i / 7) for i in range(8)]
    assert {u.split("48;2;")[1] for u in used} == {f"{n};{n};{n}" for n in levels}
    inks = {int(u.rpartition(";")[2]): u.partition(";")[0] for u in used}
    assert [inks[n] for n in levels] == ["37"] * 6 + ["30"] * 2


@pytest.mark.parametrize("width", [20, 33, 57, 80])
@pytest.mark.parametrize("spec", [P(), P("data"), P("model", "data"), P(("data", "model"))])
def test_never_wider_than_the_terminal(width, spec):
    assert max(map(len, draw((64, 64), spec, width=width).splitlines())) <= width


def test_arrays_print(capsys):
    x = jax.device_put(np.zeros((8, 16)), NamedSharding(mesh(**FLAT), P("data", "model")))
    visualize_array_sharding(x, max_width=40)
    assert "6:8 │ CPU 6 │ CPU 7 │" in capsys.readouterr().out


# ---- meshes --------------------------------------------------------------------------------------


def test_mesh():
    check(
        printed(MeshPicture(mesh(**FLAT))),
        """
        mesh of 8 devices (data: 4, model: 2)
                model=0   model=1
               ┌─────────┬─────────┐
        data=0 │  CPU 0  │  CPU 1  │
               ├─────────┼─────────┤
        data=1 │  CPU 2  │  CPU 3  │
               ├─────────┼─────────┤
        data=2 │  CPU 4  │  CPU 5  │
               ├─────────┼─────────┤
        data=3 │  CPU 6  │  CPU 7  │
               └─────────┴─────────┘
        """,
    )


def test_mesh_of_three_axes(capsys):
    visualize_mesh(mesh(**CUBE), console=Console(width=80, color_system=None))
    check(
        "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()),
        """
        mesh of 8 devices (a: 2, b: 2, c: 2)
        a=0                    a=1
             c=0     c=1            c=0     c=1
            ┌───────┬───────┐      ┌───────┬───────┐
        b=0 │ CPU 0 │ CPU 1 │  b=0 │ CPU 4 │ CPU 5 │
            ├───────┼───────┤      ├───────┼───────┤
        b=1 │ CPU 2 │ CPU 3 │  b=1 │ CPU 6 │ CPU 7 │
            └───────┴───────┘      └───────┴───────┘
        """,
    )


def test_mesh_too_wide_for_boxes_lists_ids():
    check(
        printed(MeshPicture(mesh(x=8)), 40),
        """
        mesh of 8 devices (x: 8)
        0 1 2 3 4 5 6 7
        """,
    )
    drawn = printed(MeshPicture(mesh(**FLAT)), 20)
    check(
        drawn,
        """
        mesh of 8 devices
        (data: 4, model: 2)
        data=0: 0 1
        data=1: 2 3
        data=2: 4 5
        data=3: 6 7
        """,
    )
