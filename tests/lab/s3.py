"""An S3 server whose conditional writes are atomic: moto, with every write behind one lock.

`python -m tests.lab.s3 --host ADDR --port N [--bucket NAME]`. On its own, moto lets two racing `If-None-Match: *` puts
both win now and then; behind the lock exactly one does, as on the real store. State lives in memory.
"""

import argparse
import io
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server
from werkzeug.test import EnvironBuilder, run_wsgi_app

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

_READS = ("GET", "HEAD")


class OneWriter:
    """Lets reads through and takes writes one at a time, their bodies read before the lock is asked for."""

    def __init__(self) -> None:
        self._app: Any = DomainDispatcherApplication(create_backend_app)
        self._writing = threading.Lock()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in _READS:
            answer: Iterable[bytes] = self._app(environ, start_response)
            return answer
        environ["wsgi.input"] = io.BytesIO(_body(environ))
        with self._writing:
            done: Iterable[bytes] = self._app(environ, start_response)
            return done

    def create_bucket(self, name: str) -> None:
        """Make a bucket before anybody asks."""
        builder = EnvironBuilder(path=f"/{name}", method="PUT", headers=[("Authorization", _CREDENTIAL)])
        run_wsgi_app(self, builder.get_environ())


_CREDENTIAL = (
    "AWS4-HMAC-SHA256 Credential=lab/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=00000000"
)


def _body(environ: "WSGIEnvironment") -> bytes:
    stream = environ["wsgi.input"]
    if environ.get("wsgi.input_terminated"):
        data: bytes = stream.read()
    else:
        data = stream.read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["CONTENT_LENGTH"] = str(len(data))
    return data


class _Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: Any) -> None:
        """Nothing: a lab asks too often."""


def serve(host: str, port: int, buckets: Iterable[str] = ()) -> BaseWSGIServer:
    """A threaded server, bound but not yet serving."""
    app = OneWriter()
    for bucket in buckets:
        app.create_bucket(bucket)
    return make_server(host, port, app, threaded=True, request_handler=_Quiet)


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.s3", description="An S3 server with atomic writes.")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bucket", action="append", default=[])
    args = parser.parse_args()
    server = serve(args.host, args.port, args.bucket)
    print(f"s3 on http://{args.host}:{server.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
