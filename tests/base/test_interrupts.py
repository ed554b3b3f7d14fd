"""Blocks that defer signal handlers."""

import ast
import asyncio
import signal
import sys
import threading
from pathlib import Path

import pytest

from shardwise._src.base import interrupts
from shardwise._src.base.interrupts import uninterrupted

PACKAGE = Path(interrupts.__file__).parents[2]
SIGINT, SIGUSR1 = signal.SIGINT, signal.SIGUSR1


@pytest.fixture
def handled():
    """Sets handlers of signals, for a test; `handled(number, f)`."""
    before = {}

    def set_handler(number, handler):
        before.setdefault(number, signal.getsignal(number))
        signal.signal(number, handler)

    yield set_handler
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_interrupt_is_raised_at_the_end_of_a_block():
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(SIGINT)
        reached.append("rest of the block")
    assert reached == ["rest of the block"]
    assert signal.getsignal(SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(SIGINT)


def test_it_is_raised_at_the_end_of_the_outer_block():
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        with uninterrupted():
            signal.raise_signal(SIGINT)
        reached.append("rest of the outer block")
    assert reached == ["rest of the outer block"]


def test_a_second_one_is_raised_at_once():
    reached = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(SIGINT)
        reached.append("after the first")
        signal.raise_signal(SIGINT)
        reached.append("after the second")
    assert reached == ["after the first"]
    with uninterrupted():  # none is left
        pass


def test_it_replaces_the_error_of_a_block():
    with pytest.raises(KeyboardInterrupt) as caught, uninterrupted():
        signal.raise_signal(SIGINT)
        raise ValueError("of the block")
    assert str(caught.value.__context__) == "of the block"


def test_a_handler_of_the_program_is_called_once_with_the_frame(handled):
    calls = []
    handled(SIGINT, lambda number, frame: calls.append((number, frame.f_code.co_name)))
    with uninterrupted():
        signal.raise_signal(SIGINT)
        assert calls == []
    assert calls == [(SIGINT, "test_a_handler_of_the_program_is_called_once_with_the_frame")]


def test_handlers_of_several_signals_are_called_though_one_raises(handled):
    calls = []
    handled(SIGUSR1, lambda number, frame: calls.append(number))
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(SIGUSR1)
        signal.raise_signal(SIGINT)
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(SIGINT)
        signal.raise_signal(SIGUSR1)
    assert calls == [SIGUSR1, SIGUSR1]


def test_a_handler_that_is_set_in_a_block_stays_and_is_called(handled):
    calls = []
    handled(SIGINT, signal.default_int_handler)

    def new(number, frame):
        calls.append(number)

    with uninterrupted():
        signal.raise_signal(SIGINT)
        signal.signal(SIGINT, new)
    assert calls == [SIGINT] and signal.getsignal(SIGINT) is new
    with uninterrupted():
        signal.raise_signal(SIGINT)
        signal.signal(SIGINT, signal.SIG_IGN)
    assert calls == [SIGINT] and signal.getsignal(SIGINT) is signal.SIG_IGN


def test_code_that_sets_the_handler_of_a_block_again_later(handled):
    handled(SIGINT, signal.default_int_handler)
    with uninterrupted():
        found = signal.getsignal(SIGINT)
    signal.signal(SIGINT, found)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(SIGINT)
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(SIGINT)


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_handlers_that_are_not_functions_are_left_alone(handled, handler):
    handled(SIGINT, handler)
    with uninterrupted():
        assert signal.getsignal(SIGINT) is handler
    assert signal.getsignal(SIGINT) is handler


def test_a_block_that_takes_long_is_cancelled(handled):
    calls = []
    handled(SIGUSR1, lambda number, frame: calls.append(number))
    with pytest.raises(KeyboardInterrupt), uninterrupted(lambda: calls.append("cancel")):
        signal.raise_signal(SIGUSR1)
        signal.raise_signal(SIGINT)
        assert calls == [SIGUSR1, "cancel"]
    handled(SIGINT, lambda number, frame: calls.append(number))
    with uninterrupted(lambda: calls.append("cancel")):
        signal.raise_signal(SIGINT)
        assert calls == [SIGUSR1, "cancel", SIGINT]


def test_a_block_within_one_that_is_cancelled_holds_the_other_signals(handled):
    """Such as an import in the loop that saves a checkpoint."""
    calls, handler = [], lambda number, frame: calls.append(number)
    handled(SIGUSR1, handler)
    with uninterrupted(lambda: calls.append("cancel")):
        with uninterrupted():
            signal.raise_signal(SIGUSR1)
            assert calls == []
        assert calls == [SIGUSR1] and signal.getsignal(SIGUSR1) is handler
        signal.raise_signal(SIGUSR1)
        assert calls == [SIGUSR1] * 2
    assert signal.getsignal(SIGUSR1) is handler


def test_a_handler_that_raises_after_a_block_within_another(handled):
    def fail(number, frame):
        raise ValueError("of a handler")

    handled(SIGUSR1, fail)
    with uninterrupted(print):
        with pytest.raises(ValueError, match="of a handler"), uninterrupted():
            signal.raise_signal(SIGUSR1)
        assert signal.getsignal(SIGUSR1) is fail
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(SIGINT)


def test_blocks_of_other_threads_change_nothing():
    entered, leave = threading.Event(), threading.Event()

    def block():
        with uninterrupted():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=block)
    thread.start()
    entered.wait()
    try:
        assert signal.getsignal(SIGINT) is signal.default_int_handler
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(SIGINT)
    finally:
        leave.set()
        thread.join()


