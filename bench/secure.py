"""What TLS costs: throughput, single records, handshakes, long turns, memory.

python -m bench secure [--parts load,handshakes,storm,memory] [--seconds 5] [--rounds 3]
                       [--kafka 4.1.1 | --no-kafka] [--connections 1000] [--json]

One node has a plaintext listener, one with TLS, and one that requires certificates. The load goes
from one to the next, so that all have the same neighbours, and to a node of Kafka with the same
listeners.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import json
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bench.kafka_cluster import KafkaError, jars
from bench.maven import CACHE, MavenError
from bench.report import Cell, Report
from bench.secure_load import ClientFiles, Target, kafka, measure
from bench.secure_server import LISTENERS
from node.certificates import CertificateDirectory
from runtime.real.tls_engine import TlsEngine
from security.authority import Subject
from stele.security.client_security import Store, TlsSettings
from stele.security.contexts import server_context
from stele.security.stores import read_key_store, read_trust_store

STORM = 500
HANDSHAKES = 200
PORT = 28_901


class Server:
    """The node's process."""

    def __init__(self, process: asyncio.subprocess.Process, ports: dict[str, int]) -> None:
        self._process = process
        self.ports = ports

    async def ask(self, word: str) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode())
        return float(json.loads(await self._process.stdout.readline()))

    async def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()


@contextlib.asynccontextmanager
async def server(keystore: Path, handshakes: str = "threads") -> AsyncIterator[Server]:
    with tempfile.TemporaryDirectory(dir=keystore.parents[1]) as folder:
        (Path(folder) / "certs").symlink_to(keystore.parent)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "bench.secure_server", folder, str(PORT), str(keystore), handshakes),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        running = Server(process, json.loads(await process.stdout.readline()))
        try:
            yield running
        finally:
            await running.end()


class Certificates:
    """The node's certificates, with keys of two kinds, and a user's."""

    def __init__(self, folder: Path) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self.directory = CertificateDirectory(folder / "certs")
        self._authority = self.directory.make_authority(now)
        self.node = self.directory.issue(Subject.node(1, ["127.0.0.1"]), now, 30)
        self.user = self.directory.issue(Subject.user("bench"), now, 30)
        self.rsa = folder / "certs" / "rsa.pem"
        self.rsa.write_text(self._with_rsa(now))

    def _with_rsa(self, now: datetime.datetime) -> str:
        """The node's certificate with another key, signed by the same authority."""
        key = rsa.generate_private_key(65537, 2048)
        own = x509.load_pem_x509_certificate(self._authority.certificate.encode())
        signing: Any = serialization.load_pem_private_key(
            self._authority.keystore.key.encode(), None
        )
        names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(own.subject)
            .issuer_name(own.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now)
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(names, critical=False)
            .sign(signing, hashes.SHA256())
        )
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return (text + certificate.public_bytes(serialization.Encoding.PEM)).decode()


# ------------------------------------------------------------------------------------ load


async def load(options: argparse.Namespace, made: Certificates, report: Report) -> None:
    """Stele, and Kafka beside it."""
    files = ClientFiles(made.directory.truststore, made.user)
    async with contextlib.AsyncExitStack() as running:
        node = await running.enter_async_context(server(made.node))
        targets = [Target("Stele", node.ports, lambda: node.ask("cpu"))]
        if options.kafka:
            folder = jars(options.kafka, options.jars)
            started = kafka(folder, files.truststore, made.node)
            targets.append(await running.enter_async_context(started))
        await measure(targets, files, options.rounds, options.seconds, report)


# ------------------------------------------------------------------------------ handshakes


def handshakes(made: Certificates, report: Report) -> None:
    """The server's CPU of handshakes, without a network and without the client's part."""
    rows: list[list[Cell]] = []
    trust = read_trust_store(Store(location=str(made.directory.truststore)))
    for kind, file in (("ECDSA P-256", made.node), ("RSA 2048", made.rsa)):
        for client_auth in ("none", "required"):
            settings = TlsSettings(keystore=Store(location=str(file)))
            context = server_context(
                settings, read_key_store(settings.keystore), trust, client_auth, str
            )
            client = ssl.create_default_context(cafile=str(made.directory.truststore))
            client.check_hostname = False
            client.load_cert_chain(str(made.user))
            spent = [_handshake(context, client) for _ in range(HANDSHAKES)]
            rows.append([kind, client_auth, median(spent) * 1000, 1 / median(spent)])
    report.table(
        "Handshakes of TLS 1.3, the server's part",
        ["key", "client certificate", "CPU, ms", "a second and core"],
        rows,
    )


