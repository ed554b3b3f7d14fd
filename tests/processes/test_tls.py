"""Processes that join over mutual TLS."""

import subprocess
import textwrap

import pytest

from shardwise._src.runtime.backend import JAXLIB_VERSION
from shardwise._src.runtime.processes import HAS_TLS
from tests.helpers.joining import HEAD, free_port, lines, run
from tests.helpers.patience import seconds

pytestmark = pytest.mark.processes


@pytest.mark.skipif(not HAS_TLS, reason=f"jaxlib {JAXLIB_VERSION} has no TLS between processes")
def test_tls_from_end_to_end(tmp_path):
    """All connections use mutual TLS; a client without a certificate of our CA has no effect."""
    certificates(tmp_path)
    port, limit = free_port(), seconds(60)

    def program(rank, body=""):
        return (
            HEAD
            + f"""
    import numpy as np
    import shardwise.numpy as jnp
    files = {{f"mtls_{{n}}_file": f"{tmp_path}/{{n}}.pem" for n in ("cert", "key", "ca")}}
    sw.distributed.initialize("127.0.0.1:{port}", 2, {rank}, **files,
                              initialization_timeout={limit})
    {body}
    x = jnp.arange(8.0, device=sw.NamedSharding(sw.make_mesh((2,), ("x",)), sw.P("x")))
    print(float(jnp.sum(x)))
    """
        )

    stranger = (
        HEAD
        + f"""
    import ssl, socket, time
    def files(name):
        return {{f"mtls_{{n}}_file": f"{tmp_path}/{{name}}{{n}}.pem" for n in ("cert", "key")}}
    ca, foreign = "{tmp_path}/ca.pem", "{tmp_path}/foreign-ca.pem"
    def join(**how):
        attempt("127.0.0.1:{port}", 2, 1, initialization_timeout={limit}, **how)
    while True:
        try:
            socket.create_connection(("127.0.0.1", {port})).close()
            break
        except OSError:
            time.sleep(0.05)
    join()
    join(**files("foreign-"), mtls_ca_file=ca)
    join(**files(""), mtls_ca_file=foreign)
    join(**files(""), mtls_ca_file=ca, mtls_peer_uri_prefix="spiffe://example.com/")
    with socket.create_connection(("127.0.0.1", {port})) as sock:
        sock.sendall(b'{{"op": "join", "rank": 1, "count": 2}}\\n')
        try:
            print(sock.recv(100)[:1] != b"{{")
        except ConnectionResetError:
            print(True)
    """
        + textwrap.indent(textwrap.dedent(program(1)).partition("import sys\n")[2], "    ")
    )
    first, second = [lines(result) for result in run(program(0), stranger)]
    assert first == ["28.0"]
    where = f"RuntimeError: initialize: the coordinator at 127.0.0.1:{port}: "
    closed = (
        "the program listening there closed the connection{}: is it a coordinator of the same "
        "release, with TLS if and only if this process has TLS?"
    )
    # An alert may be lost if the connection is reset after it.
    reset = where + closed.format(" (Connection reset by peer)")
    assert second[0] in (where + closed.format(""), reset)
    assert second[1] in (where + closed.format(" (TLS: tlsv1 alert unknown ca)"), reset)
    assert second[2] == where + "TLS: self-signed certificate in certificate chain"
    assert second[3] == (
        where + "TLS: its certificate has no URI with the prefix 'spiffe://example.com/'"
    )
    assert second[4:] == ["True", "28.0"]


@pytest.mark.skipif(not HAS_TLS, reason=f"jaxlib {JAXLIB_VERSION} has no TLS between processes")
def test_tls_by_uris_in_certificates(tmp_path):
    """Host names are ignored then: the certificates are not for 127.0.0.2."""
    certificates(tmp_path)
    port = free_port()
    files = {n: str(tmp_path / f"{n}.pem") for n in ("cert", "key", "ca")}
    env = {f"SHARDWISE_MTLS_{n.upper()}_FILE": path for n, path in files.items()}
    env["SHARDWISE_MTLS_PEER_URI_PREFIX"] = "spiffe://example.org/"
    program = """
    at = "127.0.0.2:{}", 2, {}
    attempt(*at, mtls_peer_uri_prefix="spiffe://example.org/other/", initialization_timeout=60)
    attempt(*at)
    print(sw.device_count())
    """
    first = program.replace("attempt(*at, mtls", "dict(")
    results = run(HEAD + first.format(port, 0), HEAD + program.format(port, 1), env=env)
    assert lines(results[0]) == ["joined", "2"]
    assert lines(results[1]) == [
        f"RuntimeError: initialize: the coordinator at 127.0.0.2:{port}: TLS: its certificate has "
        "no URI with the prefix 'spiffe://example.org/other/'",
        "joined",
        "2",
    ]


def certificates(folder):
    """Writes cert.pem and key.pem, signed by ca.pem, for 127.0.0.1; foreign-* by another CA."""

    def openssl(*args):
        subprocess.run(
            ["openssl", *args], cwd=folder, check=True, capture_output=True, timeout=seconds(30)
        )

    (folder / "names").write_text(
        "subjectAltName=IP:127.0.0.1,URI:spiffe://example.org/worker\n"
        "authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n"
    )
    for kind in ("", "foreign-"):
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl(
            "req",
            "-x509",
            *curve,
            "-keyout",
            f"{kind}ca.key",
            "-out",
            f"{kind}ca.pem",
            "-days",
            "2",
            "-subj",
            f"/CN={kind}authority",
            "-addext",
            "keyUsage=critical,keyCertSign,cRLSign",
        )
        openssl(
            "req",
            *curve,
            "-keyout",
            f"{kind}key.pem",
            "-out",
            f"{kind}request",
            "-subj",
            f"/CN={kind}worker",
        )
        openssl(
            "x509",
            "-req",
            "-in",
            f"{kind}request",
            "-CA",
            f"{kind}ca.pem",
            "-CAkey",
            f"{kind}ca.key",
            "-CAcreateserial",
            "-out",
            f"{kind}cert.pem",
            "-days",
            "2",
            "-extfile",
            "names",
        )
