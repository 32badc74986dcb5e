"""The demo's way: start six processes, stream, kill twice, restart, read back, Spark, report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from chaos.process_cluster import ProcessCluster
from cli.demo.readback import Proof, read_back
from cli.demo.report import Report, SparkFigures, print_report
from cli.demo.sender import OrderSender
from cli.orders import OrderLine, generate_orders, read_orders
from stele.admin.descriptions import NewTopic, TopicDescription
from stele.aio import Admin, Consumer, Producer
from stele.errors import SteleError
from stele.real import RealClock

TOPIC = "orders"
PARTITIONS = 6
LOOK_UP_AT = 0.25
KILL_LEADER_AT = 0.30
RESTART_LEADER_AT = 0.45
KILL_CONTROLLER_AT = 0.60
RESTART_CONTROLLER_AT = 0.75
BUFFER_MEMORY = 4 * 1024 * 1024
"""Little, so that sending does not run far ahead of the acknowledgements that time the kills."""
_WHOLE_ISR_TIMEOUT_S = 60.0
_SPARK_TIMEOUT_S = 300.0
JAVA_ADVICE = (
    "Spark step skipped: it needs Java 17 (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)"
)


class DemoError(SteleError):
    """The demo has not shown what it is to show."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """``file`` None: ``orders`` generated lines from ``seed``."""

    file: Path | None = None
    orders: int = 200_000
    seed: int = 1
    directory: Path | None = None
    base_port: int | None = None

    def lines(self) -> Iterator[OrderLine]:
        if self.file is not None:
            return read_orders(self.file)
        return generate_orders(self.seed, self.orders)


async def run_demo(options: DemoOptions, console: Console) -> Report:
    """Raises DemoError (or another SteleError) when anything is not as it must be."""
    total = sum(1 for _ in options.lines())
    if total == 0:
        raise DemoError(f"{options.file} holds no order lines")
    with _directory(options.directory) as directory:
        cluster = ProcessCluster(directory, controllers=3, brokers=3, base_port=options.base_port)
        try:
            console.print("Starting 3 controllers and 3 brokers as processes on 127.0.0.1 ...")
            await cluster.start()
            return await _with_cluster(cluster, options, total, console)
        finally:
            console.print("Shutting down ...")
            await cluster.stop()


@contextlib.contextmanager
def _directory(wanted: Path | None) -> Iterator[Path]:
    """The directory asked for, kept; or a temporary one, removed at the end."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted.resolve()
        return
    directory = Path(tempfile.mkdtemp(prefix="stele-demo-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _with_cluster(
    cluster: ProcessCluster, options: DemoOptions, total: int, console: Console
) -> Report:
    bootstrap = cluster.bootstrap_servers
    report = Report(lines=total)
    async with Admin(bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})]
        )
        before = await _topic(admin)
        report.quorum_epoch_before = (await admin.describe_quorum()).epoch
        await _stream(cluster, admin, options, total, report, console)
        after = await _wait_for_whole_isr(admin, console)
        report.quorum_epoch_after = (await admin.describe_quorum()).epoch
    report.leader_epochs = [
        (old.leader_epoch, new.leader_epoch)
        for old, new in zip(before.partitions, after.partitions, strict=True)
    ]
    report.check_epochs()
    await _read_back(bootstrap, report, console)
    report.spark = await _run_spark(bootstrap, cluster.directory, console)
    print_report(report, console)
    report.check_spark()
    return report


async def _stream(
    cluster: ProcessCluster,
    admin: Admin,
    options: DemoOptions,
    total: int,
    report: Report,
    console: Console,
) -> None:
    clock = RealClock()
    async with Producer(
        cluster.bootstrap_servers, acks="all", buffer_memory=BUFFER_MEMORY
    ) as producer:
        sender = OrderSender(producer, clock, TOPIC, PARTITIONS)
        started = clock.monotonic()
        async with _progress(sender, total, console):
            attack = asyncio.create_task(_attack(cluster, admin, sender, total, report, console))
            try:
                await sender.run(options.lines())
                await attack
            finally:
                attack.cancel()
                await asyncio.gather(attack, return_exceptions=True)
        report.stream_seconds = clock.monotonic() - started
    report.bytes_streamed = sender.bytes_acknowledged
    report.outages = sender.outages
    report.longest_pause_s = sender.longest_pause_s


async def _attack(
    cluster: ProcessCluster,
    admin: Admin,
    sender: OrderSender,
    total: int,
    report: Report,
    console: Console,
) -> None:
    """Kill a partition's leader, later the active controller, and start both again.

    The victims are looked up ahead, so that nothing is awaited between the moment and the kill.
    """
    async with asyncio.TaskGroup() as restarts:
        await sender.until_acknowledged(int(total * LOOK_UP_AT))
        leaders = {each.partition: each.leader for each in (await _topic(admin)).partitions}
        controller = (await admin.describe_quorum()).leader_id
        await sender.until_acknowledged(int(total * KILL_LEADER_AT))
        broker = await _kill_leader(cluster, leaders, sender, report, console)
        await sender.until_acknowledged(int(total * RESTART_LEADER_AT))
        restarts.create_task(_restart(cluster, broker, console))
        await sender.until_acknowledged(int(total * KILL_CONTROLLER_AT))
        _kill_controller(cluster, controller, sender, report, console)
        await sender.until_acknowledged(int(total * RESTART_CONTROLLER_AT))
        restarts.create_task(_restart(cluster, report.controller_killed, console))