def _handshake(context: ssl.SSLContext, client: ssl.SSLContext) -> float:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = client.wrap_bio(incoming, outgoing)
    engine, spent, done = TlsEngine(context), 0.0, False
    while not done:
        with contextlib.suppress(ssl.SSLWantReadError):
            there.do_handshake()
        engine.receive(outgoing.read())
        began = time.perf_counter()
        done = engine.shake_hands()
        spent += time.perf_counter() - began
        incoming.write(engine.take_output())
    return spent


def _client_context(made: Certificates) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(made.directory.truststore))
    context.check_hostname = False
    context.load_cert_chain(str(made.user))
    return context


async def storm(made: Certificates, report: Report) -> None:
    """Clients that all come back at once, while nothing else happens."""
    rows: list[list[Cell]] = []
    context = _client_context(made)
    for kind, file in (("ECDSA P-256", made.node), ("RSA 2048", made.rsa)):
        for where in ("threads", "loop"):
            async with server(file, where) as running:
                for name in LISTENERS:
                    await asyncio.sleep(1)
                    await running.ask("turns")
                    await running.ask("busy")
                    began = time.perf_counter()
                    writers = await asyncio.gather(
                        *(_open(running, name, context) for _ in range(STORM))
                    )
                    took_s = time.perf_counter() - began
                    turn, busy = await running.ask("turns"), await running.ask("busy")
                    rows.append([kind, name, where, turn, busy, took_s])
                    for writer in writers:
                        writer.transport.abort()
    report.table(
        f"{STORM} connections at once",
        [
            "key",
            "listener",
            "handshakes in",
            "longest turn, ms",
            "of it CPU of the loop's thread, ms",
            "all connected, s",
        ],
        rows,
    )


async def memory(options: argparse.Namespace, made: Certificates, report: Report) -> None:
    rows: list[list[Cell]] = []
    context = _client_context(made)
    for name in LISTENERS:
        async with server(made.node) as running:
            # The first ones make what all of them share.
            first = [await _open(running, name, context) for _ in range(20)]
            await asyncio.sleep(1)
            before = await running.ask("memory")
            more = [await _open(running, name, context) for _ in range(options.connections)]
            await asyncio.sleep(1)
            used = await running.ask("memory") - before
            rows.append([name, used, used * 1024 / options.connections])
            for writer in (*first, *more):
                writer.transport.abort()
    report.table(
        f"Memory of {options.connections} connections without requests",
        ["listener", "MiB", "KiB each"],
        rows,
    )


async def _open(running: Server, name: str, context: ssl.SSLContext) -> asyncio.StreamWriter:
    secured = None if name == "PLAINTEXT" else context
    _, writer = await asyncio.open_connection("127.0.0.1", running.ports[name], ssl=secured)
    return writer


async def run(options: argparse.Namespace) -> None:
    report = Report("secure", as_json=options.json)
    with tempfile.TemporaryDirectory() as folder:
        made = Certificates(Path(folder))
        if "handshakes" in options.parts:
            handshakes(made, report)
        if "storm" in options.parts:
            await storm(made, report)
        if "memory" in options.parts:
            await memory(options, made, report)
        if "load" in options.parts:
            await load(options, made, report)
    report.finish()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench secure", description="What TLS costs.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--kafka", default="4.1.1", metavar="VERSION")
    parser.add_argument("--no-kafka", dest="kafka", action="store_const", const="")
    parser.add_argument("--jars", type=Path, default=CACHE, help="where fetched jars are kept")
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--parts", default="handshakes,storm,memory,load")
    parser.add_argument("--json", action="store_true")
    try:
        uvloop.run(run(parser.parse_args(arguments)))
    except (KafkaError, MavenError) as error:
        sys.exit(f"bench secure: {error}")


if __name__ == "__main__":
    main()
