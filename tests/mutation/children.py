"""Forked children: each has all that its parent has imported, spoils it, and ends.

A child says what it has to say over a pipe. One that hangs is killed after a time.
"""

from __future__ import annotations

import math
import multiprocessing.connection
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

_PATIENCE = 6  # a child that waits, or is kept waiting, has so many times its limit
_MEMORY_BYTES = 4 << 30  # what allocates for ever is to fail, and not the machine


class Lost(NamedTuple):
    """In place of what a child would have said: it hung, or died."""

    reason: str


class ChildError(Exception):
    """What was raised in a child, with its trace."""


class Job(NamedTuple):
    """What a child does: ``work`` returns what it has to say. ``key`` tells jobs apart."""

    key: Any
    work: Callable[[], Any]
    limit_s: float  # of processor time


class _Child(NamedTuple):
    job: Job
    process_id: int
    hears: Connection
    deadline_s: float


@contextmanager
def running(jobs: Sequence[Job], parallel: int) -> Iterator[Iterator[tuple[Job, Any]]]:
    """Run jobs in children: each with what its child said, or Lost, as they end. None is left.

    Raises ChildError when a child's work has raised something.
    """
    with closing(_answers(jobs, parallel)) as answers:
        yield answers


def _answers(jobs: Sequence[Job], parallel: int) -> Generator[tuple[Job, Any], None, None]:
    waiting = list(reversed(jobs))
    alive: list[_Child] = []
    try:
        while waiting or alive:
            while waiting and len(alive) < parallel:
                alive.append(_fork(waiting.pop()))
            first_s = min(child.deadline_s for child in alive)
            said = multiprocessing.connection.wait(
                [child.hears for child in alive], max(0.0, first_s - time.monotonic())
            )
            for child in [*alive]:
                if child.hears in said:
                    answer = _heard(child)
                elif child.deadline_s <= time.monotonic():
                    answer = Lost(f"hung for {child.job.limit_s:.0f} s")
                else:
                    continue
                alive.remove(child)
                _end(child)
                if isinstance(answer, ChildError):
                    raise answer
                yield child.job, answer
    finally:
        for child in alive:
            _end(child)


def _fork(job: Job) -> _Child:
    hears, says = multiprocessing.Pipe(duplex=False)
    sys.stdout.flush()
    process_id = os.fork()
    if process_id == 0:
        hears.close()
        _live(job, says)
    says.close()
    return _Child(job, process_id, hears, time.monotonic() + _PATIENCE * job.limit_s)


def _live(job: Job, says: Connection) -> None:
    """The child's whole life. Nothing of the parent's is torn down at its end."""
    status = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        limit_s = math.ceil(job.limit_s)
        resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s + 1))
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        try:
            said = job.work()
        except BaseException:
            said = ChildError(traceback.format_exc())
        says.send(said)
        status = 0
    finally:
        os._exit(status)


def allow(seconds: float) -> None:
    """Let this child have so much more processor time, but never more than its job has. One that
    waits has so many times longer as a child has."""
    signal.setitimer(signal.ITIMER_REAL, _PATIENCE * seconds)  # which ends the process
    most_s = resource.getrlimit(resource.RLIMIT_CPU)[1]
    until_s = math.ceil(time.process_time() + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (min(until_s, most_s), most_s))


def _heard(child: _Child) -> Any:
    try:
        return child.hears.recv()
    except EOFError:
        return Lost("died")


def _end(child: _Child) -> None:
    """With all that it has started. Idempotent."""
    for target in (-child.process_id, child.process_id):
        try:
            os.kill(target, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os.waitpid(child.process_id, 0)
    child.hears.close()
