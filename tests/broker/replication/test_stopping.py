"""A replica manager that was stopped changes no log any more."""

from __future__ import annotations

import asyncio

from metadata.delta import MetadataDelta
from tests.support.replica_cluster import ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until


@with_topic
async def test_metadata_are_not_applied_any_further_after_a_stop(cluster: ReplicaCluster) -> None:
    """Following would append past the end that the mark of a clean shutdown notes."""
    node = cluster[1]
    cluster.change(leader=2, to=(2, 3))
    await until(lambda: cluster[2].replica().machine.is_leader)
    replica = node.replica()

    async def stop_amid() -> None:
        delta = MetadataDelta(node.image)
        for offset, record in cluster.records:
            if offset > node.image.offset:
                delta.replay(offset, record)
        node.image = delta.apply()
        steps = node.manager.apply(delta, node.image)
        stopping = asyncio.ensure_future(node.manager.stop())
        await asyncio.sleep(0)
        assert node.holds()
        for _ in steps:
            pass
        await stopping

    await node.process.run(stop_amid())
    assert replica.machine.leader_epoch == 0
    node.kill()
    await node.start()
    assert node.directory.clean_shutdown
