"""What a table of calls is, and why a function is in none."""

from collections.abc import Mapping

# (kind, namespace): {"eager call | call under jit, where it is another, or -": functions}
Table = Mapping[tuple[str, str], Mapping[str, str]]
# namespace: {reason: functions that both libraries have and nobody times}
LeftOut = Mapping[str, Mapping[str, str]]

A_CLASS = "an abstract class or a type, nothing to call"
