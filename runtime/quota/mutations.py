"""The quota of changes of topics and partitions, which the controller keeps (KIP-599)."""

from __future__ import annotations

from metadata.client_quotas import CONTROLLER_MUTATION_RATE, ClientQuotas
from runtime.quota.bucket import TokenBucket
from runtime.quota.kept import Finder, Kept, Throttle
from runtime.quota.precedence import Client, Found


class MutationQuotas:
    """Pure: times come with the calls, and must not go back.

    Changes are counted in partitions. A request may take more than is left, once: else a topic with
    more partitions than the quota has in 11 seconds could never be made.
    """

    def __init__(self, quotas: ClientQuotas) -> None:
        self._finder = Finder(quotas)
        self._buckets: Kept[TokenBucket] = Kept()

    def take(self, quotas: ClientQuotas) -> None:
        """Go by these from now on."""
        self._finder.take(quotas)

    def find(self, client: Client) -> Found | None:
        """The quota that counts for the client; None: it has none."""
        return self._finder.find(CONTROLLER_MUTATION_RATE, client)

    def throttle(self, client: Client, now_s: float) -> Throttle | None:
        """Why the client may change nothing now; None: it may."""
        found = self._finder.find(CONTROLLER_MUTATION_RATE, client)
        if found is None:
            return None
        return _throttle(self._bucket(found, now_s), found, now_s)

    def record(self, client: Client, partitions: int, now_s: float) -> Throttle | None:
        """Count a change. The client is to wait so long before the next one. A negative number
        takes back what was counted."""
        found = self._finder.find(CONTROLLER_MUTATION_RATE, client)
        if found is None:
            return None
        bucket = self._bucket(found, now_s)
        bucket.take(partitions, now_s)
        return _throttle(bucket, found, now_s)

    def _bucket(self, found: Found, now_s: float) -> TokenBucket:
        bucket = self._buckets.get(CONTROLLER_MUTATION_RATE, found.bucket, now_s)
        if bucket is None:
            bucket = TokenBucket(found.bound, now_s)
            self._buckets.put(CONTROLLER_MUTATION_RATE, found.bucket, bucket, now_s)
        else:
            bucket.set_bound(found.bound, now_s)
        return bucket


def _throttle(bucket: TokenBucket, found: Found, now_s: float) -> Throttle | None:
    seconds = bucket.throttle_s(now_s)
    if seconds <= 0:
        return None
    return Throttle(seconds, CONTROLLER_MUTATION_RATE, found, bucket.tokens(now_s))
