"""An issuer's token endpoint on loopback, over https."""

from __future__ import annotations

import http.server
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trustme


@dataclass
class TokenIssuer:
    """What the endpoint answers, and what it was asked."""

    url: str
    ca_file: Path
    answer: Callable[[], tuple[int, bytes]]  # status and content
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Of each request its header Authorization and its form."""


@contextmanager
def token_issuer(directory: Path, answer: Callable[[], tuple[int, bytes]]) -> Iterator[TokenIssuer]:
    """Runs while the context is open."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "issuer-ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    issuer = TokenIssuer("", directory / "issuer-ca.pem", answer)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = dict(urllib.parse.parse_qsl(body))
            issuer.requests.append((self.headers["Authorization"], form))
            status, content = issuer.answer()
            self.send_response(status)
            if status == http.HTTPStatus.FOUND:
                self.send_header("Location", issuer.url + "/elsewhere")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        issuer.url = f"https://localhost:{server.server_port}/token"
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        serving.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            serving.join()
