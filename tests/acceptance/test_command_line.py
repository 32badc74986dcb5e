"""The command line as a user runs it: real commands, a real cluster, Ctrl-C at any time."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stele import Admin, Producer
from tests.support.acceptance import committed

pytestmark = pytest.mark.processes

STELE = [sys.executable, "-m", "cli"]
HEADER = b"InvoiceNo,StockCode,Description,Quantity,InvoiceDate,UnitPrice,CustomerID,Country\n"
LINE = b'536365,85123A,"HEART, WHITE",6,2010-12-01 08:26:00,2.55,17850.0,United Kingdom\n'
CreateTopic = Callable[..., str]


def stele(
    *arguments: str, bootstrap: str = "127.0.0.1:1", stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*STELE, *arguments],
        input=stdin,
        capture_output=True,
        timeout=60,
        env={**os.environ, "STELE_BOOTSTRAP_SERVER": bootstrap},
    )


def one_line(done: subprocess.CompletedProcess[bytes], code: int = 1) -> str:
    """The only line of a command that failed."""
    assert done.returncode == code, done
    assert done.stdout == b""
    said = done.stderr.decode()
    assert said.startswith("stele: ")
    assert said.count("\n") == 1, said
    return said


# --------------------------------------------------------------------------- against a cluster


def test_performance_is_measured(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=2)
    load = ("--num-records", "400", "--record-size", "100", "--topic", topic)
    paced = stele("perf", "produce", "--throughput", "800", "--json", *load, bootstrap=bootstrap)
    assert paced.returncode == 0, paced
    figures = json.loads(paced.stdout)["all"]
    assert (figures["records"], figures["bytes"]) == (400, 40_000)
    assert figures["records_per_sec"] < 805
    assert 0 < figures["latency"]["p50_ms"] <= figures["latency"]["p99.9_ms"]
    consumed = stele("perf", "consume", "--topic", topic, "--messages", "400", bootstrap=bootstrap)
    header, line = consumed.stdout.decode().splitlines()
    assert dict(zip(header.split(", "), line.split(", "), strict=True))[
        "data.consumed.in.nMsg"
    ] == "400"  # fmt: skip
    in_group = ("--group", "measured", "--json", "--topic", topic, "--messages", "400")
    consumed = stele("perf", "consume", *in_group, bootstrap=bootstrap)
    assert json.loads(consumed.stdout)["data_consumed_in_nMsg"] == 400
    assert json.loads(consumed.stdout)["rebalance_time_ms"] > 0
    done = stele("perf", "end-to-end", "--throughput", "800", *load, bootstrap=bootstrap)
    assert done.stdout.startswith(b"0\t"), done
    assert b"Avg latency: " in done.stdout
    assert b"Percentiles: 50th = " in done.stdout
    wrong = stele("perf", "consume", "--topic", "nothing", "--messages", "1", bootstrap=bootstrap)
    assert "there is no topic 'nothing'" in one_line(wrong)


def test_everything_that_can_be_json_is(bootstrap: str) -> None:
    created = stele("topic", "create", "in-json", "-p", "2", "--json", bootstrap=bootstrap)
    assert json.loads(created.stdout)["partitions"] == 2
    stele("produce", "in-json", bootstrap=bootstrap, stdin=b"one\ntwo\n")
    for command in (
        ["topic", "list"],
        ["topic", "describe", "in-json"],
        ["topic", "configs", "in-json"],
        ["cluster", "describe"],
        ["quorum", "describe"],
        ["version"],
    ):
        done = stele(*command, "--json", bootstrap=bootstrap)
        assert done.returncode == 0, done
        assert json.loads(done.stdout)
        assert done.stderr == b""


def test_a_topic_grows_and_loses_its_oldest_records(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=1)
    stele("produce", topic, bootstrap=bootstrap, stdin=b"one\ntwo\nthree\n")
    deletion = ("topic", "delete-records", topic, "--partition", "0", "--before")
    done = stele(*deletion, "2", bootstrap=bootstrap)
    assert done.stdout.decode() == f"{topic}-0 begins at offset 2\n", done
    assert "OFFSET_OUT_OF_RANGE" in one_line(stele(*deletion, "4", bootstrap=bootstrap))
    assert stele("consume", topic, bootstrap=bootstrap).stdout == b"three\n"
    grown = stele("topic", "alter", topic, "--partitions", "3", "--json", bootstrap=bootstrap)
    assert json.loads(grown.stdout) == {"name": topic, "partitions": 3}
    assert "3 partitions" in one_line(
        stele("topic", "alter", topic, "--partitions", "3", bootstrap=bootstrap)
    )
    assert "alive" in one_line(
        stele("cluster", "unregister", a_broker(bootstrap), bootstrap=bootstrap)
    )


def test_lines_in_a_transaction(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=1, **{"max.message.bytes": "400"})
    transactional = ("produce", topic, "--transactional-id", "lines-of-a-file")

    def read() -> bytes:
        committed(bootstrap, topic)  # waits until no transaction is open any more
        done = stele("consume", topic, "--isolation-level", "read_committed", bootstrap=bootstrap)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    done = stele(*transactional, bootstrap=bootstrap, stdin=b"one\ntwo\n")
    assert (done.returncode, done.stdout) == (0, b"")
    assert read() == b"one\ntwo\n"
    done = stele(*transactional, bootstrap=bootstrap, stdin=b"three\n" + b"x" * 1000 + b"\n")
    assert "the transaction was not committed: no record counts" in one_line(done)
    assert read() == b"one\ntwo\n"
    done = stele(
        "perf", "produce", "--topic", topic, "--num-records", "50", "--record-size", "10",
        "--throughput", "-1", "--transaction-duration-ms", "100", "--json",
        bootstrap=bootstrap,
    )  # fmt: skip
    assert json.loads(done.stdout)["all"]["records"] == 50
    assert read().count(b"\n") == 52


def a_broker(bootstrap: str) -> str:
    described = stele("cluster", "describe", "--json", bootstrap=bootstrap)
    return str(json.loads(described.stdout)["brokers"][0]["broker_id"])


def test_lines_in_and_out(bootstrap: str, create_topic: CreateTopic, tmp_path: Path) -> None:
    topic = create_topic(partitions=1)
    lines = [b"one", b"", "drei: \u20ac".encode(), b"\xff\xfe", b"last"]
    done = stele("produce", topic, bootstrap=bootstrap, stdin=b"\n".join(lines[:3]))
    assert (done.returncode, done.stdout) == (0, b"")
    packed = tmp_path / "lines.gz"
    packed.write_bytes(gzip.compress(b"\n".join(lines[3:]) + b"\n"))
    assert stele("produce", topic, "--file", str(packed), bootstrap=bootstrap).returncode == 0

    def consumed(*options: str) -> list[bytes]:
        done = stele("consume", topic, *options, bootstrap=bootstrap)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.split(b"\n")[:-1]

    assert consumed() == lines
    assert consumed("--offset", "3") == lines[3:]
    assert consumed("--offset", "1", "--max", "2") == lines[1:3]
    assert consumed("--offset", "latest") == []
    records = [json.loads(line) for line in consumed("--format", "json")]
    assert [each["offset"] for each in records] == [0, 1, 2, 3, 4]
    assert records[2]["value"] == "drei: \u20ac"
    assert records[3]["value"] == {"base64": "//4="}


def test_mistakes_are_one_line(bootstrap: str, create_topic: CreateTopic, tmp_path: Path) -> None:
    topic = create_topic()
    near = topic.replace("topic", "topik")
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(os.urandom(5000))[:-200])
    (tmp_path / "no.gz").write_text("plain")

    def said(*arguments: str, stdin: bytes = b"") -> str:
        return one_line(stele(*arguments, bootstrap=bootstrap, stdin=stdin))

    for command in (["topic", "describe"], ["topic", "delete"], ["consume"], ["produce"]):
        assert f"there is no topic {near!r}. Did you mean" in said(*command, near)
    assert f"cannot read {tmp_path}/none: No such file" in said(
        "produce", topic, "--file", f"{tmp_path}/none"
    )
    assert "Is a directory" in said("produce", topic, "--file", str(tmp_path))
    assert f"{cut} is cut short" in said("produce", topic, "--file", str(cut))
    assert "no.gz" in said("produce", topic, "--file", f"{tmp_path}/no.gz")
    assert "must be one of" in said("produce", topic, "--acks", "7")
    assert "has partitions 0 to 0, not 9" in said("produce", topic, "--partition", "9", stdin=b"x")
    assert "has partitions 0 to 0, not 9" in said("consume", topic, "--partition", "9")
    soon = stele("consume", topic, "--offset", "soon", bootstrap=bootstrap)
    assert "earliest, latest or a number" in one_line(soon, code=2)
    assert f"{topic}-0 has 0 to 0, its end" in said("consume", topic, "--offset", "9")
    too_large = said("produce", topic, stdin=bytes(3_000_000))
    assert "MESSAGE_TOO_LARGE" in too_large
    assert "max.message.bytes" in too_large


@pytest.mark.parametrize(
    "command",
    [["topic", "list"], ["cluster", "describe"], ["produce", "t"], ["consume", "t"]],
    ids=" ".join,
)
def test_a_refused_port_is_reported_at_once_and_not_over_and_over(command: list[str]) -> None:
    done = stele(*command, "--timeout", "2")
    assert done.returncode == 1
    lines = done.stderr.decode().splitlines()
    assert len(lines) <= 3, lines
    assert all("127.0.0.1:1" in line and "refused" in line for line in lines)


def test_a_measurement_that_is_interrupted_tells_what_it_has(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    process = start(
        *("perf", "produce", "--topic", create_topic(partitions=1), "-b", bootstrap),
        *("--num-records", "1000000", "--record-size", "10", "--throughput", "1000"),
        *("--reporting-interval", "100"),
    )
    assert process.stdout is not None
    assert " records sent, " in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, "")
    assert " ms 99.9th." in out


SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])


@SIGNALS
def test_a_follower_of_a_topic_ends_by_a_signal(
    bootstrap: str, create_topic: CreateTopic, number: signal.Signals, code: int
) -> None:
    topic = create_topic()
    stele("produce", topic, bootstrap=bootstrap, stdin=b"here\n")
    process = start("consume", topic, "--follow", "-b", bootstrap)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(number)
    out, errors = process.communicate(timeout=10)
    assert (process.returncode, out, errors) == (code, "", "")


@SIGNALS
def test_a_group_goes_on_where_its_last_member_has_stopped(
    bootstrap: str, create_topic: CreateTopic, number: signal.Signals, code: int
) -> None:
    topic = create_topic(partitions=1)
    stele("produce", topic, bootstrap=bootstrap, stdin=b"one\ntwo\nthree\n")
    group = f"readers-of-{topic}"
    first = stele("consume", topic, "--group", group, "--max", "2", bootstrap=bootstrap)
    assert (first.returncode, first.stdout, first.stderr) == (0, b"one\ntwo\n", b"")
    process = start("consume", topic, "--group", group, "-b", bootstrap)
    assert process.stdout is not None
    assert process.stdout.readline() == "three\n"
    process.send_signal(number)
    out, errors = process.communicate(timeout=10)
    assert (process.returncode, out, errors) == (code, "", "")
    with Admin(bootstrap) as admin:
        (described,) = admin.describe_groups([group])
    assert list(described.members) == []
    refused = stele("consume", topic, "--group", group, "--partition", "0", bootstrap=bootstrap)
    assert "exclude each other" in one_line(refused, code=2)
    refused = stele("consume", topic, "--group", group, "--offset", "1", bootstrap=bootstrap)
    assert "stele group reset-offsets" in one_line(refused, code=2)


def test_an_interrupted_produce_says_how_much_is_there(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=1)
    process = subprocess.Popen(
        [*STELE, "produce", topic, "-b", bootstrap],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nthree\n")
    process.stdin.flush()
    deadline = time.monotonic() + 20
    while stele("consume", topic, bootstrap=bootstrap).stdout.count(b"\n") < 3:
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == 130
    assert errors == b"stele: interrupted: 3 records, 11 bytes acknowledged\n"


def test_nothing_is_called_acknowledged_that_is_not(
    bootstrap: str, create_topic: CreateTopic
) -> None:
    done = stele("produce", create_topic(), "--acks", "0", bootstrap=bootstrap, stdin=b"one\n")
    assert done.returncode == 0
    assert done.stderr == b"1 records, 3 bytes sent (brokers do not acknowledge with acks=0)\n"


@pytest.mark.parametrize("pauses_s", [(1.0,), (1.0, 0.01), (1.0, 0.05), (1.0, 0.01, 0.01)])
def test_ctrl_c_on_a_dead_cluster_leaves_no_traceback(pauses_s: tuple[float, ...]) -> None:
    process = start("topic", "list", "-b", "127.0.0.1:1")
    for pause_s in pauses_s:
        time.sleep(pause_s)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert process.returncode in (130, -signal.SIGINT)
    assert "Traceback" not in errors


# -------------------------------------------------------------------------------- stele dev


def test_dev_refuses_to_combine_several_nodes(tmp_path: Path) -> None:
    dev = ("dev", "--dir", str(tmp_path / "c"), "--combined")
    for option in ("--controllers", "--brokers"):
        assert "--combined is one node" in one_line(stele(*dev, option, "2"), code=2)
    assert not (tmp_path / "c").exists()


def test_dev_refuses_a_setting_that_does_not_exist(tmp_path: Path) -> None:
    said = one_line(stele("dev", "--dir", str(tmp_path / "c"), "--set", "log.retention.hour=1"))
    assert "log.retention.hours" in said
    assert not (tmp_path / "c").exists()


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start a command in its own process group, as a shell does."""
    return subprocess.Popen(
        [*STELE, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        env={**os.environ, **environment},
    )


def processes_with(word: str) -> list[int]:
    """Processes whose command line, or a path of whose open files, holds ``word``."""
    return [
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if any(word in told for told in told_of(path))
    ]


def told_of(process: Path) -> Iterator[str]:
    with suppress(OSError):  # it has ended meanwhile
        yield (process / "cmdline").read_bytes().decode(errors="replace")
        for handle in (process / "fd").iterdir():
            with suppress(OSError):  # it was closed meanwhile
                yield os.readlink(handle)


def assert_none_left(directory: Path) -> None:
    deadline = time.monotonic() + 5
    while (left := processes_with(str(directory))) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == [], "processes outlived the command that started them"


def read_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if words in line:
            return "".join(seen)
    raise AssertionError(f"it ended with {process.wait()} before {words!r}: {seen}")


@pytest.fixture
def leftovers(tmp_path: Path) -> Iterator[None]:
    """End whatever a failed test has left running."""
    yield
    for pid in processes_with(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


def prepare_a_transaction(bootstrap: str) -> None:
    """As Spark's exactly-once sink does."""
    with Producer(
        bootstrap, transactional_id="prepared", transaction_two_phase_commit_enable=True
    ) as producer:
        producer.begin_transaction()
        producer.prepare_transaction()
        producer.commit_transaction()


@pytest.mark.usefixtures("leftovers")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_dev_serves_until_a_signal_to_its_group_and_starts_again(
    tmp_path: Path, number: signal.Signals
) -> None:
    directory = tmp_path / "cluster"
    dev = ("dev", "--combined", "--dir", str(directory), "--base-port", "0")
    for round_number in range(2):
        process = start(*dev)
        said = read_until(process, "Ctrl-C stops the cluster")
        bootstrap = said.split("Brokers", 1)[1].split()[0]
        if round_number == 0:
            assert stele("topic", "create", "kept", bootstrap=bootstrap).returncode == 0
            assert stele("produce", "kept", bootstrap=bootstrap, stdin=b"kept\n").returncode == 0
            prepare_a_transaction(bootstrap)
        assert stele("consume", "kept", bootstrap=bootstrap).stdout == b"kept\n"
        assert processes_with(f"{directory}/")
        os.killpg(process.pid, number)
        began = time.monotonic()
        process.communicate(timeout=15)
        assert time.monotonic() - began < 10
        assert process.returncode in (0, 130)
        assert_none_left(directory)


@pytest.mark.usefixtures("leftovers")
def test_ctrl_c_while_dev_starts(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    process = start("dev", "--dir", str(directory), "--base-port", "0")
    deadline = time.monotonic() + 20
    while not processes_with(f"{directory}/") and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=15)
    assert process.returncode in (0, 130)
    assert "Traceback" not in errors
    assert_none_left(directory)


@pytest.mark.usefixtures("leftovers")
def test_dev_whose_port_is_taken_says_which_and_what_to_do(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        directory = str(tmp_path / "cluster")
        said = one_line(stele("dev", "--combined", "--dir", directory, "--base-port", str(port)))
    assert f"port {port}" in said
    assert "--base-port" in said
    assert_none_left(tmp_path / "cluster")


# -------------------------------------------------------------------------------- stele demo


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"", "holds no order lines"),
        (b"a,b\n1,2\n", "its first line must be InvoiceNo"),
        (HEADER, "holds no order lines"),
        (HEADER + b"536365,85123A,cut\n", "line 2: fewer columns"),
        (HEADER + LINE.replace(b",6,", b",six,"), "line 2: not UTF-8, or Quantity"),
        (HEADER + LINE.replace(b"WHITE", b"\xff"), "line 2: not UTF-8"),
        (gzip.compress(HEADER + os.urandom(3000).hex().encode())[:-50], "cut short"),
    ],
    ids=[
        "none",
        "empty",
        "another file",
        "no lines",
        "a cut line",
        "no number",
        "no text",
        "a cut gzip",
    ],
)
def test_a_demo_of_a_wrong_file(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "orders.csv"
    if content is not None:
        file.write_bytes(content)
    done = stele("demo", "--file", str(file))
    line = one_line(done)
    assert said in line
    assert str(file) in line


@pytest.mark.usefixtures("leftovers")
@pytest.mark.parametrize(
    ("words", "orders", "seconds_later"),
    [
        ("Starting 3 controllers", "300000", 0),
        ("killed -9", "300000", 0),
        ("Read back", "20000", 3),  # in the Spark step, where there is Java
    ],
)
def test_ctrl_c_in_the_middle_of_the_demo_leaves_nothing(
    tmp_path: Path, words: str, orders: str, seconds_later: float
) -> None:
    process = start("demo", "--orders", orders, TMPDIR=str(tmp_path))
    read_until(process, words)
    time.sleep(seconds_later)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=40)
    assert process.returncode == 130 or shutil.which("java") is None
    assert "Traceback" not in errors
    assert_none_left(tmp_path)
    assert list(tmp_path.iterdir()) == []
