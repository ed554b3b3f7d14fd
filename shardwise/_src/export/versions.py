"""Calling-convention versions and disabled safety checks of exported functions."""

from __future__ import annotations

minimum_supported_calling_convention_version = 9
maximum_supported_calling_convention_version = 10
WHERE = "shardwise.export"


class DisabledSafetyCheck:
    """A disabled check: created with `platform()` or `custom_call(target)`."""

    __slots__ = ("_text",)

    def __init__(self, _impl: str):
        self._text = _impl

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Allows calls on platforms that the function was not exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Allows custom calls to this target, which other releases may lack."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The custom-call target that this allows, if any."""
        kind, _, name = self._text.partition(":")
        return name if kind == "custom_call" else None

    def __repr__(self) -> str:
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)
