"""Planted bugs of what leaders and the controller hold of each other's ISR and its minimum."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import bug

ISR = [
    bug(
        "replication: act on the answer to an ISR before its metadata come",
        "broker/partition/machine.py",
        "PartitionMachine.answered",
        "if proposal != self._proposal or not answer.changes_nothing(proposal):\n    return []",
        "if proposal != self._proposal:\n"
        "    return []\n"
        "if answer.error is ErrorCode.NONE:\n"
        "    import dataclasses\n"
        "    self._state = dataclasses.replace(\n"
        "        self._state,\n"
        "        isr=tuple(member.broker_id for member in proposal.isr),\n"
        "        partition_epoch=answer.partition_epoch,\n"
        "    )\n"
        "elif not answer.changes_nothing(proposal):\n"
        "    return []",
    ),
    bug(
        # Only the lost records show this bug: what the leader does agrees with its metadata.
        "controller: keep who has left eligible when fewer replicas are required",
        "controller/configs.py",
        "_elect_anew",
        "bool(state.elr or state.last_known_elr)",
        "",
        "raised_minimum",
    ),
    bug(
        "replication: go by the min.insync.replicas of before until the next change of the ISR",
        "broker/replication/metadata.py",
        "MetadataApplier._configure",
        "replica.machine.configured(needed, self._replicas.now_ms())",
        "[]",
    ),
]
