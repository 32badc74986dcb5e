"""What the parts of ``stele.admin.admin.Admin`` share."""

from __future__ import annotations

from stele.admin.requests import AdminRequests
from stele.cluster.view import ClusterView


class AdminPart:
    """The methods of Admin about one noun. Admin inherits all parts, so a new method is written in
    its part alone.

    The parts of an Admin are one object. Helpers that only one part has are therefore functions of
    its module, or have names that no other part uses.
    """

    def __init__(self, view: ClusterView, requests: AdminRequests) -> None:
        self._view = view
        self._requests = requests
