"""Clients in Java and Go that send or read as fast as their brokers let them, and print when.

Each is a program of its own: ``SERVERS CLIENT_ID TOPIC COUNT produce|consume``. It prints a line
with a time in milliseconds and a size for each value, and ends with an error if anything fails.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from bench.maven import Coordinates, MavenError, fetched
from tests.support.paced_clients import WAIT_S, Arrival, Job
from tests.support.page_programs import run

KAFKA_CLIENTS: Final = Coordinates("org.apache.kafka", "kafka-clients", "4.3.1")
SARAMA: Final = "github.com/IBM/sarama@v1.46.3"
_BUILD_S: Final = 600.0

_JAVA: Final = """
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

public class Paced {
    static void arrived(int size) {
        System.out.println(System.nanoTime() / 1000000 + " " + size);
    }

    static void fail(Throwable error) {
        error.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    public static void main(String[] given) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", given[0]);
        settings.put("client.id", given[1]);
        int count = Integer.parseInt(given[3]);
        if (given[4].equals("produce")) produce(settings, given[2], count);
        else consume(settings, given[2], count);
    }

    static void produce(Map<String, Object> settings, String topic, int count) {
        settings.put("batch.size", 50000);
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<byte[], byte[]>(settings, bytes, bytes)) {
            for (int number = 0; number < count; number++)
                producer.send(new ProducerRecord<>(topic, new byte[10000]), (metadata, error) -> {
                    if (error != null) fail(error);
                    arrived(metadata.serializedValueSize());
                });
        }
    }

    static void consume(Map<String, Object> settings, String topic, int count) {
        settings.put("max.partition.fetch.bytes", 50000);
        settings.put("auto.offset.reset", "earliest");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            while (count > 0)
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    arrived(record.serializedValueSize());
                    count--;
                }
        }
    }
}
"""

_GO: Final = """
package main

import (
\t"fmt"
\t"log"
\t"os"
\t"strconv"
\t"strings"
\t"time"

\t"github.com/IBM/sarama"
)

func arrived(size int) {
\tfmt.Println(time.Now().UnixMilli(), size)
}

func must(err error) {
\tif err != nil {
\t\tlog.Fatal(err)
\t}
}

func main() {
\tservers, topic := strings.Split(os.Args[1], ","), os.Args[3]
\tcount, err := strconv.Atoi(os.Args[4])
\tmust(err)
\tconfig := sarama.NewConfig()
\tconfig.Version = sarama.V2_8_0_0
\tconfig.ClientID = os.Args[2]
\tif os.Args[5] == "produce" {
\t\tproduce(servers, config, topic, count)
\t} else {
\t\tconsume(servers, config, topic, count)
\t}
}

func produce(servers []string, config *sarama.Config, topic string, count int) {
\tconfig.Producer.Return.Successes = true
\tconfig.Producer.Flush.MaxMessages = 5
\tproducer, err := sarama.NewAsyncProducer(servers, config)
\tmust(err)
\tgo func() {
\t\tfor number := 0; number < count; number++ {
\t\t\tvalue := sarama.ByteEncoder(make([]byte, 10000))
\t\t\tproducer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: value}
\t\t}
\t}()
\tfor number := 0; number < count; number++ {
\t\tselect {
\t\tcase message := <-producer.Successes():
\t\t\tarrived(message.Value.Length())
\t\tcase failed := <-producer.Errors():
\t\t\tlog.Fatal(failed)
\t\t}
\t}
\tmust(producer.Close())
}

func consume(servers []string, config *sarama.Config, topic string, count int) {
\tconfig.Consumer.Return.Errors = true
\tconfig.Consumer.Fetch.Default = 50000
\tconsumer, err := sarama.NewConsumer(servers, config)
\tmust(err)
\tpartition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
\tmust(err)
\tfor number := 0; number < count; number++ {
\t\tselect {
\t\tcase message := <-partition.Messages():
\t\t\tarrived(len(message.Value))
\t\tcase failed := <-partition.Errors():
\t\t\tlog.Fatal(failed)
\t\t}
\t}
}
"""


class Program(NamedTuple):
    """A client that was built, or why this machine cannot."""

    command: tuple[str, ...]
    reason: str = ""


def run_program(program: Program, what: str, job: Job) -> list[Arrival]:
    """Skips the test if the program was not built."""
    if program.reason:
        pytest.skip(program.reason)
    done = subprocess.run(
        [*program.command, job.servers, job.client_id, job.topic, str(job.values), what],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return [Arrival(int(at_ms) / 1000, int(size)) for at_ms, size in lines]


def java(directory: Path) -> Program:
    """Kafka's own client."""
    if shutil.which("javac") is None:
        return Program((), "no JDK is installed")
    try:
        folder = fetched(f"kafka-clients-{KAFKA_CLIENTS.version}", [KAFKA_CLIENTS])
    except MavenError as error:
        return Program((), str(error))
    (directory / "Paced.java").write_text(_JAVA)
    run("javac", "-cp", f"{folder}/*", "Paced.java", directory=directory, timeout_s=_BUILD_S)
    return Program(("java", "-Xmx128m", "-cp", f"{folder}/*:{directory}", "Paced"))


def sarama(directory: Path) -> Program:
    """A client in Go."""
    if shutil.which("go") is None:
        return Program((), "Go is not installed")
    run("go", "mod", "init", "paced", directory=directory)
    (directory / "main.go").write_text(_GO)
    try:
        run("go", "get", SARAMA, directory=directory, timeout_s=_BUILD_S)
        run("go", "mod", "tidy", directory=directory, timeout_s=_BUILD_S)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        return Program((), f"go cannot fetch {SARAMA}: {error}")
    run("go", "build", "-o", "paced", ".", directory=directory, timeout_s=_BUILD_S)
    return Program((str(directory / "paced"),))
