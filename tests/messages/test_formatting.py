"""How messages write quantities."""

from shardwise._src.messages.formatting import in_bytes


def test_bytes():
    assert [in_bytes(n) for n in (0, 1023, 1536, 3 << 20, 5 << 40)] == [
        "0 B", "1023 B", "1.5 KiB", "3.0 MiB", "5.0 TiB",
    ]  # fmt: skip
