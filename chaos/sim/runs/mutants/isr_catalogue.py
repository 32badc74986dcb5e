"""Planted bugs of what leaders and the controller hold of each other's ISR and its minimum."""

from __future__ import annotations

from chaos.sim.runs.mutants.mutant import bug

ISR = [
    bug(
        "controller: take a disk from before the last registration for complete",
        "controller/losses.py",
        "_older_directories",
        "bool(use.incarnation_id) and use.incarnation_id not in each.incarnation_ids",
        "False",
        "restored_and_alone",
    ),
    bug(
        "replication: act on the answer to an ISR before its metadata come",
        "broker/partition/machine.py",
        "PartitionMachine.answered",
        "if self._isr.answered(proposal, answer, self._state, now_ms):\n"
        "    self._settle(effects, now_ms)",
        "if proposal != self._isr.proposal:\n"
        "    return []\n"
        "if answer.error is ErrorCode.NONE:\n"
        "    import dataclasses\n"
        "    known = self._state\n"
        "    self._state = dataclasses.replace(\n"
        "        known,\n"
        "        isr=tuple(member.broker_id for member in proposal.isr),\n"
        "        partition_epoch=answer.partition_epoch,\n"
        "    )\n"
        "    self._isr.committed(known, self._state, now_ms)\n"
        "    self._settle(effects, now_ms)\n"
        "elif self._isr.answered(proposal, answer, self._state, now_ms):\n"
        "    self._settle(effects, now_ms)",
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
