"""The helper process behind ``runtime.real.compute``.

Producers wait for its results, so it has the priority of the node.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

from runtime.real.answering import Answering, outlive_signals


def main() -> None:
    outlive_signals()
    server = Answering(socket.socket(fileno=int(sys.argv[1])))

    def carry_out(number: int, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        server.send_part(number, work(*arguments))

    server.serve(carry_out)
    os._exit(0)


if __name__ == "__main__":
    main()
