"""What every check needs: a cluster, a directory for files, and ways to run programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.maven import CACHE, Coordinates, fetched
from stele import Admin, Consumer, NewTopic, Producer
from stele.ids import TopicPartition
from stele.records import ConsumerRecord

KAFKA_VERSION: Final = "4.1.1"
PROGRAMS: Final = Path(__file__).with_name("programs")
PYTHON_PACKAGES: Final = ("quixstreams==3.28.1", "faststream[confluent]==0.7.8")
_MODULES: Final = (
    *("kafka_2.13", "kafka-tools", "kafka-streams"),
    *("connect-runtime", "connect-file", "connect-mirror"),
)
_LOGGING: Final = Coordinates("org.slf4j", "slf4j-simple", "1.7.36")
_LOG_LEVEL: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
_PROGRAM_S: Final = 300.0
_LOOK_S: Final = 0.3


class CheckError(Exception):
    """A program did not do what it does with Kafka. The text says what was different."""


class MissingError(Exception):
    """A program is not on this machine. The text says which."""


@dataclass(slots=True)
class Stage:
    servers: str
    directory: Path
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    # -------------------------------------------------------------------------------- programs

    def java(self, main: str, *arguments: str, given: str = "") -> str:
        """What a class of Kafka's jars prints. Raises CheckError if it fails."""
        return self.program(self.java_command(main, *arguments), given=given)

    def java_command(self, main: str, *arguments: str) -> list[str]:
        """``main``: the name of a class, or the path of a source file."""
        if shutil.which("java") is None:
            raise MissingError("Java 17")
        modules = [Coordinates("org.apache.kafka", each, KAFKA_VERSION) for each in _MODULES]
        jars = fetched(f"kafka-tools-{KAFKA_VERSION}", [*modules, _LOGGING])
        return ["java", "-Xmx512m", _LOG_LEVEL, "-cp", f"{jars}/*", main, *arguments]

    def python_command(self, *arguments: str) -> list[str]:
        """By an interpreter that has PYTHON_PACKAGES and not this project."""
        home = CACHE / "python-frameworks"
        python = home / "bin" / "python"
        if not (home / "whole").exists():
            self.program([sys.executable, "-m", "venv", "--clear", str(home)])
            self.program([str(python), "-m", "pip", "install", "--quiet", *PYTHON_PACKAGES])
            (home / "whole").touch()
        return [str(python), *arguments]

    def program(self, command: Sequence[str], *, given: str = "") -> str:
        """Its standard output. Raises CheckError, MissingError."""
        try:
            done = subprocess.run(
                command,
                input=given,
                text=True,
                capture_output=True,
                timeout=_PROGRAM_S,
                cwd=self.directory,
                check=False,
            )
        except FileNotFoundError:
            raise MissingError(command[0]) from None
        except subprocess.TimeoutExpired:
            raise CheckError(f"{command[:8]} has not ended after {_PROGRAM_S:.0f} s") from None
        if done.returncode != 0:
            last = f"{done.stdout[-500:]}{done.stderr[-800:]}"
            raise CheckError(f"exit code {done.returncode}: {last}")
        return done.stdout

    def start(self, command: Sequence[str], log: str) -> subprocess.Popen[str]:
        """A program that runs until ``stop_all``."""
        with (self.directory / log).open("a") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, text=True, cwd=self.directory, env=os.environ
            )
        self.running.append(process)
        return process

    def stop_all(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()
        self.running.clear()

    # --------------------------------------------------------------------------------- records

    def make_topics(self, *names: str, partitions: int = 3, **configs: str) -> None:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(self.servers) as admin:
            admin.create_topics([NewTopic(name, partitions, 3, named) for name in names])

    def write(self, topic: str, count: int, keys: int = 10) -> None:
        """Records with the values 0, 1, 2, … and the keys k0, k1, …"""
        with Producer(self.servers) as producer:
            for number in range(count):
                producer.send(topic, b"%d" % number, b"k%d" % (number % keys))

    def read(self, topic: str) -> list[ConsumerRecord]:
        """All committed records up to now."""
        found: list[ConsumerRecord] = []
        with Consumer(
            self.servers, auto_offset_reset="earliest", isolation_level="read_committed"
        ) as consumer:
            names = [TopicPartition(topic, each) for each in consumer.partitions_for(topic)]
            consumer.assign(names)
            ends = consumer.end_offsets(names)
            while any(consumer.position(*name) < end for name, end in ends.items()):
                found += consumer.poll()
        return found

    def wait_for(self, what: str, is_there: Callable[[], bool]) -> None:
        """Raises CheckError."""
        deadline = time.monotonic() + _PROGRAM_S
        while not is_there():
            if time.monotonic() > deadline:
                raise CheckError(f"{what}: not within {_PROGRAM_S:.0f} s")
            for process in self.running:
                if process.poll() is not None:
                    raise CheckError(f"{what}: {process.args!r} ended with {process.returncode}")
            time.sleep(_LOOK_S)

    def properties(self, name: str, properties: Mapping[str, object]) -> str:
        path = self.directory / name
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        return str(path)


def same(found: object, expected: object, what: str) -> None:
    """Raises CheckError."""
    if found != expected:
        raise CheckError(f"{what}: {_short(found)} instead of {_short(expected)}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 400 else f"{text[:400]}…"
