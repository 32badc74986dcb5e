"""Drills on a secure cluster: certificates are exchanged, a password goes, strangers storm it."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from chaos.cluster_security import ADMIN, APPLICATION, HOSTS
from chaos.drills.drill import Drill
from chaos.drills.history import Expectations
from chaos.drills.needs import Need
from chaos.drills.stage import Stage
from runtime.tls.listeners import LOOK_S
from security.authority import DAYS, Subject
from stele.admin.descriptions import NewTopic
from stele.admin.users import ScramDeletion, ScramUpsertion
from stele.aio import Producer
from stele.errors import SteleError

_STORM: Final = 5_000
"""Handshakes of strangers."""

_AT_ONCE: Final = 200
_TOPIC: Final = "not-judged"
"""A second topic, which the drill does not judge."""

_SHOW_S: Final = 10.0
_LOOK_S: Final = LOOK_S + 2.0
"""Within this time every node has looked at its files."""

_GARBAGE: Final = (
    b"",  # connects and leaves
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x00\x00\x00\x14\x00\x12\x00\x00",  # Kafka in plaintext
    b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",  # a ClientHello that says nothing
    bytes(range(256)),
)


def _nodes(stage: Stage) -> list[int]:
    return [*stage.cluster.controller_ids, *stage.cluster.broker_ids]


async def _shown(stage: Stage, broker: int) -> bytes:
    """The fingerprint of the certificate that a broker shows its clients now. Raises SteleError if
    no handshake is done in time, as on a busy machine."""
    address = stage.cluster.kafka_address(broker)
    try:
        pem = await asyncio.to_thread(
            ssl.get_server_certificate, (address.host, address.port), timeout=_SHOW_S
        )
    except OSError as error:
        raise SteleError(f"{address} shows no certificate: {error!r}") from error
    return x509.load_pem_x509_certificate(pem.encode()).fingerprint(hashes.SHA256())


async def _seen(stage: Stage, broker: int) -> bytes:
    """As ``_shown``, as soon as the broker shows one."""
    found = b""

    async def is_shown() -> bool:
        nonlocal found
        found = await _shown(stage, broker)
        return True

    await stage.until(is_shown, f"{stage.name(broker)} shows a certificate")
    return found


async def _renew(stage: Stage, node: int) -> None:
    """Give a node another certificate; of a broker, wait until it shows it."""
    stage.step("fault", f"renew the certificate of {stage.name(node)}", node)
    is_broker = node in stage.cluster.broker_ids
    before = await _seen(stage, node) if is_broker else b""
    secrets = stage.cluster.secrets.certificates
    secrets.issue(Subject.node(node, HOSTS), datetime.now(UTC), DAYS)

    async def shows_it() -> bool:
        return not is_broker or await _shown(stage, node) != before

    await stage.until(shows_it, f"{stage.name(node)} shows its new certificate")


async def certificates_renewed(stage: Stage) -> None:
    await stage.steady()
    for node in _nodes(stage):
        await _renew(stage, node)
    leader = await stage.leader_of(0)
    await stage.kill(leader)  # now everybody connects anew
    await stage.leads_nothing(leader)
    await stage.start(leader)
    await stage.whole()


async def authority_renewed(stage: Stage) -> None:
    secrets = stage.cluster.secrets.certificates
    await stage.steady()
    stage.step("fault", "believe another authority, too")
    secrets.make_authority(datetime.now(UTC))
    await stage.hold(_LOOK_S)
    for node in _nodes(stage):
        await _renew(stage, node)
    secrets.issue(Subject.user(ADMIN), datetime.now(UTC), DAYS)
    stage.step("fault", "forget the earlier authority")
    secrets.forget_earlier()
    await stage.hold(_LOOK_S)
    leader = await stage.leader_of(0)
    await stage.kill(leader)
    await stage.leads_nothing(leader)
    await stage.start(leader)
    await stage.whole()


async def certificate_expired(stage: Stage) -> None:
    """A renewal goes wrong: the file has a certificate that has expired already."""
    await stage.steady()
    broker = await stage.leader_of(0)
    before = await _seen(stage, broker)
    stage.step("fault", f"give {stage.name(broker)} a certificate that has expired", broker)
    secrets = stage.cluster.secrets.certificates
    long_ago = datetime.now(UTC) - timedelta(days=30)
    secrets.issue(Subject.node(broker, HOSTS), long_ago, 1)
    await stage.hold(_LOOK_S)
    if await _seen(stage, broker) != before:
        stage.step("note", f"{stage.name(broker)} shows a certificate that has expired", broker)
        raise SteleError("the broker took a certificate that has expired")
    await stage.acknowledging()
    stage.step("note", f"give {stage.name(broker)} a certificate that is valid", broker)
    secrets.issue(Subject.node(broker, HOSTS), datetime.now(UTC), DAYS)

    async def shows_it() -> bool:
        return await _shown(stage, broker) != before

    # When the broker looks at its file is no part of the recovery, nor how long a handshake takes.
    await stage.until(shows_it, f"{stage.name(broker)} shows the valid certificate")
    stage.step("heal", f"{stage.name(broker)} shows the valid certificate", broker)
    await stage.whole()


async def credential_deleted(stage: Stage) -> None:
    """The password of a user goes while a client of this user works. It is shut out at once."""
    await stage.administer(lambda admin: admin.create_topics([NewTopic(_TOPIC, 1, 3)]))
    await stage.steady()
    secrets = stage.cluster.secrets
    client = _producer(stage)
    try:
        await (await client.send(_TOPIC, b"somebody"))
        stage.step("fault", f"delete the password of {APPLICATION}")
        await stage.administer(lambda admin: admin.alter_user_scram_credentials(
            deletions=[ScramDeletion(APPLICATION)]
        ))  # fmt: skip
        await _refused(stage, client, "the client that was logged in")
    finally:
        await client.abort()
    stranger = _producer(stage)
    try:
        await _refused(stage, stranger, "a new client")
    finally:
        await stranger.abort()
    await stage.acknowledging()
    stage.step("heal", f"give {APPLICATION} its password again")
    again = ScramUpsertion(APPLICATION, secrets.password_of(APPLICATION))
    await stage.administer(lambda admin: admin.alter_user_scram_credentials([again]))
    await stage.whole()


def _producer(stage: Stage) -> Producer:
    options = stage.cluster.secrets.of_user(APPLICATION)
    servers = stage.cluster.bootstrap_servers
    return Producer(servers, max_block_ms=5_000, delivery_timeout_ms=10_000, **options)


async def _refused(stage: Stage, producer: Producer, who: str) -> None:
    """Raises SteleError if the record of the producer is taken."""
    try:
        await (await producer.send(_TOPIC, b"nobody"))
    except SteleError as error:
        stage.step("note", f"{who} is refused: {error}")
    else:
        raise SteleError(f"{who} writes by a password that was deleted")


async def storm_of_strangers(stage: Stage) -> None:
    await stage.steady()
    stage.step("fault", f"{_STORM} strangers who cannot speak TLS, {_AT_ONCE} at once")
    gate = asyncio.Semaphore(_AT_ONCE)
    brokers = stage.cluster.broker_ids

    async def come(number: int) -> None:
        address = stage.cluster.kafka_address(brokers[number % len(brokers)])
        async with gate:
            try:
                _, writer = await asyncio.open_connection(address.host, address.port)
                writer.write(_GARBAGE[number % len(_GARBAGE)])
                await writer.drain()
                writer.close()
            except OSError:
                return  # refused, which is as good

    await asyncio.gather(*map(come, range(_STORM)))
    stage.step("heal", "the strangers are gone")
    await stage.whole()


_NEEDS: Final = frozenset({Need.SECURITY})

DRILLS: Final = (
    Drill(
        name="certificates-renewed",
        title="Certificates are renewed",
        what="Every node gets another certificate under load. No node is restarted for it.",
        course=certificates_renewed,
        expectations=Expectations(write_outage_ms=3_000, recovery_ms=20_000, isr_least=2),
        needs=_NEEDS,
    ),
    Drill(
        name="authority-renewed",
        title="The authority is renewed",
        what="Another authority is believed, then used, then it alone is believed, under load.",
        course=authority_renewed,
        expectations=Expectations(write_outage_ms=3_000, recovery_ms=20_000, isr_least=2),
        needs=_NEEDS,
    ),
    Drill(
        name="certificate-expired",
        title="A certificate that has expired is refused",
        what="A node's file has an expired certificate. The node keeps the one it has.",
        course=certificate_expired,
        expectations=Expectations(write_outage_ms=2_000, elections_most=0, recovery_ms=10_000),
        needs=_NEEDS,
    ),
    Drill(
        name="credential-deleted",
        title="A password is deleted while it is in use",
        what="A client that is logged in is shut out at once, and so is a new one.",
        course=credential_deleted,
        expectations=Expectations(write_outage_ms=2_000, elections_most=0, recovery_ms=10_000),
        needs=_NEEDS,
    ),
    Drill(
        name="storm-of-strangers",
        title="A storm of strangers",
        what="5,000 connections that are no TLS. Clients hardly notice, and nobody is elected.",
        course=storm_of_strangers,
        expectations=Expectations(write_outage_ms=3_000, elections_most=0, recovery_ms=10_000),
        needs=_NEEDS,
    ),
)
