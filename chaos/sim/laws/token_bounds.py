"""The delegation tokens of the committed metadata."""

from __future__ import annotations

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.view import newest_image
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report
from metadata.delegation_tokens import DelegationToken
from metadata.image import MetadataImage


class TokensKeepTheirBounds(Law):
    """No renewal goes beyond the longest life of a token, and changes nothing but the expiry. A
    token that was removed does not come back."""

    name = "tokens keep their bounds"
    cadence = Cadence.METADATA
    proof = Proof.CAMPAIGN

    def __init__(self) -> None:
        self._image: MetadataImage | None = None
        self._known: dict[str, DelegationToken] = {}  # by id, as they were first seen

    def look(self, cluster: SimCluster, report: Report) -> None:
        image = newest_image(cluster)
        if image is None or (self._image is not None and image.offset <= self._image.offset):
            return
        before, self._image = self._image, image
        if before is not None and before.delegation_tokens is image.delegation_tokens:
            return
        for token in image.delegation_tokens.sorted():
            was_there = token.token_id in self._known
            first = self._known.setdefault(token.token_id, token)
            self.looked += 1
            if token.expiry_ms > token.max_ms:
                report(f"{token} expires beyond its longest life")
            if token._replace(expiry_ms=first.expiry_ms) != first:
                report(f"token {token.token_id} went from {first} to {token}")
            is_gone = before is not None and token.token_id not in before.delegation_tokens
            if was_there and is_gone:
                report(f"token {token.token_id} was removed and is there again")
