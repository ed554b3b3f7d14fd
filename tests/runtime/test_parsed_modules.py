"""Parsed modules, which jaxlib compiles without a lock."""

from shardwise._src.runtime.compiler.shardy import parsed

TEXT = """module @m {
  func.func public @main(%arg0: tensor<f32>) -> tensor<f32> { return %arg0 : tensor<f32> }
}"""


def test_each_has_a_context_of_its_own():
    """XLA's passes over modules of one context, in several threads, end the process."""
    one, two = parsed(TEXT), parsed(TEXT)
    assert one.context is not two.context and str(one) == str(two)
