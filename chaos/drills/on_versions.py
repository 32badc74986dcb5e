"""The drill that upgrades a cluster of an earlier version under load."""

from __future__ import annotations

from typing import Final

from chaos.drills.drill import TWO_IN_SYNC, Control, Drill
from chaos.drills.history import Expectations
from chaos.drills.needs import Need
from chaos.drills.stage import Stage
from stele.admin.features import highest_levels
from stele.aio import Admin


async def upgrade(stage: Stage) -> None:
    """Node by node to this version. The first broker goes back once, then on again."""
    brokers = stage.cluster.broker_ids
    await stage.steady()
    for node in stage.cluster.controller_ids:
        await stage.change_version(node, is_earlier=False)
    await stage.change_version(brokers[0], is_earlier=False)
    await stage.change_version(brokers[0], is_earlier=True)
    for node in brokers:
        await stage.change_version(node, is_earlier=False)
    stage.step("note", "finalize the highest levels of all features")
    await stage.administer(_finalize)
    leader = await stage.leader_of(0)
    await stage.kill(leader)  # it reads its files, and follows, at the new levels
    await stage.leads_nothing(leader)
    await stage.start(leader)
    await stage.whole()


async def _finalize(admin: Admin) -> None:
    features = await admin.describe_features()
    await admin.update_features(highest_levels(features))


async def two_at_once(stage: Stage) -> None:
    """Two brokers are stopped together, so one replica is left of each partition."""
    await stage.steady()
    first, second, _ = stage.cluster.broker_ids
    await stage.stop(first)
    await stage.stop(second)
    await stage.hold(4)
    await stage.start(first, second)
    await stage.whole()


UPGRADE: Final = Drill(
    name="upgrade",
    title="A cluster of an earlier version is upgraded under load",
    what="Every node is restarted as this version, one goes back in between; then the features.",
    course=upgrade,
    expectations=Expectations(
        write_outage_ms=2_000, read_outage_ms=3_000, recovery_ms=20_000, elections=1
    ),
    topic_configs=TWO_IN_SYNC,
    needs=frozenset({Need.EARLIER_VERSION}),
    control=Control(
        what="two brokers are stopped at the same time",
        breaks="outage of writes",
        course=two_at_once,
    ),
)

DRILLS: Final = (UPGRADE,)
