"""The messages of the check of a kernel's memory."""

from __future__ import annotations

from typing import Any

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

    def here(self, device: Any) -> str:
        return f"{self.who(device.number, device.program)}, at {describe(device.site)}"

    def _of(self, buffer: Buffer) -> str:
        return f" of device {buffer.device}" if self.in_mesh else ""

    def _does(self, event: Event, what: str = "it") -> str:
        who, where = self.who(event.device, event.program), describe(event.site)
        if event.is_copy:
            verb = event.kind.removeprefix("copy ")
            return f"the copy that {who} starts at {where} {verb} {what}"
        return f"{who} {event.kind} {what} at {where}"

    def race(self, buffer: Buffer, element: int, first: Event, second: Event) -> KernelError:
        """Of two accesses that nothing orders."""
        if first.kind == ENTRY:
            what = f"{buffer.name} of device {buffer.device}"
            return self.error(f"{self._does(second, 'to ' + what)}, {NOT_ENTERED}")
        place = buffer.text(element)
        return self.error(
            f"a race on {place}{self._of(buffer)}: {self._does(first)}, and {self._does(second)}, "
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

    def outside(
        self, version: Any, d: int, start: int, last: int, n: int, device: Any
    ) -> KernelError:
        name, shape = version.buffer.name, as_text(version.ids.shape)
        what = f"element {start} is" if start == last else f"elements {start} to {last} are"
        return self.error(
            f"{name}: {what} outside of the ref of {shape} elements along dimension {d}, of size "
            f"{n}: {self.here(device)}. Compiled, other elements are accessed."
        )

    def outside_block(self, buffer: Buffer, at: Any, device: Any) -> KernelError:
        return self.error(
            f"{buffer.name}: {self.who(device.number, device.program)} has block {as_text(at)}, "
            "which is outside of the array."
        )

    def collective(self, name: str) -> NotImplementedError:
        return NotImplementedError(
            f"kernel {self.launch.name}: its body has the operation {name} over devices, which "
            "the check does not interpret. Use copies and semaphores, or call it outside of the "
            "kernel."
        )

    def outside_array(self, version: Any, index: Any, device: Any) -> KernelError:
        return self.error(
            f"{version.buffer.name}: the index {as_text(index)} of an array of indices is outside "
            f"of the ref of {as_text(version.ids.shape)} elements, and what is written there is "
            f"dropped: {self.here(device)}."
        )

    def undefined(self, what: str, origin: Origin | None, device: Any) -> KernelError:
        return self.error(f"{what} of {self.here(device)}, {_depends(origin)}")

    def result(self, buffer: Buffer, element: int, event: Event) -> KernelError:
        """Of an element of a result that is not defined at the end."""
        place = f"{buffer.text(element)}{self._of(buffer)}"
        if event.kind == ENTRY:
            return self.error(f"no program writes {place}.")
        return self.error(f"{self._does(event, place)}, and the value {_depends(event.origin)}")

    def no_device(self, number: int, count: int, device: Any) -> KernelError:
        return self.error(
            f"there is no device {number}: the mesh has {count} devices: {self.here(device)}."
        )

    def not_entered(self, buffer: Buffer, number: int, device: Any) -> KernelError:
        return self.error(
            f"{self.here(device)}, accesses {buffer.name} of device {number}, {NOT_ENTERED}"
        )

    def not_waited(self, buffer: Buffer, event: Event, moment: str) -> KernelError:
        what = f"{buffer.name}{self._of(buffer)}"
        return self.error(
            f"{self._does(event, what)}, and may not have ended {moment}. Call its `wait`."
        )

    def left(self, buffer: Buffer, element: int, semaphore: Any, moment: str) -> KernelError:
        last = semaphore.signals[-1].event
        place = buffer.place(element)
        name = f"{buffer.name}{'[' + ', '.join(map(str, place)) + ']' if place else ''}"
        return self.error(
            f"the semaphore {name}{self._of(buffer)} has {semaphore.count}{buffer.unit} {moment}, "
            f"and must have 0. Its last signal is from {self.who(last.device, last.program)}, at "
            f"{describe(last.site)}."
        )

    def deadlock(self, devices: Any) -> KernelError:
        rows = []
        for device in devices:
            if device.waits is None:
                continue
            semaphore, buffer, amount = device.waits
            who = self.who(device.number, device.program)
            what = f"waits for {amount}{buffer.unit} of" if amount else "reads"
            rows.append(
                f"{who} {what} the semaphore {buffer.name}, which has "
                f"{semaphore.count}, at {describe(device.site)}"
            )
        return self.error(
            f"a deadlock: {'; '.join(rows)}. No copy or signal is left that could end the wait."
        )


def _depends(origin: Origin | None) -> str:
    assert origin is not None  # of an undefined value
    where = describe(origin.site)
    if origin.is_outside:
        return f"depends on {origin.element}, read at {where}. Mask it."
    return f"depends on {origin.element}, which was not written before it is read at {where}."
