"""What is read out of audit logs: denials and refusals, each once, and what mends them."""

from __future__ import annotations

import json
import logging

from metadata.acl import Operation, Resource, ResourceType
from runtime.log_format import JsonFormatter
from security.audit import Denial, Event, count_line, event_line, line
from security.audit_report import AuditReport, DenialKey, remedies

READ = Operation.READ
ORDERS = Resource(ResourceType.TOPIC, "orders")
AT_MS = 1_700_000_000_000


def denied(
    principal: str = "User:ann",
    operation: Operation = READ,
    resource: Resource = ORDERS,
    *,
    rule: str = "DefaultDeny",
    host: str = "10.0.0.1",
    client_id: str | None = "app",
    time_ms: int = AT_MS,
    left_out: int = 0,
) -> str:
    denial = Denial(principal, operation, resource, host, client_id, "CLIENTS", rule)
    return line(denial, time_ms=time_ms, left_out=left_out)


def report_of(*lines: str) -> AuditReport:
    report = AuditReport()
    assert [report.take(each) for each in lines] == [True] * len(lines)
    return report


def only(report: AuditReport) -> DenialKey:
    (key,) = report.denials
    return key


def test_denials_are_counted_with_the_ones_that_were_left_out() -> None:
    report = report_of(
        denied(time_ms=AT_MS + 60_000, left_out=41, host="10.0.0.2", client_id=None),
        denied(),
        denied("User:bob"),
        denied(time_ms=AT_MS + 30_000),
    )
    ann, _ = report.denials.values()
    assert (ann.times, ann.first[:19], ann.last[:19]) == (
        44,
        "2023-11-14T22:13:20",
        "2023-11-14T22:14:20",
    )
    assert list(ann.hosts) == ["10.0.0.2", "10.0.0.1"]
    assert list(ann.clients) == ["app"]


def test_few_hosts_are_named() -> None:
    hosts = [f"10.0.0.{number}" for number in range(9)]
    report = report_of(*(denied(host=each, client_id=f"c{each}") for each in hosts))
    (seen,) = report.denials.values()
    assert (seen.times, list(seen.hosts)) == (9, hosts[:5])
    assert list(seen.clients) == [f"c{each}" for each in hosts[:5]]


def test_lines_without_a_count() -> None:
    report = report_of('{"event": "denied"}', '{"event": "denials_left_out", "principal": "a"}')
    assert [seen.times for seen in report.denials.values()] == [1]
    assert report.left_out == {"a": 0}


def test_what_mends_a_denial() -> None:
    key = only(report_of(denied()))
    assert (key.resource, key.remedy) == (
        "topic:orders",
        "stele acls add User:ann READ topic:orders",
    )
    cluster = Resource(ResourceType.CLUSTER, "kafka-cluster")
    node = only(report_of(denied("User:CN=b 7", Operation.CLUSTER_ACTION, cluster)))
    assert node.remedy == (
        "if it is a node of the cluster, add it to super.users, or: "
        "stele acls add 'User:CN=b 7' CLUSTER_ACTION cluster"
    )
    transactions = Resource(ResourceType.TRANSACTIONAL_ID, "a b")
    key = only(report_of(denied(operation=Operation.WRITE, resource=transactions)))
    assert key.remedy == "stele acls add User:ann WRITE 'transactional-id:a b'"
    assert "a listener with a login" in only(report_of(denied("User:ANONYMOUS"))).remedy
    rule = "DENY User:ann READ from host * on TOPIC orders"
    assert only(report_of(denied(rule=rule))).remedy == (
        "this rule denies it: stele acls list --principal User:ann"
    )
    assert "did not know the ACLs" in only(report_of(denied(rule="NotLoaded"))).remedy


def test_an_id_of_sparks_sink_is_mended_by_its_prefix() -> None:
    """The rest of the id is of one attempt of a task."""
    ids = [f"spark/spark-ledger/ab05@copies:eae2/0/{attempt}" for attempt in range(3)]
    lines = [
        denied(operation=operation, resource=Resource(ResourceType.TRANSACTIONAL_ID, each))
        for each in ids
        for operation in (Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT, Operation.WRITE)
    ]
    assert remedies(report_of(*lines).denials) == [
        "stele acls add User:ann TWO_PHASE_COMMIT transactional-id:spark/ --prefixed",
        "stele acls add User:ann WRITE transactional-id:spark/ --prefixed",
    ]
    topic = denied(resource=Resource(ResourceType.TOPIC, "spark/x"))
    assert remedies(report_of(topic).denials) == ["stele acls add User:ann READ topic:spark/x"]


