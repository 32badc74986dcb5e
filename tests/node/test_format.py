"""The owner of a directory: formatting, and refusals that protect data."""

import random
from typing import Any, cast

import pytest

from chaos.sim.world.simulation import Simulation
from node.directories import directories_of, read_identity
from node.format import (
    FirstVoters,
    format_directory,
    random_cluster_id,
)
from raft.quorum import NO_DIRECTORY
from runtime.config.node import ConfigError, NodeConfig, from_settings
from runtime.quorum.inspection import voters_on_disk
from stele.ids import decode_uuid, encode_uuid
from storage.errors import LogDirectoryError
from world.disk import Disk

RNG = random.Random(1)


def config(**settings: str) -> NodeConfig:
    return from_settings(
        {
            "node.id": "1",
            "controller.quorum.voters": "1@c1:9093",
            "log.dirs": "/a,/b",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


@pytest.fixture
def disk() -> Disk:
    return Simulation(1).process("c1").world.disk


def test_every_directory_gets_the_clusters_and_an_id_of_its_own(disk: Disk) -> None:
    both = config(metadata_log_dir="/a")
    assert directories_of(both) == ["/a", "/b"]
    assert format_directory(disk, directories_of(both), "cluster", 1, RNG) == ["/a", "/b"]
    files = [disk.read_file(f"/{name}/meta.properties").decode() for name in "ab"]
    for text in files:
        assert "cluster.id=cluster\n" in text
        assert "node.id=1\n" in text
        assert "version=1\n" in text
    assert files[0] != files[1]
    identity = read_identity(disk, both)
    assert identity.cluster_id == "cluster"
    assert len(identity.metadata_directory_id) == 16


def test_the_format_survives_power_loss() -> None:
    sim = Simulation(1)
    format_directory(sim.process("c1").world.disk, ["/a", "/b"], "cluster", 1, RNG)
    sim.power_off("c1")
    sim.power_on("c1")
    assert read_identity(sim.process("c1").world.disk, config()).cluster_id == "cluster"


def test_a_formatted_directory_is_kept_or_refused(disk: Disk) -> None:
    format_directory(disk, ["/a"], "cluster", 1, RNG)
    before = disk.read_file("/a/meta.properties")
    with pytest.raises(LogDirectoryError, match="formatted already"):
        format_directory(disk, ["/a", "/b"], "cluster", 1, RNG)
    assert not disk.exists("/b"), "all or nothing"
    assert format_directory(disk, ["/a", "/b"], "cluster", 1, RNG, ignore_formatted=True) == ["/b"]
    assert disk.read_file("/a/meta.properties") == before


@pytest.mark.parametrize(("cluster_id", "node_id"), [("other", 1), ("cluster", 2)])
def test_a_foreign_directory_is_never_formatted(disk: Disk, cluster_id: str, node_id: int) -> None:
    format_directory(disk, ["/a"], "cluster", 1, RNG)
    with pytest.raises(LogDirectoryError, match="belongs to"):
        format_directory(disk, ["/b", "/a"], cluster_id, node_id, RNG, ignore_formatted=True)
    assert not disk.exists("/b")


def test_reading_refuses_what_does_not_fit(disk: Disk) -> None:
    with pytest.raises(LogDirectoryError, match="stele format"):
        read_identity(disk, config())
    format_directory(disk, ["/a"], "one", 1, RNG)
    format_directory(disk, ["/b"], "two", 1, RNG)
    with pytest.raises(LogDirectoryError, match="/b belongs to cluster two"):
        read_identity(disk, config())
    with pytest.raises(LogDirectoryError, match="/a belongs to cluster one, this node to three"):
        read_identity(disk, config(cluster_id="three"))
    with pytest.raises(LogDirectoryError, match="belongs to node 1, this is node 2"):
        read_identity(
            disk, config(node_id="2", controller_quorum_voters="2@c1:9093", log_dirs="/a")
        )


def test_cluster_ids_are_random_uuids_in_kafkas_form() -> None:
    ids = {random_cluster_id(RNG) for _ in range(200)}
    assert len(ids) == 200
    assert all(len(each) == 22 and not each.startswith("-") for each in ids)


# ------------------------------------------------------------------------ who begins a quorum

JOINING = {"controller_quorum_voters": "", "controller_quorum_bootstrap_servers": "c1:9093"}
D1, D2 = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


def test_a_controller_that_begins_alone(disk: Disk) -> None:
    alone = config(**JOINING, controller_listener="c1:9093")
    first = FirstVoters.standalone(alone, RNG)
    format_directory(disk, directories_of(alone), "cluster", 1, RNG, first=first)
    identity = read_identity(disk, alone)
    voters = voters_on_disk(disk, "/a", "cluster")
    assert voters is not None
    (voter,) = voters.voters
    assert voter.key.directory_id == identity.metadata_directory_id
    assert (voter.id, voter.endpoint) == (1, "c1:9093")


def test_controllers_that_begin_together(disk: Disk) -> None:
    one = config(**JOINING, controller_listener="c1:9093")
    first = FirstVoters.of(one, f"1@c1:9093:{D1},2@[::1]:9094:{D2},3@c3:9095", RNG)
    format_directory(disk, directories_of(one), "cluster", 1, RNG, first=first)
    assert encode_uuid(read_identity(disk, one).metadata_directory_id) == D1
    assert voters_on_disk(disk, "/a", "cluster") == first.voters
    known = [(each.id, each.key.directory_id, each.endpoint) for each in first.voters.voters]
    assert known == [
        (1, decode_uuid(D1), "c1:9093"),
        (2, decode_uuid(D2), "[::1]:9094"),
        (3, NO_DIRECTORY, "c3:9095"),
    ]
    moving = f"1@OLD://c1:9093+NEW://c1:9094:{D1},2@c2:9093"
    assert [each.endpoint for each in FirstVoters.of(one, moving, RNG).voters.voters] == [
        "OLD://c1:9093+NEW://c1:9094",
        "c2:9093",
    ]
    unnamed = FirstVoters.of(one, "1@c1:9093", RNG)
    assert unnamed.voters.voters[0].key.directory_id == decode_uuid(unnamed.directory_id)


@pytest.mark.parametrize(
    ("controllers", "said"),
    [
        ("2@c2:9093", "node 1 is not among"),
        ("1@c1:9093,1@c2:9093", "twice"),
        ("1@c1", "not id@host:port"),
        ("1-c1:9093", "not id@host:port"),
        ("1@c1:9093:short", "not id@host:port"),
        ("", "not id@host:port"),
    ],
)
def test_controllers_that_begin_no_quorum(controllers: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        FirstVoters.of(config(**JOINING), controllers, RNG)


def test_a_broker_begins_no_quorum() -> None:
    broker = config(**JOINING, process_roles="broker")
    with pytest.raises(ConfigError, match="node 1 is no controller"):
        FirstVoters.standalone(broker, RNG)


def test_no_power_loss_leaves_a_formatted_controller_without_its_voters() -> None:
    alone = config(**JOINING, controller_listener="c1:9093", log_dirs="/a")
    outcomes = set()
    for seed in range(30):
        sim = Simulation(seed)
        world = sim.process("c1").world
        first = FirstVoters.standalone(alone, RNG)
        disk = cast(Disk, _Failing(world.disk, writes=seed % 6))
        try:
            format_directory(disk, ["/a"], "cluster", 1, RNG, first=first)
        except _PowerLossError:
            pass
        sim.power_off("c1")
        sim.power_on("c1")
        after = sim.process("c1").world.disk
        formatted = after.exists("/a/meta.properties")
        outcomes.add(formatted)
        if formatted:
            assert voters_on_disk(after, "/a", "cluster") == first.voters
    assert outcomes == {False, True}


class _PowerLossError(Exception):
    pass


class _Failing:
    """A disk that loses power after so many writes."""

    def __init__(self, disk: Disk, writes: int) -> None:
        self._disk = disk
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        if name in ("make_directory", "replace_file_now", "sync_now"):
            if not self._left:
                raise _PowerLossError
            self._left -= 1
        return getattr(self._disk, name)
