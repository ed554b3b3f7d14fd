"""Checks the names in a peer's certificate, after TLS has verified its authority."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl


def is_of(peer: ssl.SSLSocket | ssl.SSLObject, uri_prefix: str) -> bool:
    """Whether a URI in a peer's certificate has this prefix."""
    names = (peer.getpeercert() or {}).get("subjectAltName", ())
    return any(kind == "URI" and str(name).startswith(uri_prefix) for kind, name in names)
