"""Reports built manually, for tests of how they are displayed."""

from pathlib import Path

from shardwise.explain import (
    Buffer,
    Communication,
    Computation,
    Link,
    Machine,
    Memory,
    Report,
    Seconds,
)

MACHINE = Machine("ours", {"f32": 1e12}, 1e11, 2**30, Link(1e9, 1e-6), Link(1e8, 1e-5), 8, "tables")
SOURCE = """\
def step(w, x):
    h = x @ w
    return h.sum(0) < 4
"""
PROGRAM = """\
{ lambda ; a:f32[64,64] b:f32[32,64]. let
    c:f32[32,64] = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] b a  # FILE:2 (step)
    d:f32[64] = reduce_sum[axes=(0,)] c                                         # FILE:3 (step)
    e:bool[64] = lt d 4.0:f32[]                                                 # FILE:3 (step)
  in (e,) }"""


def report(folder: Path) -> Report:
    """Writes a program `train<b>.py`; returns a report of it with every kind of entry."""
    file = folder / "train<b>.py"
    file.write_text(SOURCE)
    two, three = f"{file}:2", f"{file}:3"
    rows = (
        Communication(
            "all-gather", ("data",), 4, 10, False, 163840, ("f32",), 0.00123, "dot_general",
            "dot_general(f32[32@data,64], f32[64@data,64]) → f32[32@data,64]",
            "'data' shards dimension 0 of operand 1, which is added over", two, "step", "mlp/up",
        ),
        Communication(
            "all-reduce", ("data", "model"), 8, 1, True, 256, ("f32",), 2.5e-6, "reduce_sum",
            "reduce_sum(f32[32@data,64]) → f32[64]",
            "sums over dimension 0 of operand 0, which is sharded over 'data'", three, "step",
            shared=1,
        ),
        Communication(
            "collective-permute", None, 8, 1, True, 16, ("pred", "s32"), 1e-6, "", "",
            "the partitioner moves parts of it between devices", "", "",
        ),
    )  # fmt: skip
    buffers = (
        Buffer(16384, "argument", "params['<i>&']['w']", ""),
        *[Buffer(8192, "temporary", "dot_general(f32[32@data,64], f32[64,64])", two)] * 2,
        Buffer(256, "donated", "x", ""),
        Buffer(64, "result", "lt(f32[64], f32[]) → bool[64]", three),
    )
    return Report(
        "step", 8, {"data": 4, "model": 2}, MACHINE, rows,
        Memory(16640, 320, 256, 16384, 33088), buffers,
        Computation({"f32": 2_621_440, "bf16": 1024}, 12345, 50_000, ("ours.fft",), False),
        Seconds(2.6e-6, 5e-7, 0.0012335),
        {two: "h = x @ w", three: "return h.sum(0) < 4"},
        PROGRAM.replace("FILE", str(file)), "HloModule step\n%a = f32[2] add(%b, %c) // <script>",
    )  # fmt: skip
