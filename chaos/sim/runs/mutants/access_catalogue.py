"""Planted bugs of the authorizer, and of quotas."""

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
        # A controller that becomes active lets the node answer before its broker is registered.
        "node: decide over the ACLs of its broker though its controller has newer ones",
        "node/node.py",
        "Node._newest_acls",
        "if controller is not None:\n    return controller.image.acls",
        "",
        "two_candidates",
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
        "self._unmute is None",
        "",
    ),
    bug(
        "quota: average the rate of a client that was silent over its first moments",
        "runtime/quota/rate.py",
        "Rate._elapsed_s",
        "missing_s = FULL_S - since_s // SAMPLE_S * SAMPLE_S",
        "missing_s = SAMPLE_S - since_s",
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
]
