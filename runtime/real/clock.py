"""The server's real clock and randomness: the client's, under the floor's own name."""

from stele.real import RealClock, real_rng

__all__ = ["RealClock", "real_rng"]