async def _kill_leader(
    cluster: ProcessCluster,
    leaders: Mapping[int, int | None],
    sender: OrderSender,
    report: Report,
    console: Console,
) -> int:
    """Kill the leader with the most lines under way, at a moment at which it has some.

    Between the look and the kill nothing else runs in this process: what the producer has sent
    to the victim and got no answer to is unacknowledged there.
    """
    producer = sender.producer
    brokers = sorted({leader for leader in leaders.values() if leader is not None})
    await sender.until(lambda: any(producer.in_flight(each) for each in brokers))
    victim = max(brokers, key=producer.in_flight)
    batches = producer.in_flight(victim)
    cluster.kill(victim)
    led = [partition for partition, leader in leaders.items() if leader == victim]
    sender.note_kill(f"broker {victim}", led)
    report.broker_killed, report.batches_in_flight = victim, batches
    console.print(
        f"  {_share(sender, report)}: killed -9 broker {victim}, leader of {led}, "
        f"{batches} batches unacknowledged"
    )
    return victim


def _kill_controller(
    cluster: ProcessCluster,
    controller: int | None,
    sender: OrderSender,
    report: Report,
    console: Console,
) -> None:
    if controller is None:
        raise DemoError("the quorum has no leader to kill")
    cluster.kill(controller)
    report.controller_killed = controller
    sender.note_kill(f"controller {controller}", range(PARTITIONS))
    console.print(f"  {_share(sender, report)}: killed -9 controller {controller}, the active one")


def _share(sender: OrderSender, report: Report) -> str:
    return f"at {sender.acknowledged / report.lines:.0%} acknowledged"


async def _restart(cluster: ProcessCluster, node_id: int, console: Console) -> None:
    await cluster.restart(node_id)
    console.print(f"  node {node_id} is back")


@contextlib.asynccontextmanager
async def _progress(sender: OrderSender, total: int, console: Console) -> AsyncIterator[None]:
    """A bar of acknowledged records, with records/s and MB/s."""
    bar = Progress(
        TextColumn("streaming"),
        BarColumn(),
        TextColumn("{task.completed:>9,} of {task.total:,} acknowledged"),
        TextColumn("{task.fields[rate]:>9,.0f} records/s {task.fields[speed]:6.1f} MB/s"),
        console=console,
    )
    task = bar.add_task("streaming", total=total, rate=0.0, speed=0.0)
    with bar:
        painter = asyncio.create_task(_paint(bar, task, sender))
        try:
            yield
        finally:
            painter.cancel()
            _show(bar, task, sender)


async def _paint(bar: Progress, task: TaskID, sender: OrderSender) -> None:
    while True:
        _show(bar, task, sender)
        await asyncio.sleep(0.1)


def _show(bar: Progress, task: TaskID, sender: OrderSender) -> None:
    elapsed = bar.tasks[task].elapsed or 1e-9
    bar.update(
        task,
        completed=sender.acknowledged,
        rate=sender.acknowledged / elapsed,
        speed=sender.bytes_acknowledged / elapsed / 1e6,
    )


async def _topic(admin: Admin) -> TopicDescription:
    (topic,) = await admin.describe_topics([TOPIC])
    return topic


async def _wait_for_whole_isr(admin: Admin, console: Console) -> TopicDescription:
    with console.status("waiting until every ISR is whole"):
        try:
            async with asyncio.timeout(_WHOLE_ISR_TIMEOUT_S):
                while True:
                    topic = await _topic(admin)
                    if not any(each.is_under_replicated for each in topic.partitions):
                        return topic
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise DemoError(
                f"the ISRs were not whole within {_WHOLE_ISR_TIMEOUT_S:.0f} s"
            ) from None


async def _read_back(bootstrap: str, report: Report, console: Console) -> None:
    proof = Proof(report.lines)
    clock = RealClock()
    started = clock.monotonic()
    async with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        with console.status("reading everything back") as status:
            await read_back(
                consumer,
                TOPIC,
                PARTITIONS,
                proof,
                lambda lines: status.update(f"reading everything back: {lines:,}"),
            )
    report.read_seconds = clock.monotonic() - started
    report.figures = proof.figures
    if complaints := proof.complaints():
        raise DemoError("the proof fails: " + "; ".join(complaints))
    console.print(
        f"Read back: all {report.lines:,} acknowledged lines, each once, in order within each key"
    )


async def _run_spark(bootstrap: str, directory: Path, console: Console) -> SparkFigures | None:
    """The Spark job's figures, or None where there is no Java 17."""
    if await _java_major() < 17:
        console.print(JAVA_ADVICE)
        return None
    command = [sys.executable, "-m", "spark.orders", "--json"]
    with console.status("PySpark batch job over the topic"):
        process = await asyncio.create_subprocess_exec(
            *command,
            "--bootstrap-server",
            bootstrap,
            "--topic",
            TOPIC,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
                "TMPDIR": str(directory),  # what a killed Spark leaves goes with it
            },
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), _SPARK_TIMEOUT_S)
        except TimeoutError:
            raise DemoError(f"the Spark job took over {_SPARK_TIMEOUT_S:.0f} s") from None
        finally:
            if process.returncode is None:
                # Its Java too, which would keep the pipes open for which `wait` waits. All of them
                # may have ended before asyncio notices.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
    if process.returncode != 0:
        raise DemoError(f"the Spark job failed:\n{err.decode(errors='replace')[-3000:]}")
    figures: SparkFigures = json.loads(out.decode().strip().splitlines()[-1])
    return figures


async def _java_major() -> int:
    """Java's major version; 0 without Java."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(os.path.join(home, "bin", "java") if home else "java")
    if java is None:
        return 0
    process = await asyncio.create_subprocess_exec(
        java, "-version", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await process.communicate()
    words = said.decode(errors="replace").split('"')
    major = words[1].split(".")[0] if len(words) > 1 else ""
    return int(major) if major.isdigit() else 0
