"""A Google Cloud Storage on the loopback interface: both of its interfaces, what was asked of it, and failures.

gcsfs speaks JSON, obstore XML; both see the same objects, as they do at Google's.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from s3 import Watched, serving

BUCKET = "images"

CODES: dict[Any, tuple[str, str, str]] = {
    503: ("backendError", "ServiceUnavailable", "We encountered an internal error. Please try again."),
    429: ("rateLimitExceeded", "SlowDown", "The object exceeded the rate limit."),
}


@dataclass(frozen=True)
class Stored:
    """One generation of an object."""

    name: str
    content: bytes
    generation: int
    time: datetime

    @property
    def md5(self) -> bytes:
        return hashlib.md5(self.content).digest()

    def as_json(self) -> dict[str, str]:
        time = self.time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "kind": "storage#object",
            "id": f"{BUCKET}/{self.name}/{self.generation}",
            "name": self.name,
            "bucket": BUCKET,
            "generation": str(self.generation),
            "metageneration": "1",
            "size": str(len(self.content)),
            "md5Hash": base64.b64encode(self.md5).decode(),
            "etag": base64.b64encode(b"\x08%d\x10\x01" % self.generation).decode(),
            "timeCreated": time,
            "updated": time,
        }

    def as_xml(self) -> str:
        time = self.time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return (
            f"<Contents><Key>{escape(self.name)}</Key><Generation>{self.generation}</Generation>"
            f"<LastModified>{time}</LastModified><ETag>&quot;{self.md5.hex()}&quot;</ETag>"
            f"<Size>{len(self.content)}</Size></Contents>"
        )

    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{self.md5.hex()}"',
            "Last-Modified": format_datetime(self.time, usegmt=True),
            "x-goog-generation": str(self.generation),
        }


@dataclass
class Answer:
    """What is sent back."""

    status: int
    body: bytes = b""
    kind: str = "application/json; charset=UTF-8"
    headers: dict[str, str] | None = None


def as_json(content: Any, status: int = 200) -> Answer:
    return Answer(status, json.dumps(content).encode())


class Server(Watched):
    """One bucket; `counts` has the requests per operation and object (or prefix), `given` the faults.

    Operations are ``get``, ``put``, ``delete``, ``stat``, ``list``, ``batch`` and ``bucket``, whichever interface they
    are asked through.
    """

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, tuple[str, bytearray]] = {}
        self.generation = 1_700_000_000_000_000
        self.page_size = 1000

    def put(self, name: str, content: bytes) -> Stored:
        with self.lock:
            self.generation += 1
            self.objects[name] = Stored(name, content, self.generation, datetime.now(UTC))
            return self.objects[name]

    def delete(self, name: str) -> bool:
        with self.lock:
            return self.objects.pop(name, None) is not None

    def listed(self, query: dict[str, str], token: str) -> tuple[list[Stored], list[str], str | None]:
        """Return a page of objects, of prefixes up to the delimiter, and where the next one starts."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        size = min(self.page_size, int(query.get("maxResults") or query.get("max-keys") or 1000))
        with self.lock:
            names = sorted(name for name in self.objects if name.startswith(prefix))
            found: dict[str, Stored | None] = {}
            for name in names:
                head, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
                found.setdefault(prefix + head + cut if cut else name, None if cut else self.objects[name])
        rest = [(name, stored) for name, stored in found.items() if name >= token]
        page, after = rest[:size], rest[size : size + 1]
        items = [stored for _, stored in page if stored is not None]
        return items, [name for name, stored in page if stored is None], after[0][0] if after else None


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    wbufsize = -1  # an answer in one piece: Nagle's algorithm would wait between two
    server: "HTTPServer"

    def log_message(self, *_: Any) -> None:
        pass

    def _any(self) -> None:
        split = urlsplit(self.path)
        self.query = dict(parse_qsl(split.query, keep_blank_values=True))
        self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        store = self.server.store
        what, key = self._asked(split.path)
        fault = store.fault(what, key)
        answer = self._failure(fault) if fault in CODES else getattr(self, f"_{what}")(key)
        self._send(answer, cut=fault == "cut")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any

    def _send(self, answer: Answer, cut: bool) -> None:
        body = b"" if self.command == "HEAD" else answer.body
        if not (cut and not body):
            self.send_response(answer.status)
            headers = {"Content-Length": str(len(answer.body)), "Content-Type": answer.kind} | (answer.headers or {})
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if cut else body)
        self.wfile.flush()
        if cut:  # hang up after half of the answer, or without one; what was asked for is done all the same
            self.close_connection = True
            self.connection.shutdown(SHUT_RDWR)

    def _asked(self, path: str) -> tuple[str, str]:
        """Return the operation, and the object it is asked for."""
        self.xml = re.match(r"/(?:(?:download|upload)/)?storage/v1/|/batch/", path) is None
        if path == "/batch/storage/v1":
            return "batch", ""
        if self.xml:
            key = unquote(path.removeprefix(f"/{BUCKET}").removeprefix("/"))
            verb = {"GET": "get", "HEAD": "stat", "PUT": "put", "DELETE": "delete"}[self.command]
            return (verb, key) if key else ("list", self.query.get("prefix", ""))
        bucket, _, key = path.partition("storage/v1/b/")[2].partition("/o")
        key = unquote(key.removeprefix("/"))
        if unquote(bucket) != BUCKET:
            return "nothing", key
        if self.command == "GET":
            media = path.startswith("/download/") or self.query.get("alt") == "media"
            listing = ("list", self.query.get("prefix", "")) if "/o" in path else ("bucket", "")
            return ("get" if media else "stat", key) if key else listing
        if self.command == "DELETE":
            return "delete", key
        return "put", self._uploaded_name()

    def _uploaded_name(self) -> str:
        upload = self.server.store.uploads.get(self.query.get("upload_id", ""))
        if upload is not None:
            return upload[0]
        return str(self.query.get("name") or json.loads(self._parts()[0])["name"])

    def _parts(self) -> list[bytes]:
        """Return the parts of a message in several parts, without their headers."""
        boundary = re.search(r'boundary="?([^";]+)', self.headers["Content-Type"])
        assert boundary is not None
        pieces = self.content.split(f"--{boundary[1]}".encode())[1:-1]
        return [re.split(rb"\r?\n\r?\n", piece, maxsplit=1)[1].removesuffix(b"\n") for piece in pieces]

    def _failure(self, status: Any) -> Answer:
        reason, code, message = CODES[status]
        return self._error(status, reason, code, message)

    def _error(self, status: int, reason: str, code: str, message: str) -> Answer:
        if self.xml:
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
            return Answer(status, text.encode(), "application/xml; charset=UTF-8")
        errors = [{"message": message, "domain": "global", "reason": reason}]
        return as_json({"error": {"code": status, "message": message, "errors": errors}}, status)

    def _missing(self, key: str) -> Answer:
        return self._error(404, "notFound", "NoSuchKey", f"No such object: {BUCKET}/{escape(key)}")

    _nothing = _missing

    def _bucket(self, key: str) -> Answer:
        return as_json({"kind": "storage#bucket", "id": BUCKET, "name": BUCKET, "location": "US"})

    def _get(self, key: str) -> Answer:
        stored = self.server.store.objects.get(key)
        if stored is None:
            return self._missing(key)
        headers, content = stored.headers(), stored.content
        if wanted := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            size = len(content)
            start = int(wanted[1]) if wanted[1] else max(0, size - int(wanted[2]))
            stop = min(size, int(wanted[2]) + 1) if wanted[1] and wanted[2] else size
            if start >= size:
                return self._error(416, "requestedRangeNotSatisfiable", "InvalidRange", "Request range not satisfiable")
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
            return Answer(206, content[start:stop], "application/octet-stream", headers)
        return Answer(200, content, "application/octet-stream", headers)

    def _stat(self, key: str) -> Answer:
        if self.xml:
            return self._get(key)
        stored = self.server.store.objects.get(key)
        return self._missing(key) if stored is None else as_json(stored.as_json())

    def _list(self, prefix: str) -> Answer:
        store, query = self.server.store, self.query
        token = query.get("continuation-token" if self.xml else "pageToken", "")
        items, prefixes, after = store.listed(query, base64.urlsafe_b64decode(token).decode())
        token = base64.urlsafe_b64encode(after.encode()).decode() if after else ""
        if self.xml:
            more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
            shared = "".join(f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in prefixes)
            contents = "".join(stored.as_xml() for stored in items)
            text = f"<?xml version='1.0'?><ListBucketResult>{contents}{shared}{more}</ListBucketResult>"
            return Answer(200, text.encode(), "application/xml; charset=UTF-8")
        page: dict[str, Any] = {"kind": "storage#objects"}
        page |= {"items": [stored.as_json() for stored in items]} if items else {}
        page |= {"prefixes": prefixes} if prefixes else {}
        return as_json(page | ({"nextPageToken": token} if token else {}))

    def _put(self, key: str) -> Answer:
        if self.xml:
            return Answer(200, headers=self.server.store.put(key, self.content).headers())
        if "upload_id" in self.query:
            return self._go_on(self.query["upload_id"])
        match self.query["uploadType"]:
            case "multipart":
                return as_json(self.server.store.put(key, self._parts()[1]).as_json())
            case "resumable":
                upload = f"upload-{len(self.server.store.uploads)}"
                self.server.store.uploads[upload] = (key, bytearray())
                where = (
                    f"{self.server.store.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable&upload_id={upload}"
                )
                return Answer(200, headers={"Location": where})
        return as_json(self.server.store.put(key, self.content).as_json())

    def _go_on(self, upload: str) -> Answer:
        """Take the next part of an object; it is there when it is whole."""
        name, content = self.server.store.uploads[upload]
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", self.headers["Content-Range"])
        assert found is not None
        content[int(found[1]) :] = self.content
        if len(content) == int(found[2]):
            return as_json(self.server.store.put(name, bytes(content)).as_json())
        return Answer(308, headers={"Range": f"bytes=0-{len(content) - 1}"})

    def _delete(self, key: str) -> Answer:
        if self.server.store.uploads.pop(self.query.get("upload_id", ""), None):
            return self._error(499, "clientClosedRequest", "", "the upload is given up")
        return Answer(204) if self.server.store.delete(key) else self._missing(key)

    def _batch(self, key: str) -> Answer:
        """Carry out each of several deletions, each with an answer, and a fault, of its own."""
        pieces = []
        for i, part in enumerate(self._parts()):
            asked = re.match(rb"DELETE /storage/v1/b/[^/]+/o/(\S+)", part)
            assert asked is not None
            name = unquote(asked[1].decode())
            fault = self.server.store.fault("delete", name)
            answer = self._failure(fault) if fault in CODES else self._delete(name)
            head = f"Content-Type: application/http\r\nContent-ID: <response-{i + 1}>\r\n\r\nHTTP/1.1 {answer.status} -"
            pieces.append(f"--batch_1\r\n{head}\r\n\r\n{answer.body.decode()}\r\n")
        return Answer(200, ("".join(pieces) + "--batch_1--").encode(), "multipart/mixed; boundary=batch_1")


class HTTPServer(ThreadingHTTPServer):
    """Listens on the loopback interface."""

    request_queue_size = 128

    def __init__(self, store: Server) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.store = store
        store.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep quiet where a client, or a fault, has hung up."""


@contextmanager
def gcs() -> Iterator[Server]:
    """Run a server that holds one empty bucket."""
    store = Server()
    with serving(HTTPServer(store)):
        yield store
