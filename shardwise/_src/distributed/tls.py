"""TLS between processes: certificate files, and the context that uses them."""

from __future__ import annotations

import os
import ssl
from typing import Any, NamedTuple

from shardwise._src.base import config
from shardwise._src.runtime import backend, processes


class Tls(NamedTuple):
    """The files for TLS between processes, and the required prefix of peers' URI names."""

    cert: str
    key: str
    ca: str
    uri_prefix: str | None


def tls_files(
    cert: Any = None,
    key: Any = None,
    ca: Any = None,
    prefix: Any = None,
    demanded: bool | None = None,
) -> Tls | None:
    """The TLS files, from the arguments or flags; None without TLS."""
    given = {
        "mtls_cert_file": cert or config.mtls_cert_file.value,
        "mtls_key_file": key or config.mtls_key_file.value,
        "mtls_ca_file": ca or config.mtls_ca_file.value,
    }
    prefix = prefix or config.mtls_peer_uri_prefix.value
    missing = [name for name, value in given.items() if not value]
    if len(missing) == 3:
        if config.distributed_verify_secure_credentials.value if demanded is None else demanded:
            raise ValueError(
                "initialize: verify_secure_credentials requires TLS: pass mtls_cert_file, "
                "mtls_key_file and mtls_ca_file."
            )
        return None
    if missing:
        raise ValueError(
            f"initialize: {', '.join(missing)} missing: TLS needs the certificate of this process, "
            "its key, and the certificate authority of its peers."
        )
    if not processes.HAS_TLS:
        raise RuntimeError(
            f"initialize: jaxlib {backend.JAXLIB_VERSION} does not support TLS between processes; "
            "0.11.2 and later do (Python 3.12 and later)."
        )
    for name, path in given.items():
        if not os.path.isfile(path):
            raise ValueError(f"initialize: {name}: there is no file {str(path)!r}.")
    if prefix is not None and not prefix.endswith("/"):
        raise ValueError(
            "initialize: mtls_peer_uri_prefix must end with '/', because longer names would match "
            f"otherwise; got {prefix!r}."
        )
    cert, key, ca = map(str, given.values())
    return Tls(cert, key, ca, prefix)


def tls_context(tls: Tls | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    context = ssl.create_default_context(cafile=tls.ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(tls.cert, tls.key)
    if tls.uri_prefix is not None:
        context.check_hostname = False
    return context
