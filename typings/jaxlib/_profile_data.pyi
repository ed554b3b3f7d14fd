from collections.abc import Iterator
from typing import Any

class ProfileData:
    @staticmethod
    def from_serialized_xspace(serialized_xspace: bytes) -> ProfileData: ...
    @property
    def planes(self) -> Iterator[ProfilePlane]: ...

class ProfilePlane:
    @property
    def name(self) -> str: ...
    @property
    def lines(self) -> Iterator[ProfileLine]: ...

class ProfileLine:
    @property
    def name(self) -> str: ...
    @property
    def events(self) -> Iterator[ProfileEvent]: ...

class ProfileEvent:
    @property
    def name(self) -> str: ...
    @property
    def start_ns(self) -> float: ...
    @property
    def duration_ns(self) -> float: ...
    @property
    def stats(self) -> Iterator[tuple[str, Any]]: ...  # numbers, strings or bytes
