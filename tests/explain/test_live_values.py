"""The values that are alive where a scheduled program needs most memory."""

from shardwise._src.explain.hlo import read
from shardwise._src.explain.live_values import live_values

TEXT = """HloModule jit_f, is_scheduled=true, input_output_alias={ {1}: (1, {}, may-alias) }

%body (p: (f32[8], f32[8])) -> (f32[8], f32[8]) {
  %p = (f32[8]{0}, f32[8]{0}) parameter(0)
  %a = f32[8]{0} get-tuple-element(%p), index=0
  %big = f32[1024]{0} broadcast(%a), dimensions={}
  %b = f32[8]{0} slice(%big), slice={[0:8]}
  ROOT %r = (f32[8]{0}, f32[8]{0}) tuple(%a, %b)
}

%cond (q: (f32[8], f32[8])) -> pred[] {
  %q = (f32[8]{0}, f32[8]{0}) parameter(0)
  ROOT %t = pred[] constant(true)
}

ENTRY %main (x: f32[8], y: f32[8]) -> (f32[8], f32[8]) {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} parameter(1)
  %early = f32[64]{0} broadcast(%x), dimensions={}
  %used = f32[8]{0} slice(%early), slice={[0:8]}
  %fast = f32[4096]{0:S(1)} broadcast(%x), dimensions={}
  %started = (f32[8]{0}, f32[16]{0}) all-gather-start(%used), dimensions={0}
  %done = f32[16]{0} all-gather-done(%started)
  %held = f32[8]{0} slice(%done), slice={[0:8]}
  %both = (f32[8]{0}, f32[8]{0}) tuple(%held, %y)
  %loop = (f32[8]{0}, f32[8]{0}) while(%both), condition=%cond, body=%body
  %first = f32[8]{0} get-tuple-element(%loop), index=0
  %sum = f32[8]{0} add(%first, %used)
  ROOT %out = (f32[8]{0}, f32[8]{0}) tuple(%sum, %first)
}
"""


def test_arguments_results_and_what_is_alive_at_the_peak():
    found = [(p.instruction, p.bytes, p.kind) for p in live_values(read(TEXT))]
    assert (
        found
        == [
            ("big", 4096, "temporary"),  # in the loop, where most memory is needed
            *(("x", 32, "argument"), ("y", 32, "donated")),
            *(("sum", 32, "result"), ("used", 32, "temporary"), ("held", 32, "temporary")),
            ("b", 32, "temporary"),
        ]
        or found
    )


def test_what_an_operation_that_was_started_takes():
    text = TEXT.replace("1024", "8")
    alive = {p.instruction: p.bytes for p in live_values(read(text)) if p.kind == "temporary"}
    assert alive == {"early": 256, "used": 32}
