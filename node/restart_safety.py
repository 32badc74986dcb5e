"""Whether a node may go down now without anybody noticing, as the node itself can tell.

``stele cluster restart-check`` answers the same from outside, and for every node.
"""

from __future__ import annotations

from collections.abc import Mapping

from controller.whatif import Consequence, what_if
from metadata.image import MetadataImage
from runtime.metrics.health import Check

_NAMED = 3


class RestartSafety:
    """Remembers what it has found for an image, because it looks at every partition: a probe costs
    little while the metadata do not change."""

    def __init__(self, node_id: int, static: Mapping[str, str]) -> None:
        """``static``: the node's server.properties."""
        self._node_id = node_id
        self._static = static
        self._image: MetadataImage | None = None
        self._found: Check | None = None

    def of_partitions(self, image: MetadataImage) -> Check:
        """Whether each partition that is served now would be served without this broker."""
        if self._found is None or image is not self._image:
            self._image, self._found = image, self._look(image)
        return self._found

    def _look(self, image: MetadataImage) -> Check:
        found = what_if(image, {}, dead=[self._node_id], static=self._static).consequences
        problems = [
            f"{len(concerned)} partitions would be {what}: {_names(concerned)}"
            for what, concerned in (
                ("without a leader", [each for each in found if each.loses_reads]),
                ("below min.insync.replicas", [each for each in found if each.loses_writes]),
                ("elected uncleanly", [each for each in found if each.loses_records]),
                (
                    "without a live copy of every record",
                    [each for each in found if not each.copies],
                ),
            )
            if concerned
        ]
        reason = "; ".join(problems) or "every partition goes on without this broker"
        return Check("partitions", not problems, reason)


def of_controllers(node_id: int, heard: Mapping[int, bool] | None, leader_id: int | None) -> Check:
    """Whether the others are a majority. ``heard``: of each voter, whether the active controller
    hears it, if that is this node. ``leader_id``: the active controller, as this node knows it."""
    if heard is None:
        other = "none is known" if leader_id is None else f"that is controller {leader_id}"
        reason = f"only the active controller knows which controllers are there; {other}"
        return Check("controllers", False, reason)
    left = sum(is_heard for voter, is_heard in heard.items() if voter != node_id)
    reason = f"{left} of {len(heard)} controllers would be left"
    return Check("controllers", left > len(heard) // 2, reason)


def _names(concerned: list[Consequence]) -> str:
    names = [f"{each.partition.topic}-{each.partition.partition}" for each in concerned[:_NAMED]]
    return ", ".join(names) + (", …" if len(concerned) > _NAMED else "")
