"""The first users of a cluster (KIP-900)."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from chaos.sim.world.simulation import Simulation
from controller.configs import bootstrap
from node.directories import directories_of
from node.first_users import FirstUsers, read_first_users
from node.format import format_directory
from runtime.config.node import ConfigError, NodeConfig, from_settings
from runtime.quorum.snapshots import SnapshotError
from stele.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential, salted_password
from tests.support.controller import Machine
from world.disk import Disk

SALT = b"sixteen bytes..."
SALT_64 = base64.b64encode(SALT).decode()


def config(**settings: str) -> NodeConfig:
    return from_settings(
        {
            "node.id": "1",
            "process.roles": "controller",
            "controller.quorum.voters": "1@c1:9093",
            "log.dirs": "/a,/b",
            "metadata.log.dir": "/b",
        }
        | settings
    )


def users_of(*arguments: str) -> FirstUsers:
    return FirstUsers.of(config(), arguments, random.Random(1))


def credential_of(argument: str) -> tuple[str, int, ScramCredential]:
    (record,) = users_of(argument).records
    found = record.user_scram_credential
    return (
        found.name,
        found.mechanism,
        ScramCredential(found.salt, found.stored_key, found.server_key, found.iterations),
    )


@pytest.fixture
def disk() -> Disk:
    return Simulation(1).process("c1").world.disk


@pytest.mark.parametrize(
    ("settings", "password"),
    [
        ("name=ann,password=secret", "secret"),
        ('name="ann",password="se,cr=et ]"', "se,cr=et ]"),
        (" name=ann, password=se=cret ", "se=cret"),
        ('name=ann,password=se"cret', 'se"cret'),
        ("name=ann,password=[secret]", "[secret]"),
    ],
)
def test_a_user_with_a_password(settings: str, password: str) -> None:
    name, mechanism, found = credential_of(f"SCRAM-SHA-512=[{settings}]")
    assert (name, mechanism, found.iterations, len(found.salt)) == ("ann", 2, 4096, 20)
    assert found == ScramCredential.of_password(SCRAM_SHA_512, password, found.salt, 4096)


def test_a_user_as_kafkas_documentation_has_it() -> None:
    salted = base64.b64encode(salted_password(SCRAM_SHA_256, "secret", SALT, 8192)).decode()
    for settings in (
        f'name="ann",iterations=8192,salt="{SALT_64}",password="secret"',
        f'name="ann",iterations=8192,salt="{SALT_64}",saltedpassword="{salted}"',
    ):
        name, mechanism, found = credential_of(f"SCRAM-SHA-256=[{settings}]")
        assert (name, mechanism) == ("ann", 1)
        assert found == ScramCredential.of_password(SCRAM_SHA_256, "secret", SALT, 8192)


@pytest.mark.parametrize("iterations", [4096, 16384])
def test_the_least_and_the_most_iterations(iterations: int) -> None:
    settings = f"name=ann,password=secret,iterations={iterations}"
    _, _, found = credential_of(f"SCRAM-SHA-256=[{settings}]")
    assert found == ScramCredential.of_password(SCRAM_SHA_256, "secret", found.salt, iterations)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ann"], "not of the form"),
        (["SCRAM-SHA-256=name=ann,password=hidden"], "not of the form"),
        (["PLAIN=[name=ann,password=hidden]"], "no mechanism 'PLAIN': SCRAM-SHA-256 and"),
        (["SCRAM-SHA-256=[password=hidden]"], "names no user"),
        (["SCRAM-SHA-256=[name=,password=hidden]"], "names no user"),
        (["SCRAM-SHA-256=[name=ann]"], "either password or saltedpassword, and not an empty"),
        (["SCRAM-SHA-256=[name=ann,password=]"], "and not an empty one"),
        (
            [f"SCRAM-SHA-256=[name=ann,password=hidden,saltedpassword={SALT_64}]"],
            "saltedpassword, and not both",
        ),
        ([f"SCRAM-SHA-256=[name=ann,saltedpassword={SALT_64}]"], "needs the salt, too"),
        (
            [f"SCRAM-SHA-256=[name=ann,salt={SALT_64},saltedpassword={SALT_64}]"],
            "has 16 bytes: those of SCRAM-SHA-256 have 32",
        ),
        (["SCRAM-SHA-256=[name=ann,salt=%,password=hidden]"], "salt of user 'ann' is no base64"),
        (["SCRAM-SHA-256=[name=ann,iterations=4095,password=hidden]"], "must be 4096 to 16384"),
        (["SCRAM-SHA-256=[name=ann,iterations=16385,password=hidden]"], "must be 4096 to 16384"),
        (["SCRAM-SHA-256=[name=ann,iterations=-1,password=hidden]"], "must be 4096 to 16384"),
        (["SCRAM-SHA-256=[name=ann,iterations=8e3,password=hidden]"], "must be 4096 to 16384"),
        (["SCRAM-SHA-256=[name=ann,pasword=hidden]"], "no setting 'pasword'"),
        (["SCRAM-SHA-256=[name=ann,name=bob,password=hidden]"], "name stands twice"),
        (["SCRAM-SHA-256=[name=ann,password=hidden,hidden]"], "after password, name=value must"),
        (["SCRAM-SHA-256=[hidden]"], "at the beginning, name=value must"),
        (["SCRAM-SHA-256=[name=ann,password=hidden]"] * 2, "user 'ann' has SCRAM-SHA-256 twice"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_name_of_the_option(
    arguments: list[str], said: str
) -> None:
    with pytest.raises(ConfigError, match="--add-scram: ") as caught:
        users_of(*arguments)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--add-scram: ")
    assert "hidden" not in str(caught.value), "no password is shown"


def test_the_users_wait_in_the_metadata_directory(disk: Disk) -> None:
    users = users_of("SCRAM-SHA-256=[name=ann,password=a]", "SCRAM-SHA-512=[name=ann,password=b]")
    format_directory(disk, directories_of(config()), "cluster", 1, random.Random(1), users=users)
    assert read_first_users(disk, "/b", "cluster") == users.records
    assert read_first_users(disk, "/a", "cluster") == ()
    with pytest.raises(SnapshotError):
        read_first_users(disk, "/b", "another")


def test_directories_that_are_formatted_get_no_users(disk: Disk) -> None:
    rng = random.Random(1)
    for users in (None, users_of("SCRAM-SHA-256=[name=ann,password=a]")):
        format_directory(
            disk, directories_of(config()), "cluster", 1, rng, ignore_formatted=True, users=users
        )
    assert read_first_users(disk, "/b", "cluster") == ()


def test_a_new_cluster_begins_with_them_and_no_other_does() -> None:
    records = users_of("SCRAM-SHA-256=[name=ann,password=a]").records
    machine = Machine()
    machine.do(lambda context: bootstrap(context, records))
    assert not machine.last_records, "the machine has begun before"

    class New(Machine):
        def do(self, decide: Any) -> Any:
            return super().do(lambda context: bootstrap(context, records))

    begun = New().image.scram_credentials
    assert list(begun.of_users()) == ["ann"]
    assert len(begun.secret) == 32, "users who do not exist look as if they did"
