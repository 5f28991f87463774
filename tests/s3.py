"""An S3 server on the loopback interface that counts requests and makes some of them fail."""

import logging
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from socket import SHUT_RDWR, socket
from socketserver import BaseServer
from typing import Any, Literal
from urllib.request import Request, urlopen

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

BUCKET = "images"

type Fault = Literal[503, 429, "skewed", "cut"] | None
type Faults = Callable[[str, str, int], Fault]
"""Says what becomes of a request: by its method, its key, and which attempt it is, the first being 1."""

CODES: dict[Any, tuple[str, str, str]] = {
    503: ("503 Service Unavailable", "SlowDown", "Please reduce your request rate."),
    429: ("429 Too Many Requests", "TooManyRequests", "later"),
    "skewed": (
        "403 Forbidden",
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    ),
}


def no_faults(method: str, key: str, attempt: int) -> Fault:
    return None


def seeded(
    seed: int,
    share: float,
    n_errors: int = 2,
    keys: Callable[[str], bool] = lambda key: True,
    kinds: Sequence[Fault] = (503, 429, "skewed", "cut"),
) -> Faults:
    """Make a `share` of the keys fail `n_errors` times, each time in another way; the same ones for the same seed."""

    def faults(method: str, key: str, attempt: int) -> Fault:
        chance = zlib.crc32(f"{seed} {method} {key}".encode())
        if attempt > n_errors or chance % 1000 >= share * 1000 or not keys(key):
            return None
        return kinds[(chance // 1000 + attempt) % len(kinds)]

    return faults


class Watched:
    """A server that counts: `counts` has the requests per method (or operation) and key, `given` the faults."""

    def __init__(self) -> None:
        self.url = ""
        self.lock = threading.Lock()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.given: Counter[Fault] = Counter()
        self.faults: Faults = no_faults

    def reset(self, faults: Faults = no_faults) -> None:
        with self.lock:
            self.counts.clear()
            self.given.clear()
            self.faults = faults

    def fault(self, what: str, key: str) -> Fault:
        """Count a request, and choose what goes wrong with it."""
        with self.lock:
            self.counts[what, key] += 1
            fault = self.faults(what, key, self.counts[what, key])
            self.given[fault] += 1
            return fault


class Server(Watched):
    """What stands before the S3 application."""

    def __init__(self, application: Any) -> None:
        super().__init__()
        self.application = application

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        key = environ["PATH_INFO"].removeprefix(f"/{BUCKET}").lstrip("/")
        if environ["QUERY_STRING"]:
            key += "?" + environ["QUERY_STRING"]
        fault = self.fault(method, key)
        if fault in CODES:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            status, code, message = CODES[fault]
            body = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
            start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [b"" if method == "HEAD" else body]
        answer = self.application(environ, start_response)
        return _half(answer, environ["werkzeug.socket"]) if fault == "cut" else answer


def _half(answer: Iterable[bytes], connection: socket) -> Iterator[bytes]:
    """Hang up after half of the answer, or without one; what was asked for is done all the same."""
    body = b"".join(answer)
    if len(body) > 1:
        yield body[: len(body) // 2]
    connection.shutdown(SHUT_RDWR)
    raise ConnectionError


@contextmanager
def serving(server: BaseServer) -> Iterator[None]:
    """Serve until the block ends; the socket listens already."""
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def s3() -> Iterator[Server]:
    """Run a server that holds one empty bucket."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = Server(DomainDispatcherApplication(create_backend_app))
    http = make_server("127.0.0.1", 0, server, threaded=True, request_handler=MotoRequestHandler)
    server.url = f"http://127.0.0.1:{http.server_port}"
    with serving(http):
        urlopen(Request(f"{server.url}/{BUCKET}", method="PUT"), timeout=30).close()
        yield server
