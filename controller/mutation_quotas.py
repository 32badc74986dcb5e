"""``controller_mutation_rate``: how many partitions a client may create and delete (KIP-599).

The active controller counts them for the client that a broker asks for. A client above its quota
has the topics refused that come too early, and no others. A client of Kafka's older protocol does
not know that refusal: its request is carried out, and its broker reads nothing from it afterwards.

What was used is kept in memory. A new active controller begins with full buckets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from metadata.client_quotas import CONTROLLER_MUTATION_RATE, ClientQuotas, text_of
from metadata.image import MetadataImage
from runtime.administration import changes
from runtime.administration.changes import Change, Items
from runtime.administration.parts import items_of
from runtime.administration.refused import Refused, remove_refused
from runtime.authorization.caller import NODE_ITSELF, Caller
from runtime.metrics.registry import MetricsRegistry, Samples
from runtime.quota.kept import SAMPLES_MAX, Throttle
from runtime.quota.mutations import MutationQuotas, MutationUsage
from runtime.quota.precedence import Client, client_of
from stele.errors import ApiError, ErrorCode
from stele.world import Clock


def _created(image: MetadataImage, topic: Any) -> int:
    return int(max(1, topic.partitions, len(topic.assignments)))


def _deleted(image: MetadataImage, item: str | bytes) -> int:
    topic = image.topic(item) if isinstance(item, str) else image.topic_by_id(item)
    return 0 if topic is None else len(topic.partitions)


def _added(image: MetadataImage, wish: Any) -> int:
    topic = image.topic(wish.name)
    return 0 if topic is None else max(0, int(wish.count) - len(topic.partitions))


_COSTS: Final[Mapping[Change, Callable[[MetadataImage, Any], int]]] = {
    changes.CREATE_TOPICS: _created,
    changes.DELETE_TOPICS: _deleted,
    changes.CREATE_PARTITIONS: _added,
}
"""The partitions that an item of a change makes or deletes, as far as the request tells."""


class MutationLimit:
    """What clients have used of their quotas."""

    def __init__(self, clock: Clock) -> None:
        self._now_s = clock.monotonic
        self._quotas = MutationQuotas(ClientQuotas())

    def declare(self, registry: MetricsRegistry) -> None:
        """A controller that was never active has no samples of these metrics."""
        for name, help_text, read in (
            (
                "stele_mutation_quota_tokens",
                "Partitions that the clients of a quota may still create and delete (tokens).",
                lambda usage: usage.tokens,
            ),
            (
                "stele_mutation_quota_partitions",
                "Partitions that the clients of a quota have created and deleted (mutation-rate).",
                lambda usage: usage.partitions,
            ),
            (
                "stele_mutation_quota_throttled_seconds",
                "How long the clients of a quota were told to wait so far (throttle-time).",
                lambda usage: usage.throttled_s,
            ),
        ):
            registry.samples(name, help_text, ("user", "client_id"), self._reader(read))

    def _reader(self, read: Callable[[MutationUsage], float]) -> Callable[[], Samples]:
        def samples() -> Samples:
            for usage in islice(self._quotas.usage(self._now_s()), SAMPLES_MAX):
                yield (usage.bucket.user or "", usage.bucket.client_id or ""), read(usage)

        return samples

    def begin(
        self,
        change: Change,
        caller: Caller,
        image: MetadataImage,
        request: Any,
        *,
        may_exceed: bool,
    ) -> Mutation:
        """Take out of a change what its client may not change now, and count the rest.

        ``may_exceed``: the client is of an older version, and nothing is taken out.
        """
        cost = _COSTS.get(change)
        if (
            cost is None
            or not image.client_quotas
            or caller.principal == NODE_ITSELF
            or getattr(request, "validate_only", False)
        ):
            return Mutation()
        self._quotas.take(image.client_quotas)
        client = client_of(caller.principal, caller.client_id)
        if self._quotas.find(client) is None:
            return Mutation()
        assert change.items is not None
        counted = _Counted(self._quotas, client, self._now_s(), may_exceed=may_exceed)
        refusals = [counted.admit(cost(image, item)) for _, item in items_of(change.items, request)]
        held = remove_refused(change.items, request, refusals)
        return _CountedMutation(counted, held, change.items)


class _Counted:
    """The items of one request that were counted."""

    def __init__(
        self, quotas: MutationQuotas, client: Client, now_s: float, *, may_exceed: bool
    ) -> None:
        self._quotas, self._client, self._now_s = quotas, client, now_s
        self.may_exceed = may_exceed
        self._costs: list[int] = []  # of the items that were not refused

    def admit(self, cost: int) -> ApiError | None:
        """Count an item, or tell why it must wait."""
        throttle = None if self.may_exceed else self.throttle()
        if throttle is not None and cost:
            return _refusal(throttle)
        self._quotas.record(self._client, cost, self._now_s)
        self._costs.append(cost)
        return None

    def settle(self, actual: Sequence[int | None]) -> None:
        """Count what was done in place of what was asked for. None: as asked for."""
        for cost, done in zip(self._costs, actual, strict=True):
            if done is not None:
                self._quotas.record(self._client, done - cost, self._now_s)
        self._costs.clear()

    def undo(self) -> None:
        """Nothing was done."""
        self.settle([0] * len(self._costs))

    def throttle(self) -> Throttle | None:
        return self._quotas.throttle(self._client, self._now_s)

    def told(self, throttle: Throttle) -> None:
        self._quotas.told(throttle)


class Mutation:
    """One request on its way through the decision. This one counts for nothing."""

    @property
    def is_everything_held(self) -> bool:
        """Whether nothing is left to be decided."""
        return False

    def __enter__(self) -> None:
        """The decision. If it refuses the change as a whole, nothing was used."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        pass

    def finish(self, reply: Any) -> None:
        """Count what was decided, and write into the reply what was held back."""


class _CountedMutation(Mutation):
    def __init__(self, counted: _Counted, held: Refused, items: Items) -> None:
        self._counted, self._held, self._items = counted, held, items

    @property
    def is_everything_held(self) -> bool:
        return self._held.is_everything

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._counted.undo()

    def finish(self, reply: Any) -> None:
        counted, held = self._counted, self._held
        counted.settle([_done(result) for result in getattr(reply, self._items.results)])
        held.place(reply)
        if counted.may_exceed or held.is_anything:
            throttle = counted.throttle()
            if throttle is not None:
                counted.told(throttle)
                reply.throttle_time_ms = math.ceil(throttle.seconds * 1000)


def _done(result: Any) -> int | None:
    """How many partitions an item has changed. None: as many as the request has told."""
    if result.error:
        return 0
    return getattr(result, "partitions", None)


def _refusal(throttle: Throttle) -> ApiError:
    found = throttle.found
    return ApiError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        f"{CONTROLLER_MUTATION_RATE} of {text_of(found.entity)} is {found.bound:g} partitions per "
        f"second, and the client is above it: try again in {throttle.seconds:.1f} s",
    )
