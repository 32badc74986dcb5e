"""The state of the client's parts in a forked child."""

from __future__ import annotations

import os


class Forks:
    """gRPC has threads of its own, which a child does not have: once a process has used it, nothing
    can be asked over gRPC in a child that it forks."""

    def __init__(self) -> None:
        self.grpc_is_lost = False
        self._grpc_is_used = False

    def use_grpc(self) -> None:
        self._grpc_is_used = True

    def in_child(self) -> None:
        self.grpc_is_lost = self.grpc_is_lost or self._grpc_is_used


forks = Forks()
os.register_at_fork(after_in_child=forks.in_child)
