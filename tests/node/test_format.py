"""Whose directory it is: formatting, and the refusals that save somebody's data."""

import random

import pytest

from chaos.sim.simulation import Simulation
from node.format import (
    directories_of,
    format_directory,
    random_cluster_id,
    read_identity,
)
from runtime.config import NodeConfig, from_settings
from stele.world import Disk
from storage.errors import LogDirectoryError

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
