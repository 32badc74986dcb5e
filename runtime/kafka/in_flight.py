"""The requests that a connection has taken and not answered, and what they hold of memory."""

from __future__ import annotations

from collections import deque

from runtime.kafka.requests import PendingRequest
from stele.wire import kafka


class InFlight:
    """In the order of arrival. The head is not done, unless the connection is writing answers."""

    __slots__ = ("count", "memory_bytes", "requests", "size_bytes")

    def __init__(self) -> None:
        self.requests: deque[PendingRequest] = deque()  # only this object changes it
        self.count = 0
        self.size_bytes = 0  # of their frames
        self.memory_bytes = 0  # of them, and of those answers that are there

    def add(self, request: PendingRequest) -> None:
        self.requests.append(request)
        self.count += 1
        self.size_bytes += request.size_bytes
        self.memory_bytes += request.memory_bytes

    def count_elements(self, request: PendingRequest) -> None:
        """A request with records counts with its size only, because it usually has few elements.
        This one has more than are decoded in one turn."""
        if request.header.api_key in kafka.KEYS_WITH_RECORDS:
            more_bytes = kafka.memory_of_elements(request.size_bytes)
            request.memory_bytes += more_bytes
            self.memory_bytes += more_bytes

    def count_answer(self, request: PendingRequest) -> None:
        """The answer is there and waits for those before it."""
        request.answer_bytes = sum(map(len, request.buffers))
        self.memory_bytes += request.answer_bytes

    def withdraw(self, request: PendingRequest) -> None:
        """The request gets no answer."""
        self.requests.remove(request)
        self.count -= 1
        self.size_bytes -= request.size_bytes
        self.memory_bytes -= request.memory_bytes

    def take_done(self) -> list[PendingRequest]:
        """Take those at the head whose answers are there."""
        requests = self.requests
        if self.count == 1 and requests[0].done:
            self.count = self.size_bytes = self.memory_bytes = 0
            return [requests.popleft()]
        done = []
        while requests and requests[0].done:
            request = requests.popleft()
            self.count -= 1
            self.size_bytes -= request.size_bytes
            self.memory_bytes -= request.memory_bytes + request.answer_bytes
            done.append(request)
        return done

    def clear(self) -> deque[PendingRequest]:
        """Returns those that get no answer any more."""
        lost, self.requests = self.requests, deque()
        self.count = self.size_bytes = self.memory_bytes = 0
        return lost