def test_an_interrupt_cancels_the_main_task_of_asyncio():
    cancelled = []

    async def main():
        try:
            with uninterrupted():
                signal.raise_signal(SIGINT)
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert cancelled == [True]


def test_a_handler_of_a_loop_of_asyncio_is_called_once():
    calls = []

    async def main():
        loop, came = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(SIGUSR1, lambda: (calls.append(1), came.set()))
        with uninterrupted():
            signal.raise_signal(SIGUSR1)
        await came.wait()
        loop.remove_signal_handler(SIGUSR1)

    asyncio.run(main())
    assert calls == [1]


@pytest.mark.parametrize("moment", range(50))
def test_an_interrupt_at_any_step_of_a_block_is_raised_and_leaves_no_handler(moment):
    """At each executed line of the block's own functions."""
    lines = [moment]

    def trace(frame, event, _):
        if frame.f_code.co_filename != interrupts.__file__:
            return None
        if event == "line":
            lines[0] -= 1
            if lines[0] == -1:
                signal.raise_signal(SIGINT)
        return trace

    caught = False
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        with uninterrupted():
            pass
    except KeyboardInterrupt:
        caught = True
    finally:
        sys.settrace(before)
    assert caught == (lines[0] < 0)
    assert interrupts._state.depth == 0 and not interrupts._state.noted
    assert signal.getsignal(SIGINT) is signal.default_int_handler


# ------------------------------------------------------------------------ where blocks are required

EXTENSIONS = {"jaxlib", "polars", "pyarrow", "scipy", "tensorstore"}
BLOCKS = ("uninterrupted(", "in_context(")


def outside_of_blocks(source):
    """Lines of functions that import extension modules outside a block.

    Private functions may name MLIR modules: their callers are in its context.
    """
    found = []

    def visit(node, function, block):
        for child in ast.iter_child_nodes(node):
            inner_function, inner_block = function, block
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inner_function, inner_block = child.name, False
            if isinstance(child, ast.With):
                texts = [ast.unparse(item.context_expr) for item in child.items]
                inner_block = block or any(t.startswith(BLOCKS) for t in texts)
            names = []
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            if isinstance(child, ast.ImportFrom):
                names = [child.module or ""]
            bad = [n for n in names if n.partition(".")[0] in EXTENSIONS]
            inside = function.startswith("_") and all(n.startswith("jaxlib.mlir") for n in bad)
            if bad and function and not (block or inside):
                found.append(child.lineno)
            visit(child, inner_function, inner_block)

    visit(ast.parse(source), "", False)
    return found


def test_extension_modules_are_imported_in_blocks():
    paths = [p for p in PACKAGE.rglob("*.py") if "testing" not in p.parts]
    assert [(p.name, found) for p in paths if (found := outside_of_blocks(p.read_text()))] == []


@pytest.mark.parametrize("source", [
    "def f():\n    import scipy.linalg", "def f():\n    from jaxlib.mlir import ir",
    "def f():\n    with lock:\n        import jaxlib", "def _f():\n    import scipy.linalg",
])  # fmt: skip
def test_such_imports_elsewhere_are_found(source):
    assert outside_of_blocks(source) != []


def test_modules_are_imported_by_name_in_blocks():
    """`importlib.import_module` is used only for modules that are not extension modules."""
    users = {
        p.relative_to(PACKAGE).as_posix()
        for p in PACKAGE.rglob("*.py")
        if "importlib import import_module" in p.read_text()
        or "importlib.import_module" in p.read_text()
    }
    assert users == {
        "_src/base/command_line.py", "_src/base/interrupts.py", "_src/cli/demo.py",
        "_src/coordination/coordinator.py",
    }  # fmt: skip
