"""The times of a replica, in seconds of the driver's monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass

from stele.world import Rng


@dataclass(frozen=True, slots=True)
class Timing:
    election_timeout_s: float = 1.0  # least; the greatest is twice that
    fetch_timeout_s: float = 2.0  # of silence, until a follower or a leader doubts its quorum
    election_backoff_max_s: float = 1.0
    suspicion_min_s: float = 0.05  # from a broken connection to the leader until a pre-vote
    suspicion_max_s: float = 0.15
    retry_min_s: float = 0.05  # between calls that fail
    retry_max_s: float = 0.25
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 * 1024 * 1024

    def election_timeout(self, rng: Rng) -> float:
        return rng.uniform(self.election_timeout_s, 2 * self.election_timeout_s)

    def suspicion(self, rng: Rng) -> float:
        return rng.uniform(self.suspicion_min_s, self.suspicion_max_s)

    def retry(self, failures: int) -> float:
        """How long to wait after so many failures in a row (at least one)."""
        return min(self.retry_min_s * 2.0 ** min(failures - 1, 16), self.retry_max_s)

    def election_backoff(self, losses: int, rng: Rng) -> float:
        """How long to wait before standing again after so many lost elections in a row.

        Grows from the suspicion's length, so that a tie costs little and a voter that cannot be
        elected is quiet.
        """
        longest = min(self.suspicion_min_s * 2.0 ** min(losses, 16), self.election_backoff_max_s)
        return rng.uniform(longest / 2, longest)
