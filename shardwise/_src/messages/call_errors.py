"""Calls of user functions with arguments that they do not accept.

For example:

    scan: step() takes 1 positional argument but 2 were given. It was called with carry and x.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardwise._src.messages.source import is_own

_MISFIT = re.compile(r"\(\) (takes|missing|got) ")


def reject_call(error: TypeError, who: str, names: Sequence[str]) -> None:
    """Raises an error that names the arguments, if `error` is a signature mismatch.

    who: the caller. names: of the leaves of the arguments. Does nothing for errors raised inside
    the function.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not is_own(trace.tb_frame.f_code.co_filename):
        return
    if _MISFIT.search(str(error)):
        roots = dict.fromkeys(re.split(r"\W", n, maxsplit=1)[0] for n in names)
        given = " and ".join(roots) or "nothing"
        raise TypeError(f"{who}: {error}. It was called with {given}.") from None
