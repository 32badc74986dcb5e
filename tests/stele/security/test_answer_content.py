"""How much of an answer is read, and how long."""

from __future__ import annotations

import http.client
import socket
import time

import pytest

from stele.security.answer_content import content_of


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"Content-Length: 4\r\n\r\nkeys", b"keys"),  # and the connection stays open
        (b"Connection: close\r\n\r\nkeys", b"keys"),
        (b"Transfer-Encoding: chunked\r\n\r\n2\r\nke\r\n2\r\nys\r\n0\r\n\r\n", b"keys"),
        (b"Content-Length: 9\r\n\r\nkeys", "it ends 5 bytes too early"),
    ],
)
def test_the_whole_content_is_read_and_no_more(answer: bytes, expected: bytes | str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 200 OK\r\n" + answer)
        if expected != b"keys" or b"Length" not in answer:
            theirs.close()
        response = http.client.HTTPResponse(ours)
        response.begin()
        if isinstance(expected, bytes):
            assert content_of(response, 60, time.monotonic) == expected
        else:
            with pytest.raises(OSError, match=expected):
                content_of(response, 60, time.monotonic)


class Dribble:
    """Sends a byte a second."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def read1(self, most: int) -> bytes:
        self.now_s += 1
        return b" "


def test_what_comes_byte_by_byte_is_given_up() -> None:
    answer = Dribble()
    with pytest.raises(OSError, match="it did not come whole within 10 s"):
        content_of(answer, 10, lambda: answer.now_s)
    assert answer.now_s == 10
