"""``stele top`` at nodes that answer, or do not, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from cli import main
from cli.options import EXIT_NOT_WELL
from cli.top.screen import keys


class Metrics(BaseHTTPRequestHandler):
    """Ten requests more at each look."""

    requests = 0

    def do_GET(self) -> None:
        Metrics.requests += 10
        page = f"process_cpu_seconds_total 1\nstele_requests_total{{api='x'}} {Metrics.requests}\n"
        page = page.replace("'", '"') + "stele_under_replicated_partitions 3\n"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def node() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Metrics)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_one_table_of_nodes_that_answer_and_of_one_that_is_down(
    node: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["top", "--metrics-servers", f"{node},127.0.0.1:1", "--interval", "0.1"]
    assert main.run([*arguments, "--json"]) == EXIT_NOT_WELL
    up, down = json.loads(capsys.readouterr().out)["nodes"]
    assert (up["server"], up["under_replicated"], up["down"]) == (node, 3, None)
    assert up["requests_per_s"] > 0
    assert down["down"] == "Connection refused"
    assert main.run([*arguments, "--once"]) == EXIT_NOT_WELL
    table = capsys.readouterr().out.splitlines()
    assert table[0].startswith("NODE")
    assert table[2].endswith("Connection refused")
    assert main.run(["top", "--metrics-servers", node, "--interval", "0.1", "--json"]) == 0


def test_what_cannot_be_watched_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: os.PathLike[str]
) -> None:
    assert main.run(["top", "--once", "--dir", str(tmp_path)]) == main.EXIT_FAILED
    assert "--metrics-servers" in capsys.readouterr().err
    assert main.run(["top", "--metrics-servers", " , "]) == main.EXIT_USAGE
    assert "names no server" in capsys.readouterr().err
    assert main.run(["top", "--metrics-servers", "127.0.0.1:1"]) == main.EXIT_USAGE
    assert "needs a terminal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pressed", "quits"),
    [(b"q", True), (b"xQ", True), (b"\x04", True), (b"x", False), (b"", False)],
)
def test_a_key_ends_it_and_the_terminal_is_as_before(pressed: bytes, quits: bool) -> None:
    ours, terminal = pty.openpty()
    try:
        before = termios.tcgetattr(terminal)
        with keys(terminal) as wait:
            assert termios.tcgetattr(terminal) != before
            os.write(ours, pressed)
            assert wait(0.2) == quits
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(ours)
        os.close(terminal)


@pytest.mark.parametrize("end", ["q", "Ctrl-C"])
def test_the_live_table_ends_cleanly(node: str, end: str) -> None:
    ours, terminal = pty.openpty()
    program = [sys.executable, "-m", "cli", "top", "--metrics-servers", node]
    process = subprocess.Popen(
        program,
        stdin=terminal,
        stdout=terminal,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "COLUMNS": "200", "LINES": "40"},
    )
    os.close(terminal)
    seen = b""
    try:
        while b"under-replicated" not in seen.lower():
            seen += os.read(ours, 4096)
        if end == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGINT)
        drain = threading.Thread(target=_drain, args=(ours,))
        drain.start()
        _, errors = process.communicate(timeout=60)
        drain.join()
        assert (process.returncode, errors) == (0, b"")
    finally:
        process.kill()
        os.close(ours)


def _drain(handle: int) -> None:
    """Until its other side is closed: a terminal that nobody reads stops whoever writes."""
    try:
        while os.read(handle, 4096):
            pass
    except OSError:
        pass
