"""The quotas that this broker keeps, and the callers that are exempt from them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from metadata.client_quotas import IP, ClientQuotas, text_of
from metadata.delta import MetadataDelta
from metadata.image import MetadataImage
from runtime.authorization.authorizer import CLUSTER, Authorizer, Operation
from runtime.authorization.caller import NODE_ITSELF, Caller
from runtime.config.node import NodeConfig
from runtime.metrics.registry import MetricsRegistry, Samples
from runtime.quota.addresses import AddressQuotas, AddressUsage
from runtime.quota.kept import SAMPLES_MAX, Throttle
from runtime.quota.manager import QuotaManager, Usage
from runtime.quota.precedence import Client, client_of
from stele.world import Clock

logger = logging.getLogger(__name__)

EXEMPT: Final = Client("", "")
"""Stands for every caller that no quota is about. Its time is counted apart."""


class BrokerQuotas:
    """A ``broker.membership.publisher.MetadataSubscriber``.

    As long as no quota is set, ``manager`` and ``turn_clock`` are None, and a request costs no more
    than a look at them.
    """

    def __init__(
        self, config: NodeConfig, authorizer: Authorizer, clock: Clock, registry: MetricsRegistry
    ) -> None:
        self.manager: QuotaManager | None = None
        self.turn_clock: Callable[[], float] | None = None
        self.addresses: Final = AddressQuotas({})
        """The quotas of new connections, which count before anybody has made a request."""
        self.exempt_s = 0.0
        """What exempt requests have taken of the event loop while there were quotas."""
        self.now_s: Final = clock.monotonic
        self._authorizer = authorizer
        self._inter_broker_listener = config.inter_broker_listener_name
        self._declare(registry)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> Iterator[None] | None:
        if image.client_quotas is not delta.image.client_quotas:
            self.take(image.client_quotas)
        return None

    def take(self, quotas: ClientQuotas) -> None:
        """Keep these from now on."""
        self.addresses.take(quotas)
        if all(entity[0].type == IP for entity in quotas):  # as if there were none
            self.manager = self.turn_clock = None
        elif self.manager is None:
            self.manager, self.turn_clock = QuotaManager(quotas), self.now_s
        else:
            self.manager.take(quotas)

    def _declare(self, registry: MetricsRegistry) -> None:
        labels = ("quota", "user", "client_id")
        registry.samples(
            "stele_quota_usage",
            "What the clients of a quota use: bytes per second, or percent of the loop's time "
            "(byte-rate, request-time).",
            labels,
            lambda: self._samples(lambda usage: usage.rate),
        )
        registry.samples(
            "stele_quota_throttled_seconds",
            "How long the clients of a quota were told to wait so far (throttle-time).",
            labels,
            lambda: self._samples(lambda usage: usage.throttled_s),
        )
        registry.samples(
            "stele_connection_quota_usage",
            "New connections per second of an address with a quota (connection-accept-rate).",
            ("ip",),
            lambda: self._address_samples(lambda usage: usage.rate),
        )
        registry.samples(
            "stele_connection_quota_throttled_seconds",
            "How long connections of an address were held before they were closed so far "
            "(ip-connection-accept-throttle-time).",
            ("ip",),
            lambda: self._address_samples(lambda usage: usage.throttled_s),
        )
        registry.total(
            "stele_exempt_request_seconds",
            "Time that requests of nodes took of the event loop while there were quotas "
            "(exempt-request-time).",
            lambda: self.exempt_s,
        )

    def _samples(self, read: Callable[[Usage], float]) -> Samples:
        if self.manager is None:
            return
        for usage in islice(self.manager.usage(self.now_s()), SAMPLES_MAX):
            bucket = usage.bucket
            yield (usage.key, bucket.user or "", bucket.client_id or ""), read(usage)

    def _address_samples(self, read: Callable[[AddressUsage], float]) -> Samples:
        for usage in islice(self.addresses.usage(self.now_s()), SAMPLES_MAX):
            yield (usage.address,), read(usage)

    def payer(self, caller: Caller) -> Client:
        """The client that a request counts for; EXEMPT for nodes of the cluster.

        A caller is a node if its certificate names one, or if it may act as one on the listener of
        brokers. Without an authorizer everybody may, so that only what the request asks for tells.
        """
        if caller.principal == NODE_ITSELF or caller.node_ids:
            return EXEMPT
        if (
            caller.listener == self._inter_broker_listener
            and self._authorizer.has_acls
            and self._authorizer.allows(caller, Operation.CLUSTER_ACTION, CLUSTER)
        ):
            return EXEMPT
        return client_of(caller.principal, caller.client_id)


def log_throttle(payer: Client, throttle: Throttle) -> None:
    """Tell which quota holds the client back."""
    logger.debug(
        "user %r with client id %r waits %.3f s: %s of %s is %g, and the client is at %g",
        payer.user,
        payer.client_id,
        throttle.seconds,
        throttle.key,
        text_of(throttle.found.entity),
        throttle.found.bound,
        throttle.observed,
    )
