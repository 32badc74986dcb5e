"""The clients that ask for subscriptions and push metrics, and the answers that they get."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple

from broker.telemetry.subscriptions import Wanted, subscription_id
from stele.errors import ApiError, ErrorCode
from stele.ids import encode_uuid
from stele.wire.compression import Compression

INSTANCES_MAX: Final = 16_384
PER_CONNECTION_MAX: Final = 16
"""So that one connection cannot push out the instances of all others. Clients have a connection of
their own each."""

_EXPIRY_S: Final = 60.0
_EXPIRY_INTERVALS: Final = 3

_RESERVED: Final = (bytes(16), bytes(15) + b"\x01")
"""Ids that Kafka uses for other things."""

_ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
"""After these a client asks for its subscription at once."""


class Push(NamedTuple):
    """A request to take metrics."""

    instance_id: bytes
    subscription_id: int
    is_terminating: bool
    compression: int
    size_bytes: int


class Instance:
    """One client, from its first request on."""

    __slots__ = (
        "connection",
        "expires_s",
        "has_asked",
        "instance_id",
        "interval_s",
        "is_terminated",
        "last_error",
        "last_s",
        "pushed_s",
        "subscription_id",
        "version",
        "wanted",
    )

    def __init__(self, instance_id: bytes, wanted: Wanted, version: int) -> None:
        self.instance_id = instance_id
        self.connection: Hashable = None  # its last one
        self.is_terminated = False  # it has sent its last push
        self.expires_s = 0.0
        self.wanted = wanted
        self._begin(wanted, version)

    def tell(self, wanted: Wanted, version: int) -> None:
        """This is wanted now. If it is the same as before, the times stay."""
        if wanted == self.wanted:
            self.version = version
        else:
            self._begin(wanted, version)

    def is_within_interval(self, since_s: float | None, now_s: float) -> bool:
        """In whole milliseconds, so that a client that comes exactly in time is not early by a
        rounding error."""
        return since_s is not None and round((now_s - since_s) * 1000) < self.wanted.interval_ms

    def _begin(self, wanted: Wanted, version: int) -> None:
        self.version = version  # of the subscriptions
        self.wanted = wanted
        self.interval_s = wanted.interval_ms / 1000
        self.subscription_id = subscription_id(wanted, self.instance_id)
        self.last_s: float | None = None  # of its last request that was taken
        self.pushed_s: float | None = None  # of its last push that came in time
        self.has_asked = False  # since then
        self.last_error = ErrorCode.NONE


class ClientInstances:
    """A bounded number of instances. Times are seconds of one clock, which never goes back."""

    def __init__(self, *, max_bytes: int) -> None:
        """``max_bytes``: of one push, compressed."""
        self._max_bytes: Final = max_bytes
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()  # silent longest first
        # The same for each connection. An instance belongs to its last connection only.
        self._of_connection: dict[Hashable, OrderedDict[bytes, None]] = {}
        # A heap with an entry per instance, whose time is not after its expiry. Entries of
        # instances that are gone, and entries that an earlier one has replaced, are dropped when
        # their time comes, or when there are many.
        self._expiry: list[tuple[float, bytes]] = []
        self._scheduled: dict[bytes, float] = {}  # the time of the entry that counts
        # What instances are told, so that equal ones are one object. It is of the newest version.
        self._told: dict[Wanted, Wanted] = {}
        self._version = 0
        self.throttled = 0  # requests that came too early
        self.unknown_subscriptions = 0  # pushes for a subscription that is none any more

    def __len__(self) -> int:
        return len(self._instances)

    def __contains__(self, instance_id: bytes) -> bool:
        return instance_id in self._instances

    def knows(self, instance_id: bytes, version: int, now_s: float) -> bool:
        """Whether what the client is to push was found for this version of the subscriptions. If
        so, ``seen`` may be called without it at the same time."""
        self._expire(now_s)
        instance = self._instances.get(instance_id)
        return instance is not None and instance.version == version

    def ask(self, instance_id: bytes, now_s: float) -> Instance:
        """The client asks what to push. It must have been seen before.

        Raises ApiError THROTTLING_QUOTA_EXCEEDED.
        """
        instance = self._instances[instance_id]
        is_early = instance.is_within_interval(instance.last_s, now_s)
        if is_early and instance.last_error not in _ASK_AGAIN:
            raise self._too_early(instance)
        if not is_early:
            instance.last_s = now_s
        instance.has_asked = True
        instance.last_error = ErrorCode.NONE
        return instance

    def push(self, push: Push, now_s: float) -> Instance:
        """The client sends metrics, which are to be taken if nothing is raised. It must have been
        seen before.

        Raises ApiError: INVALID_REQUEST after its last push, THROTTLING_QUOTA_EXCEEDED,
        UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE.
        """
        instance = self._instances[push.instance_id]
        try:
            self._check(instance, push, now_s)
        except ApiError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.is_terminated |= push.is_terminating
        instance.last_error = ErrorCode.NONE
        return instance

    def _check(self, instance: Instance, push: Push, now_s: float) -> None:
        if instance.is_terminated:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"client instance {encode_uuid(instance.instance_id)} has sent its last push",
            )
        is_early = instance.is_within_interval(instance.pushed_s, now_s)
        if is_early and not instance.has_asked:
            if not push.is_terminating:
                raise self._too_early(instance)
        else:
            instance.pushed_s = instance.last_s = now_s
            instance.has_asked = False
        if push.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise ApiError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                f"subscription {push.subscription_id} is not that of client instance "
                f"{encode_uuid(instance.instance_id)} any more: ask for the new one",
            )
        if push.compression not in Compression.__members__.values():
            raise ApiError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"there is no compression type {push.compression}",
            )
        if push.size_bytes > self._max_bytes:
            raise ApiError(
                ErrorCode.TELEMETRY_TOO_LARGE,
                f"{push.size_bytes} bytes of metrics: telemetry.max.bytes is {self._max_bytes}",
            )

    def failed(self, instance_id: bytes, code: ErrorCode) -> None:
        """What the client pushed could not be used."""
        instance = self._instances.get(instance_id)
        if instance is not None:
            instance.last_error = code

    def _too_early(self, instance: Instance) -> ApiError:
        self.throttled += 1
        return ApiError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"client instance {encode_uuid(instance.instance_id)} comes before its interval of "
            f"{instance.wanted.interval_ms} ms is over",
        )

    # ------------------------------------------------------------------ which there are

    def seen(
        self,
        instance_id: bytes,
        connection: Hashable,
        now_s: float,
        wanted: Wanted | None = None,
        version: int = 0,
    ) -> None:
        """A request of this client came. ``wanted``: what it is to push by this version of the
        subscriptions; None if the instance knows that."""
        self._expire(now_s)
        if wanted is not None:
            wanted = self._shared(wanted, version)
        instance = self._instances.get(instance_id)
        if instance is None:
            assert wanted is not None
            instance = self._instances[instance_id] = Instance(instance_id, wanted, version)
        elif wanted is not None:
            instance.tell(wanted, version)
        self._instances.move_to_end(instance_id)
        self._connect(instance, connection)
        silence_s = max(_EXPIRY_S, _EXPIRY_INTERVALS * instance.interval_s)
        instance.expires_s = now_s + silence_s
        # It may expire earlier than it would have: its interval is shorter now.
        if instance.expires_s < self._scheduled.get(instance_id, math.inf):
            self._schedule(instance)
        if len(self._instances) > INSTANCES_MAX:
            self._forget(next(iter(self._instances)))
        if len(self._expiry) > 2 * INSTANCES_MAX:
            self._drop_entries()

    def _shared(self, wanted: Wanted, version: int) -> Wanted:
        if version != self._version:
            self._told.clear()
            self._version = version
        return self._told.setdefault(wanted, wanted)

    def _schedule(self, instance: Instance) -> None:
        self._scheduled[instance.instance_id] = instance.expires_s
        heapq.heappush(self._expiry, (instance.expires_s, instance.instance_id))

    def _drop_entries(self) -> None:
        self._scheduled = {each.instance_id: each.expires_s for each in self._instances.values()}
        self._expiry = [(each.expires_s, each.instance_id) for each in self._instances.values()]
        heapq.heapify(self._expiry)

    def _connect(self, instance: Instance, connection: Hashable) -> None:
        if instance.connection is not None:
            self._leave(instance)
        instance.connection = connection
        together = self._of_connection.setdefault(connection, OrderedDict())
        together[instance.instance_id] = None
        if len(together) > PER_CONNECTION_MAX:
            self._forget(next(iter(together)))

    def _leave(self, instance: Instance) -> None:
        together = self._of_connection[instance.connection]
        del together[instance.instance_id]
        if not together:
            del self._of_connection[instance.connection]

    def disconnected(self, connection: Hashable) -> None:
        """The connection is lost, and with it the instances that it was the last one of."""
        for instance_id in list(self._of_connection.get(connection, ())):
            self._forget(instance_id)

    def count(self, now_s: float) -> int:
        """The instances that have not expired."""
        self._expire(now_s)
        return len(self._instances)

    def _forget(self, instance_id: bytes) -> None:
        self._leave(self._instances.pop(instance_id))

    def _expire(self, now_s: float) -> None:
        while self._expiry and self._expiry[0][0] <= now_s:
            due_s, instance_id = heapq.heappop(self._expiry)
            if self._scheduled.get(instance_id) != due_s:
                continue
            del self._scheduled[instance_id]
            instance = self._instances.get(instance_id)
            if instance is None:
                continue
            if instance.expires_s <= now_s:
                self._forget(instance_id)
            else:
                self._schedule(instance)


def check_instance_id(instance_id: bytes) -> None:
    """Check the instance id of a push. Raises ApiError INVALID_REQUEST."""
    if instance_id in _RESERVED:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{encode_uuid(instance_id)} is no id of a client: ask for a subscription first",
        )
