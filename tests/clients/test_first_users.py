"""The first users of a secure cluster: made where there are none, and otherwise left alone."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.cluster_security import ADMIN, APPLICATION
from chaos.process_cluster import ProcessCluster
from stele import Acl, AclFilter, Admin, ScramUpsertion
from stele.admin.users import ScramDeletion
from stele.errors import AuthenticationError

pytestmark = pytest.mark.processes

SCRIPT = Path(__file__).parents[2] / "deploy" / "secure"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    made = ProcessCluster(
        tmp_path_factory.mktemp("secure"), controllers=1, brokers=1, is_secure=True
    )
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())


def by_certificate(cluster: ProcessCluster) -> Admin:
    return Admin(cluster.admin_servers, **cluster.admin_security)


def by_drill(cluster: ProcessCluster) -> None:
    async def introduce() -> None:
        async with cluster.administrator() as admin:
            await cluster.security.introduce_users(admin)

    asyncio.run(introduce())


def by_script(cluster: ProcessCluster) -> None:
    """What the containers run, with the passwords and certificates of this cluster."""
    home = cluster.security.directory
    for user in (ADMIN, APPLICATION):
        (home / f"{user}.password").write_text(cluster.security.password_of(user))
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": cluster.security.certificates.truststore,
        "ssl.keystore.location": home / "certificates" / "user-admin.pem",
    }
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    (home / "nodes.properties").write_text(text)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "STELE_SECURITY_DIR": str(home),
        "BROKERS": cluster.admin_servers,
    }
    assert shutil.which("stele", path=environment["PATH"])
    subprocess.run(["sh", str(SCRIPT), "users"], env=environment, check=True, timeout=300)


def remove(cluster: ProcessCluster, *users: str) -> None:
    with by_certificate(cluster) as admin:
        admin.alter_user_scram_credentials(
            deletions=[ScramDeletion(user, "SCRAM-SHA-512") for user in users]
        )


def log_in(cluster: ProcessCluster, user: str) -> None:
    with Admin(cluster.bootstrap_servers, **cluster.security.of_user(user)) as admin:
        admin.list_topics()


Introduction = pytest.mark.parametrize("introduce", [by_drill, by_script])


@Introduction
def test_a_cluster_without_users_gets_them_whatever_the_directory_says(
    cluster: ProcessCluster, introduce: Callable[[ProcessCluster], None]
) -> None:
    """A volume of certificates may be older than the cluster."""
    assert (cluster.security.directory / "users.made").exists()
    rule = Acl(f"User:{APPLICATION}", "READ", "TOPIC", "*")
    with by_certificate(cluster) as admin:
        admin.delete_acls(
            [AclFilter(principal=rule.principal, operation="READ", resource_type="TOPIC")]
        )
    remove(cluster, ADMIN, APPLICATION)
    with pytest.raises(AuthenticationError):
        log_in(cluster, ADMIN)
    introduce(cluster)
    log_in(cluster, ADMIN)
    log_in(cluster, APPLICATION)
    with by_certificate(cluster) as admin:
        assert rule in admin.describe_acls()


@Introduction
def test_a_changed_password_stays_and_a_removed_user_stays_away(
    cluster: ProcessCluster, introduce: Callable[[ProcessCluster], None]
) -> None:
    with by_certificate(cluster) as admin:
        admin.alter_user_scram_credentials([ScramUpsertion(ADMIN, "another")])
    remove(cluster, APPLICATION)
    introduce(cluster)
    for user in (ADMIN, APPLICATION):
        with pytest.raises(AuthenticationError):
            log_in(cluster, user)
    with by_certificate(cluster) as admin:
        assert list(admin.describe_user_scram_credentials()) == [ADMIN]
        admin.alter_user_scram_credentials(
            [
                ScramUpsertion(user, cluster.security.password_of(user))
                for user in (ADMIN, APPLICATION)
            ]
        )
