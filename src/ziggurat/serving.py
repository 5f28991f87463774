"""Serves a web page and the objects of a zarr store to the browsers of this computer, read-only."""

import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources.abc import Traversable
from typing import Any, override
from urllib.parse import unquote, urlsplit

from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from ziggurat.errors import ViewError
from ziggurat.retry import innermost

__all__ = ["Server", "Source", "parse_range"]

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}

# The page needs nothing from elsewhere, and nothing else may use what is served here. The codecs of
# blosc, zstd and lz4 carry their WebAssembly in data: URLs and make functions of texts; neither reaches the network.
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-eval'; connect-src 'self' data:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class _Refused(Exception):
    """A request that is answered with a status and nothing else."""

    def __init__(self, status: HTTPStatus, headers: dict[str, str] | None = None) -> None:
        self.status, self.headers = status, headers or {}


@dataclass(frozen=True, slots=True)
class Source:
    """What is under ``/data/``: the objects of `store` whose keys begin with `root`, and no others."""

    store: Store
    root: str = ""

    def get(self, path: str, byte_range: ByteRequest | None = None) -> bytes | None:
        """Return an object, or part of it; None where there is none."""
        buffer = sync(self.store.get(self._key(path), default_buffer_prototype(), byte_range))
        return None if buffer is None else buffer.to_bytes()

    def size(self, path: str) -> int | None:
        """Return the bytes that an object has; None where there is none."""
        try:
            return sync(self.store.getsize(self._key(path)))
        except (FileNotFoundError, KeyError):
            return None

    def _key(self, path: str) -> str:
        """Return the key for a decoded path of a URL; refuse what would leave the root."""
        if any(part in ("", ".", "..") for part in path.split("/")) or re.search(r"[\\\0]", path):
            raise _Refused(HTTPStatus.FORBIDDEN)
        key = f"{self.root}/{path}".lstrip("/")
        inner = innermost(self.store)
        if isinstance(inner, LocalStore):
            target, top = (inner.root / key).resolve(), (inner.root / self.root).resolve()
            if not target.is_relative_to(top):
                raise _Refused(HTTPStatus.FORBIDDEN)
            if target.is_dir():
                raise _Refused(HTTPStatus.NOT_FOUND)
        return key


@dataclass(frozen=True, slots=True)
class Site:
    """All that is served: the files of the page, what it is told, and the pixels."""

    page: Traversable
    info: dict[str, Any]
    data: Source
    files: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "files", frozenset(f.name for f in self.page.iterdir() if f.is_file()))


class Server(ThreadingHTTPServer):
    """An HTTP server on the loopback interface; port 0 is any that is free.

    Raises
    ------
    ViewError
        When the port is taken, or may not be used.
    """

    daemon_threads = True
    is_closed = False

    def __init__(self, page: Traversable, info: dict[str, Any], data: Source, port: int = 0) -> None:
        self.site = Site(page, info, data)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as e:
            raise ViewError(f"port {port} cannot be used: {e}; leave it out for one that is free") from e

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_address[1]}/"

    @override
    def server_close(self) -> None:
        """Close; connections that browsers keep open are answered no more."""
        self.is_closed = True
        super().server_close()

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser hangs up whenever a tile is no longer wanted."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # Headers and body are two packets; Nagle's algorithm would hold back the second for 40 ms.
    disable_nagle_algorithm = True
    timeout = 60

    def do_GET(self) -> None:
        if self.server.is_closed:
            self.close_connection = True
            return
        try:
            self._check_host()
            self._answer(unquote(urlsplit(self.path).path))
        except _Refused as refused:
            self._send(refused.status, b"", "text/plain", refused.headers)
        except ConnectionError:
            raise
        except Exception as error:
            # Never a 404: the page would show an object that cannot be read as empty.
            text = f"{type(error).__name__}: {error}".encode()
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, text, "text/plain", {})

    do_HEAD = do_GET

    def _not_allowed(self) -> None:
        self.close_connection = True
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"", "text/plain", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed

    def _check_host(self) -> None:
        """Refuse names other than this computer's: another site's name may be made to point here."""
        if self.headers.get("Host", "").partition(":")[0] not in ("127.0.0.1", "localhost"):
            raise _Refused(HTTPStatus.FORBIDDEN)

    def _answer(self, path: str) -> None:
        site = self.server.site
        if path.startswith("/data/"):
            self._answer_data(site.data, path.removeprefix("/data/"))
        elif path == "/info.json":
            self._send(HTTPStatus.OK, json.dumps(site.info).encode(), "application/json", {})
        elif (name := path.removeprefix("/") or "index.html") in site.files:
            kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
            self._send(HTTPStatus.OK, (site.page / name).read_bytes(), f"{kind}; charset=utf-8", {})
        else:
            raise _Refused(HTTPStatus.NOT_FOUND)

    def _answer_data(self, data: Source, path: str) -> None:
        binary, headers = "application/octet-stream", {"Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range", "")
        if self.command == "GET" and not wanted:
            self._send(HTTPStatus.OK, _found(data.get(path)), binary, headers)
            return
        n_bytes = _found(data.size(path))
        found = parse_range(wanted, n_bytes) if self.command == "GET" else None
        if found is None:
            body = b"" if self.command == "HEAD" else _found(data.get(path))
            self._send(HTTPStatus.OK, body, binary, headers, n_bytes)
            return
        start, stop = found
        if start >= stop:
            raise _Refused(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {"Content-Range": f"bytes */{n_bytes}"})
        body = _found(data.get(path, RangeByteRequest(start, stop)))
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{n_bytes}"
        self._send(HTTPStatus.PARTIAL_CONTENT, body, binary, headers)

    def _send(
        self, status: HTTPStatus, body: bytes, kind: str, headers: dict[str, str], n_bytes: int | None = None
    ) -> None:
        self.send_response(status)
        length = str(len(body) if n_bytes is None or body else n_bytes)
        for name, value in (_HEADERS | headers | {"Content-Type": kind, "Content-Length": length}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a page asks for hundreds of chunks."""


def _found[T](value: T | None) -> T:
    if value is None:
        raise _Refused(HTTPStatus.NOT_FOUND)
    return value


def parse_range(header: str, n_bytes: int) -> tuple[int, int] | None:
    """Return the bytes ``[start, stop)`` that a Range header asks for, empty where there are none.

    None stands for all of them: that is the answer to a header that is not understood, and to several ranges.

    Examples
    --------
    >>> parse_range("bytes=2-5", 10), parse_range("bytes=8-", 10), parse_range("bytes=-3", 10)
    ((2, 6), (8, 10), (7, 10))
    >>> parse_range("bytes=10-", 10), parse_range("bytes=5-2", 10)
    ((10, 10), None)
    """
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header.strip(), re.ASCII)
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    if not first:
        return max(0, n_bytes - int(last)), n_bytes
    start, stop = int(first), int(last) + 1 if last else n_bytes
    if last and stop <= start:
        return None
    return min(start, n_bytes), min(stop, n_bytes)