def test_nothing_is_proposed_beside_what_includes_it() -> None:
    group = Resource(ResourceType.GROUP, "orders")
    describe = Operation.DESCRIBE
    lines = [denied(operation=describe), denied(), denied(operation=describe, resource=group)]
    assert remedies(report_of(*lines).denials) == [
        "stele acls add User:ann READ topic:orders",
        "stele acls add User:ann DESCRIBE group:orders",
    ]
    others = [denied(operation=describe), denied("User:bob")]
    assert len(remedies(report_of(*others).denials)) == 2
    configs = [denied(operation=Operation.DESCRIBE_CONFIGS), denied(operation=Operation.ALTER)]
    assert len(remedies(report_of(*configs).denials)) == 2


def test_a_rule_that_denies_one_operation_mends_no_other() -> None:
    rule = "DENY User:ann READ from host * on TOPIC orders"
    lines = [denied(rule=rule), denied(operation=Operation.DESCRIBE)]
    assert remedies(report_of(*lines).denials) == [
        "this rule denies it: stele acls list --principal User:ann",
        "stele acls add User:ann DESCRIBE topic:orders",
    ]
    lines = [denied(), denied(operation=Operation.DESCRIBE, rule=rule)]
    assert len(remedies(report_of(*lines).denials)) == 2


def test_denials_beyond_a_budget() -> None:
    lines = [count_line(who, time_ms=AT_MS, left_out=5) for who in ("User:ann", None, "User:ann")]
    assert report_of(*lines).left_out == {"User:ann": 10, None: 5}


def test_refused_connections() -> None:
    lines = [
        event_line(Event.TLS_FAILED, "A", "it left", time_ms=AT_MS, host="::1", left_out=2),
        event_line(Event.TLS_FAILED, "A", "it left", time_ms=AT_MS, host="::1"),
        event_line(Event.LOGIN_FAILED, "B", "wrong password of user 'x'", time_ms=AT_MS, host="h"),
    ]
    found = report_of(*lines).connections
    assert [(key.event, key.listener, key.host, seen.times) for key, seen in found.items()] == [
        (Event.TLS_FAILED, "A", "::1", 4),
        (Event.LOGIN_FAILED, "B", "h", 1),
    ]


def test_a_certificate_is_refused_until_one_is_taken() -> None:
    refused = event_line(Event.CERTIFICATE_REFUSED, "A", "it expired", time_ms=AT_MS)
    taken = event_line(Event.CERTIFICATE_EXCHANGED, "A", "valid until …", time_ms=AT_MS + 1000)
    other = event_line(Event.CERTIFICATE_REFUSED, "B", "no name", time_ms=AT_MS)
    report = report_of(refused, other)
    assert [key.listener for _, key in report.refused_certificates] == ["A", "B"]
    assert report.take(taken)
    ((since, key),) = report.refused_certificates
    assert (since[:19], key.listener, key.reason) == ("2023-11-14T22:13:20", "B", "no name")
    assert report.take(refused)  # of another file, and older
    assert [key.listener for _, key in report.refused_certificates] == ["B"]


def test_of_two_events_in_one_moment_the_later_line_counts() -> None:
    refused = event_line(Event.CERTIFICATE_REFUSED, "A", "it expired", time_ms=AT_MS)
    taken = event_line(Event.CERTIFICATE_EXCHANGED, "A", "valid until …", time_ms=AT_MS)
    assert not report_of(refused, taken).refused_certificates
    assert report_of(taken, refused).refused_certificates


def test_lines_of_a_nodes_log() -> None:
    told = denied()
    people = f"2026-11-27 20:15:00,120 INFO stele.audit: {told}"
    record = logging.LogRecord("stele.audit", logging.INFO, "", 1, told, None, None)
    report = report_of(people, JsonFormatter(1).format(record))
    assert [seen.times for seen in report.denials.values()] == [2]


def test_lines_that_are_none_of_the_audit() -> None:
    report = AuditReport()
    for other in (
        "",
        "INFO node.run: node 1 stops",
        "{",
        "[]",
        '{"event": "else"}',
        json.dumps({"message": "{not json"}),
        json.dumps({"message": None}),
        json.dumps({"message": "7"}),
        '{"time": 1}',
    ):
        assert not report.take(other)
    assert not report.denials
