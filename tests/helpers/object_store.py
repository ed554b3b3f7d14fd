"""An object store on loopback that answers TensorStore as S3 and Google Cloud Storage do.

    with object_store() as store:
        run(program, env={**os.environ, **store.environment})   # s3://bucket/..., gs://bucket/...
        store.objects["run/step_1/checkpoint.json"]

One bucket, named "bucket"; both URL schemes name the same objects. Supports range reads,
conditional writes and deletions, and lists. It does not authenticate.
"""

import contextlib
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"
GCS, UPLOAD = f"/storage/v1/b/{BUCKET}/o", f"/upload/storage/v1/b/{BUCKET}/o"
_NO_S3 = b"<Error><Code>NoSuchBucket</Code><Message>No such bucket</Message></Error>"
_NO_GCS = b'{"error": {"code": 404, "message": "No such bucket"}}'


class Store:
    """objects: their bytes by name; environment: variables that point TensorStore here."""

    def __init__(self, url):
        self.objects = {}
        self.lock = threading.Lock()
        self.environment = {
            "AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_EC2_METADATA_DISABLED": "true", "TENSORSTORE_GCS_HTTP_URL": url,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
        }  # fmt: skip


@contextlib.contextmanager
def object_store():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.store = Store(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def etag_of(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


def generation_of(data):
    return str(int(hashlib.md5(data).hexdigest()[:12], 16) + 1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_one_request(self):
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def _asked(self):
        """The kind of store, the object (None for all), and the query of a request."""
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        for kind, root in (("gcs", GCS), ("gcs", UPLOAD), ("s3", f"/{BUCKET}")):
            if parts.path == root or parts.path.startswith(f"{root}/"):
                name = unquote(parts.path[len(root) + 1 :])
                return kind, name or query.get("name"), query
        return "s3", None, None

    def _answer(self, status, data=b"", headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _rejected(self, kind, query, now):
        """Whether a condition fails for the current object; now: None if absent."""
        if kind == "gcs":
            wanted = query.get("ifGenerationMatch")
            return wanted is not None and wanted != ("0" if now is None else generation_of(now))
        wanted, unwanted = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if wanted is not None:
            return now is None or wanted != etag_of(now)
        return unwanted == "*" and now is not None

    def do_GET(self):
        kind, name, query = self._asked()
        store = self.server.store
        if query is None:
            return self._answer(404, _NO_GCS if "/storage/v1/" in self.path else _NO_S3)
        if name is None:
            return self._answer(200, _listed(kind, store, query))
        data = store.objects.get(name)
        if data is None:
            return self._answer(404)
        about = {"ETag": etag_of(data), "x-goog-generation": generation_of(data)}
        if self.headers.get("Range"):
            first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
            stop = min(int(last) + 1, len(data)) if last else len(data)
            about["Content-Range"] = f"bytes {int(first)}-{stop - 1}/{len(data)}"
            return self._answer(206, data[int(first) : stop], about)
        return self._answer(200, data, about)

    do_HEAD = do_GET

    def do_PUT(self):
        kind, name, query = self._asked()
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if query is None:
            return self._answer(404)
        with self.server.store.lock:
            if self._rejected(kind, query, self.server.store.objects.get(name)):
                return self._answer(412)
            self.server.store.objects[name] = data
        about = json.dumps({"name": name, "generation": generation_of(data)}).encode()
        return self._answer(200, about if kind == "gcs" else b"", {"ETag": etag_of(data)})

    do_POST = do_PUT

    def do_DELETE(self):
        kind, name, query = self._asked()
        with self.server.store.lock:
            if self._rejected(kind, query, self.server.store.objects.get(name)):
                return self._answer(412)
            gone = self.server.store.objects.pop(name, None)
        return self._answer(404 if gone is None and kind == "gcs" else 204)


def _listed(kind, store, query):
    first, end = query.get("startOffset", ""), query.get("endOffset", chr(0x10FFFF))
    names = [n for n in sorted(list(store.objects)) if first <= n < end]
    names = [n for n in names if n.startswith(query.get("prefix", ""))]
    if kind == "gcs":
        rows = [{"name": n, "size": str(len(store.objects[n]))} for n in names]
        return json.dumps({"items": rows}).encode()
    rows = [
        f"<Contents><Key>{escape(n)}</Key><Size>{len(store.objects[n])}</Size></Contents>"
        for n in names
    ]
    return (
        "<ListBucketResult><IsTruncated>false</IsTruncated>"
        f"<KeyCount>{len(rows)}</KeyCount>{''.join(rows)}</ListBucketResult>"
    ).encode()
