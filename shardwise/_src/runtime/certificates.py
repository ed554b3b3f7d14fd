"""What the certificate of a peer says of it, once TLS has found that it is of our authority."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl


def is_of(sock: ssl.SSLSocket, uri_prefix: str) -> bool:
    """Whether a URI in the certificate of a peer begins so."""
    names = (sock.getpeercert() or {}).get("subjectAltName", ())
    return any(kind == "URI" and str(name).startswith(uri_prefix) for kind, name in names)
