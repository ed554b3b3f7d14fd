"""The messages of the check of a kernel's memory: who does what, and races."""

from __future__ import annotations

from shardwise._src.base.errors import KernelError
from shardwise._src.kernels.checking.shadow_memory import (
    ENTRY,
    READ,
    Buffer,
    Event,
    Origin,
    as_text,
)
from shardwise._src.kernels.launch_record import Launch
from shardwise._src.messages.source import describe

NOT_ENTERED = (
    "which may not have started the kernel yet. Let the devices wait for each other first: see "
    "`get_barrier_semaphore`."
)


class MemoryErrors:
    """in_mesh: whether several devices run the kernel. unclear: copies and signals that
    may not have ended after a wait."""

    def __init__(self, launch: Launch, in_mesh: bool):
        self.launch, self.in_mesh = launch, in_mesh
        self.unclear: set[Event] = set()

    def error(self, text: str) -> KernelError:
        return KernelError(f"kernel {self.launch.name}: {text}")

    def who(self, device: int, program: tuple[int, ...]) -> str:
        """The subject of a sentence: the device and program."""
        parts = [f"device {device}"] if self.in_mesh else []
        if self.launch.grid:
            parts.append(f"program {as_text(program)}")
        return ", ".join(parts) or "the kernel"

    def text(self, buffer: Buffer, element: int | None = None) -> str:
        """The memory, or an element of it, of a device."""
        name = buffer.name if element is None else buffer.text(element)
        return f"{name} of device {buffer.device}" if self.in_mesh else name

    def does(self, event: Event, what: str = "it") -> str:
        who, where = self.who(event.device, event.program), describe(event.site)
        if event.is_copy:
            verb = event.kind.removeprefix("copy ")
            return f"the copy that {who} starts at {where} {verb} {what}"
        return f"{who} {event.kind} {what} at {where}"

    def race(self, buffer: Buffer, element: int, first: Event, second: Event) -> KernelError:
        """Of two accesses that nothing orders."""
        if first.kind == ENTRY:
            return self.error(f"{self.does(second, 'to ' + self.text(buffer))}, {NOT_ENTERED}")
        return self.error(
            f"a race on {self.text(buffer, element)}: {self.does(first)}, and {self.does(second)}, "
            f"and neither waits for the other. {self._advice(buffer.device, first, second)}"
        )

    def _advice(self, here: int, first: Event, second: Event) -> str:
        """here: the device of the memory."""
        copies = [e for e in (first, second) if e.is_copy]
        if not self.unclear.isdisjoint(copies):
            return (
                "A wait for the semaphore of the copy may have ended because of another one that "
                "signals it: give each its own."
            )
        if first.device != second.device and here in (first.device, second.device):
            other = first.device + second.device - here
            return (
                f"Device {here} must wait for what arrives before it uses it (`wait_recv`), and "
                f"signal device {other} when it may be overwritten (`semaphore_signal`)."
            )
        if first.device != second.device:
            return (
                "Let the one device signal a semaphore of the other, which waits for it "
                "(`semaphore_signal`, `semaphore_wait`)."
            )
        if len(copies) == 2:
            return "Wait for the first copy before the second one starts."
        if copies:
            return "Call the copy's `wait` first."
        both = "write" if READ not in (first.kind, second.kind) else "use"
        return (
            "The programs differ along a parallel axis of the grid, so that they may run at the "
            f"same time, and both {both} the element. Use `atomic_add` and the other atomics, or "
            "an axis that is not parallel."
        )


def depends(origin: Origin | None) -> str:
    """What an undefined value depends on."""
    assert origin is not None
    where = describe(origin.site)
    if origin.is_outside:
        return f"depends on {origin.element}, read at {where}. Mask it."
    return f"depends on {origin.element}, which was not written before it is read at {where}."
