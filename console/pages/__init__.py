"""The pages of the console: a file for each noun, with its routes."""

from __future__ import annotations

from typing import Final

from starlette.routing import BaseRoute

from console.pages import (
    access,
    cluster,
    connections,
    drills,
    groups,
    losses,
    messages,
    offset_resets,
    quotas,
    tail,
    topic_changes,
    topics,
    transactions,
)

ROUTES: Final[list[BaseRoute]] = [
    *cluster.ROUTES,
    *topics.ROUTES,
    *topic_changes.ROUTES,
    *messages.ROUTES,
    *tail.ROUTES,
    *groups.ROUTES,
    *offset_resets.ROUTES,
    *transactions.ROUTES,
    *connections.ROUTES,
    *access.ROUTES,
    *quotas.ROUTES,
    *losses.ROUTES,
    *drills.ROUTES,
]
