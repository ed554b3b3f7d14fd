"""The types of tables of calls, and the reasons why functions are in none."""

from collections.abc import Mapping

# (kind, namespace): {"eager call | call under jit, where it is another, or -": functions}
Table = Mapping[tuple[str, str], Mapping[str, str]]
# namespace: {reason: functions of both libraries that are not timed}
LeftOut = Mapping[str, Mapping[str, str]]

A_CLASS = "an abstract class or a type, nothing to call"
