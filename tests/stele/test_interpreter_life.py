"""Synchronous clients, and processes that fork, are interrupted and end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

PATIENCE_S = 60

FORKS = """
import os, sys
from stele import Admin, Producer
from stele.errors import ClosedError, ConfigError, UnreachableError
from stele.addresses import Address
from stele.real import real_connector
from stele.security.client_security import PLAINTEXT

def refused(call):
    try:
        call()
    except Exception as error:
        return type(error)

options = dict(max_block_ms=300, on_wait=lambda _: None)
old = Producer("127.0.0.1:1", **options)
assert refused(lambda: old.send("t", b"x")) is UnreachableError
if "grpc" in sys.argv:
    old._do(lambda: real_connector(PLAINTEXT).channel(Address("127.0.0.1", 1)))
child = os.fork()
if child == 0:
    assert refused(lambda: old.send("t", b"x")) is ClosedError
    assert refused(old.flush) is ClosedError
    old.close()
    with Producer("127.0.0.1:1", **options) as new:
        assert refused(lambda: new.send("t", b"x")) is UnreachableError
    lost = refused(lambda: Admin("127.0.0.1:1", on_wait=lambda _: None))
    assert lost is (ConfigError if "grpc" in sys.argv else None), lost
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert refused(lambda: old.send("t", b"x")) is UnreachableError
old.close()
"""


def run(code: str, *arguments: str) -> str:
    """The process's errors."""
    process = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return process.stderr


def test_a_forked_process_makes_new_clients_and_the_old_ones_say_so() -> None:
    assert run(FORKS) == ""


def test_after_a_fork_of_a_process_that_used_grpc_only_administration_is_lost() -> None:
    assert run(FORKS, "grpc") == ""


LOADED = """
import sys
from stele import Consumer, Producer

options = dict(max_block_ms=100, on_wait=lambda _: None)
with Producer("127.0.0.1:1", **options), Consumer("127.0.0.1:1", on_wait=lambda _: None):
    pass
heavy = [each for each in ("grpc", "google.protobuf", "stele.admin") if each in sys.modules]
assert not heavy, heavy
"""


def test_producers_and_consumers_load_neither_grpc_nor_protobuf() -> None:
    """They take most of the time of a start, and much memory."""
    assert run(LOADED) == ""


WAITS_FOR_THE_OTHER = """
import os, sys
from stele.errors import ClosedError
from stele.sync.callbacks import Callbacks
from stele.sync.delivery import Delivery

delivery = Delivery(Callbacks())
child = os.fork()
if child == 0:
    for wait in (delivery.result, delivery.exception):
        try:
            wait()
        except ClosedError:
            continue
        sys.exit(1)
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_forked_process_does_not_wait_for_what_the_other_one_has_sent() -> None:
    run(WAITS_FOR_THE_OTHER)


INTERRUPTED = """
import sys
from stele import Producer

def wait(reason):
    print("waits", flush=True)

producer = Producer("127.0.0.1:1", max_block_ms=3_600_000, on_wait=wait)
try:
    producer.send("t", b"x")
except KeyboardInterrupt:
    print("interrupted", flush=True)
if "close" in sys.argv:
    producer.close()
"""


def interrupted(*arguments: str) -> tuple[str, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    told, errors = process.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - begun < PATIENCE_S / 2
    assert process.returncode == 0
    return told.replace("waits\n", ""), errors


def test_an_interrupted_send_leaves_nothing_behind() -> None:
    assert interrupted("close") == ("interrupted\n", "")
    assert interrupted() == ("interrupted\n", "")
