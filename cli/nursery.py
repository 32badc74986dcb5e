"""A process that forks nodes: see ``chaos.nursery``, which orders them on its standard input.

It has one thread, and starts no loop and no channel of its own. So a fork takes over nothing that
belongs to a thread that is not there any more.
"""

from __future__ import annotations

import ctypes  # noqa: F401  # what a node imports when it runs
import gc
import json
import os
import select
import signal
import socket
import sys
import traceback
from typing import Any, Final

import cli.server  # noqa: F401
import node.process
import node.run  # noqa: F401
import runtime.log_format  # noqa: F401
from cli.main import main as run_command
from cli.main import run

_ORDER_BYTES_MAX: Final = 1 << 20


def main() -> None:
    orders = socket.socket(fileno=os.dup(0))
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    run(["server", "--help"])  # the first command imports what reads its arguments
    # Imported modules stay for good. The collectors of nodes leave frozen objects alone, so nodes
    # share these pages and do not copy them.
    gc.collect()
    gc.freeze()
    children: dict[int, int] = {}  # by process id: the pipe that gets its exit code
    while True:
        ready, _, _ = select.select([orders.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ends(children)
        if orders.fileno() in ready:
            order, handles, _, _ = socket.recv_fds(orders, _ORDER_BYTES_MAX, 2)
            if not order:
                return  # the owner of the nodes has ended; they end with this process
            log, answers = handles
            inherited = [orders.fileno(), woken, wakes, *children.values()]
            child = os.fork()
            if child == 0:
                _live(json.loads(order), log, answers, inherited)
            os.close(log)
            children[child] = answers
            _tell(answers, child)


def _tell_ends(children: dict[int, int]) -> None:
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        answers = children.pop(child)
        _tell(answers, os.waitstatus_to_exitcode(status))
        os.close(answers)


def _tell(answers: int, number: int) -> None:
    try:
        os.write(answers, b"%d\n" % number)
    except BrokenPipeError:
        pass  # the reader is gone


def _live(order: dict[str, Any], log: int, answers: int, inherited: list[int]) -> None:
    """The child's whole life."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for handle in (*inherited, answers):
            os.close(handle)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream, handle in enumerate((nothing, log, log)):
            os.dup2(handle, stream)
        os.close(nothing)
        os.close(log)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["directory"])
        parent = ("--exit-with-parent", str(order["parent"]))
        sys.argv = ["stele", *order["arguments"], *parent]
        code = _code_of_command()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _code_of_command() -> int:
    try:
        run_command()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


if __name__ == "__main__":
    main()
