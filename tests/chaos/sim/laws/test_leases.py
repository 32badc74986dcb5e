"""The law of leases that begin with the metadata."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from chaos.sim.laws.leases import LeasesBeginWithTheMetadata
from metadata.image import MetadataImage
from tests.support.law_bench import LawBench, image

SESSION_S = 6.0
JUST_LONGER = SESSION_S + 0.1


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


@pytest.fixture
def law(bench: LawBench) -> LeasesBeginWithTheMetadata:
    return LeasesBeginWithTheMetadata(bench.scene)


def committed(bench: LawBench, law: LeasesBeginWithTheMetadata, known: MetadataImage) -> None:
    bench.scene.look_at_metadata(known)
    bench.scene.look_at_nodes([])
    assert not bench.broken(law)


def wait(bench: LawBench, seconds: float) -> None:
    bench.simulation.run(asyncio.sleep(seconds))


def believes(
    bench: LawBench,
    law: LeasesBeginWithTheMetadata,
    offset: int,
    *,
    epoch: int = 101,
    has_lease: bool = True,
) -> list[str]:
    """What is reported when broker 1 has metadata up to this offset."""
    bench.brokers[1].node.broker = SimpleNamespace(
        image=image(offset),
        lease_valid=has_lease,
        replicas=SimpleNamespace(broker_epoch=epoch),
    )
    bench.scene.look_at_nodes([bench.sim_node(1)])
    return bench.broken(law)


def test_a_broker_that_was_fenced_and_does_not_know_it_has_no_lease(
    bench: LawBench, law: LeasesBeginWithTheMetadata
) -> None:
    committed(bench, law, image(5))
    committed(bench, law, image(7, fenced=[1]))
    wait(bench, JUST_LONGER)
    committed(bench, law, image(9))
    assert not believes(bench, law, 6, has_lease=False)
    (report,) = believes(bench, law, 6)
    assert report.startswith("broker 1 with metadata of 6 believes that it has a lease")
    assert law.looked == 2


def test_it_may_have_one_as_soon_as_it_knows(
    bench: LawBench, law: LeasesBeginWithTheMetadata
) -> None:
    committed(bench, law, image(5))
    committed(bench, law, image(7, fenced=[1]))
    wait(bench, JUST_LONGER)
    committed(bench, law, image(9))
    assert not believes(bench, law, 7)
    assert law.looked == 0


@pytest.mark.parametrize(("waits_s", "breaks"), [(SESSION_S, False), (JUST_LONGER, True)])
def test_its_last_lease_ends_within_a_session(
    bench: LawBench, law: LeasesBeginWithTheMetadata, waits_s: float, breaks: bool
) -> None:
    committed(bench, law, image(5))
    committed(bench, law, image(7, fenced=[1]))
    wait(bench, waits_s)
    assert bool(believes(bench, law, 6)) is breaks


def test_metadata_that_show_it_fenced_still_are_no_new_fencing(
    bench: LawBench, law: LeasesBeginWithTheMetadata
) -> None:
    committed(bench, law, image(7, fenced=[1]))
    wait(bench, JUST_LONGER)
    committed(bench, law, image(20, fenced=[1]))
    assert not believes(bench, law, 7)
    assert believes(bench, law, 6)


def test_a_second_fencing_counts_anew(bench: LawBench, law: LeasesBeginWithTheMetadata) -> None:
    async def fence_twice() -> None:
        committed(bench, law, image(7, fenced=[1]))
        committed(bench, law, image(9))
        await asyncio.sleep(JUST_LONGER)
        committed(bench, law, image(11, fenced=[1]))
        assert not believes(bench, law, 10)
        await asyncio.sleep(JUST_LONGER)
        assert believes(bench, law, 10)

    bench.simulation.run(fence_twice())


def test_another_registration_is_not_meant(
    bench: LawBench, law: LeasesBeginWithTheMetadata
) -> None:
    committed(bench, law, image(7, fenced=[1]))
    wait(bench, JUST_LONGER)
    assert not believes(bench, law, 6, epoch=99)
    assert law.looked == 0


def test_others_are_not_concerned(bench: LawBench, law: LeasesBeginWithTheMetadata) -> None:
    committed(bench, law, image(7, fenced=[2]))
    wait(bench, JUST_LONGER)
    assert not believes(bench, law, 6)
    assert law.looked == 0
