"""Planted bugs of the authorizer, of quotas and limits, and of the metrics that clients push."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import Edit, Mutant, bug

ACCESS = [
    bug(
        "authorizer: keep decisions when the rules change",
        "security/authorizer/machine.py",
        "AccessMachine.take",
        "self._decided.clear()",
        "",
    ),
    bug(
        "authorizer: let a rule that allows win over one that denies",
        "security/authorizer/decision.py",
        "decide",
        "if denied:\n    return Verdict(False, Reason.RULE, min(denied))",
        "if denied and not allowed:\n    return Verdict(False, Reason.RULE, min(denied))",
    ),
    bug(
        "controller: judge a change by the rights of the committed image",
        "controller/changes.py",
        "Changes._result",
        "self._port.authorizer.over(context.image.acls)",
        "self._port.authorizer",
    ),
    Mutant(
        "controller: answer a change of ACLs that brokers have not applied",
        (
            Edit(
                "controller/heartbeats.py",
                "Heartbeats.applied_everywhere",
                "while self._lagging(offset):\n    await self._heard.wait()",
                "pass",
            ),
            Edit(
                "controller/heartbeats.py",
                "Heartbeats.applied_everywhere",
                "return self._lagging(offset)",
                "return []",
            ),
        ),
    ),
]

QUOTAS = [
    bug(
        "connection: take the requests of a client above its quota that were received already",
        "runtime/kafka/connection.py",
        "KafkaServerProtocol._may_take",
        "self.muted.is_on",
        "False",
    ),
    bug(
        "quota: let a silence pay nothing ahead",
        "runtime/quota/pace.py",
        "Pace.use",
        "max(self._paid_s, now_s - self._burst_s)",
        "max(self._paid_s, now_s)",
    ),
    bug(
        "quota: let a long silence pay for all that was not used",
        "runtime/quota/pace.py",
        "Pace.use",
        "max(self._paid_s, now_s - self._burst_s)",
        "max(self._paid_s, now_s - 600)",
    ),
    bug(
        "quota: read on from a producer above its quota",
        "broker/api/charging.py",
        "take_up",
        "connection.mute(request.throttle_ms / 1000)",
        "pass",
    ),
    bug(
        "connections: do not count those of an address",
        "broker/connections/limits.py",
        "ConnectionLimits.admit",
        "self._by_address[address] += 1",
        "self._by_address[address] = 1",
    ),
    bug(
        "connections: take no token for a connection of an address with a quota",
        "runtime/quota/addresses.py",
        "AddressQuotas.admit",
        "sensor.bucket.take(1, now_s)",
        "pass",
    ),
    bug(
        "connection: leave requests alone behind those of one go",
        "runtime/kafka/connection.py",
        "KafkaServerProtocol._process_frames",
        "self._await_turn()",
        "pass",
    ),
    bug(
        "turns: let a connection wait though no turn comes",
        "runtime/kafka/turns.py",
        "Turns.wait",
        "self._arm()",
        "pass",
    ),
    bug(
        "quota: count no new producer of a client",
        "broker/replication/produce.py",
        "ProduceRequests._append_to",
        "log.producers.begun != known",
        "False",
    ),
    bug(
        "quota: read on from a client that brings too many new producers, until it is answered",
        "broker/api/produce.py",
        "_NewProducers.count",
        "self._request_context.connection.mute(throttle.seconds)",
        "pass",
    ),
    bug(
        "producers: take new ones into a full partition",
        "storage/producer_admission.py",
        "ProducerAdmission.check",
        "known >= most",
        "known > 2 * most",
    ),
]

TELEMETRY = [
    bug(
        "telemetry: take pushes that come too early",
        "broker/telemetry/instances.py",
        "ClientInstances._check",
        "raise self._too_early(instance)",
        "return",
    ),
    bug(
        "telemetry: refuse a client that comes right after it has asked",
        "broker/telemetry/instances.py",
        "ClientInstances.ask",
        "instance.has_asked = True",
        "instance.has_asked = instance.last_s is None",
    ),
    bug(
        "telemetry: decompress whatever a push grows to",
        "broker/service/telemetry.py",
        "ClientTelemetry._decompressed",
        "decompressed(Compression(compression), metrics, self.max_bytes, chunk_bytes=_CHUNK_BYTES)",
        "decompressed(Compression(compression), metrics, 1 << 30, chunk_bytes=_CHUNK_BYTES)",
    ),
    bug(
        "telemetry: leave clients with the subscription that they know",
        "broker/service/telemetry.py",
        "ClientTelemetry.apply",
        "self._version += 1",
        "pass",
    ),
    bug(
        "telemetry: take a push after the last one",
        "broker/telemetry/instances.py",
        "ClientInstances.push",
        "instance.is_terminated |= push.is_terminating",
        "pass",
    ),
]
