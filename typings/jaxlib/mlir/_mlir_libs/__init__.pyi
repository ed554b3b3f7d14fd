# jaxlib ships no type stubs. This one says that every name exists and is `Any`, so that strict
# checking of shardwise/runtime is about our own code; tests/runtime/test_seam.py checks the names.
from typing import Any

def __getattr__(name: str) -> Any: ...
