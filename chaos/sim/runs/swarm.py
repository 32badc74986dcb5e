"""One run of the swarm: a seed decides the cluster, its work and its faults, and laws judge it."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
import traceback
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from chaos.sim.faults.directories import SECOND
from chaos.sim.faults.operators import Operators
from chaos.sim.faults.registry import KINDS, ONE_AIM
from chaos.sim.faults.storm import Storm
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.compacted_logs import CompactedLogsKeepTheLastValues
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.laws.law import Proof
from chaos.sim.laws.log_memory import LogsRememberWhatTheyHold
from chaos.sim.laws.quorum_leaders import OneLeaderPerQuorumEpoch
from chaos.sim.laws.registry import LAWS
from chaos.sim.laws.retention import RetentionTakesNoMore
from chaos.sim.work.load import Load, LoadKind
from chaos.sim.work.rare import RareLoad
from chaos.sim.work.registry import with_parts
from chaos.sim.work.transaction_work import TransactionLoad
from chaos.sim.work.workload import Workload
from chaos.sim.world.rng import Rngs

DRAIN_S = 5.0  # after the storm: no fault begins, nothing is mended
HEAL_S = 180.0  # after everything was mended, all work must end within this time
_MAX_VIOLATIONS = 20
_HASTE_S = 0.05  # how often a hasty run looks for violations


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of a cluster."""

    controllers: int = 3
    brokers: int = 3
    combined: bool = False
    metadata_apart: bool = False  # combined nodes keep the metadata on a disk of its own


@dataclass(frozen=True, slots=True)
class Plan:
    """The order for a run. Everything else follows from the seed."""

    seed: int
    seconds: float = 60.0
    faults: tuple[str, ...] = KINDS  # none: a quiet run
    acts: int | None = None  # the most acts of the storm; None: no limit
    load: LoadKind = LoadKind.DRAWN
    hasty: bool = False  # end at the first violation

    @property
    def least(self) -> int:
        """The least that a run must acknowledge, consume and compare, or else it proves nothing.

        Laws look at what has changed between two moments, so a handful of records is too little.
        """
        return max(1, int(self.seconds / 2))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, data: dict[str, Any]) -> Self:
        """The plan from which ``asdict`` has made ``data``."""
        return cls(**{**data, "faults": tuple(data["faults"]), "load": LoadKind(data["load"])})


@dataclass(slots=True)
class RunOutcome:
    """The outcome of a run. A run is good if it has no violation."""

    plan: Plan
    violations: list[str] = field(default_factory=list)
    coverage: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    looks: dict[str, int] = field(default_factory=dict)  # real looks, by law
    acts: int = 0  # acts of the storm, also those that had nothing to do
    digest: str = ""  # of the transcript
    virtual_s: float = 0.0
    real_s: float = 0.0
    cpu_s: float = 0.0  # set by a worker: what it has spent since its last outcome
    transcript: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Self:
        data: dict[str, Any] = json.loads(line)
        return cls(Plan.of(data.pop("plan")), **data)


@contextmanager
def silent() -> Iterator[None]:
    """Suppress the nodes' logs. The transcript tells more."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def run(plan: Plan, *, keep_transcript: bool = False) -> RunOutcome:
    """Make one run. It reports errors of the cluster as violations and never raises them."""
    return _Run(plan, keep_transcript=keep_transcript).run()


class _Run:
    def __init__(self, plan: Plan, *, keep_transcript: bool) -> None:
        self._plan = plan
        shape = Shape()
        rng = Rngs(plan.seed).of("swarm")
        if not plan.load.is_small:
            shape = Shape(
                controllers=rng.choice([1, 3, 3, 3, 5]),
                brokers=rng.choice([3, 3, 3, 4, 5]),
                combined=rng.random() < 0.2,
            )
        if shape.combined:
            shape = replace(shape, metadata_apart=rng.random() < 0.5)
        self._load = Load.light(rng) if plan.load.is_small else Load.draw(rng)
        if plan.load.is_small and not plan.faults:
            # A quiet cluster has its light load and nothing else.
            self._load = replace(
                self._load, admin_pause_s=0.0, readers=0, segment_bytes=Load().segment_bytes
            )
        if plan.faults:
            self._load = with_parts(self._load, plan.load, Rngs(plan.seed))
        pace_s = rng.choice([0.3, 1.0, 2.0, 4.0])
        # A swarm: each run leaves some kinds of faults out, so that the others come more often.
        kinds = [kind for kind in plan.faults if rng.random() < 0.7] or list(plan.faults)
        if "aimed" in kinds and rng.random() < 0.4:  # without acts, which might disturb the aims
            kinds = [kind for kind in kinds if kind in ("aimed", "conditions")]
        settings = _draw_settings(rng) | self._load.settings
        if shape.metadata_apart:
            settings["metadata.log.dir"] = "/metadata"
        has_directories = self._load.part(RareLoad).has_directories
        self._cluster = JudgedCluster(
            plan.seed,
            settings=settings,
            controllers=shape.controllers,
            brokers=shape.brokers,
            combined=shape.combined,
            racks=self._load.racks,
            directories=("/data", SECOND) if has_directories else ("/data",),
            keep_transcript=keep_transcript,
        )
        self._storm = Storm(
            self._cluster,
            pace_s=pace_s,
            kinds=kinds,
            limit=plan.acts,
            has_transactions=self._load.part(TransactionLoad).is_there,
            has_directories=has_directories,
        )
        self._workload = Workload(self._cluster, self._load)
        self._operators = Operators(
            self._cluster,
            self._storm,
            self._workload.replicated,
            kinds=kinds,
            pace_s=rng.choice([2.0, 5.0]),
            limit=plan.acts,
        )
        self._coverage: Counter[str] = Counter()
        self._outcome = RunOutcome(plan)

    def run(self) -> RunOutcome:
        outcome, cluster = self._outcome, self._cluster
        started = time.perf_counter()
        try:
            cluster.run(self._until_violated if self._plan.hasty else self._scenario)
        except Exception as error:  # any error of the cluster is a finding
            outcome.violations.append(f"{type(error).__name__}: {str(error) or _place_of(error)}")
        outcome.real_s = time.perf_counter() - started
        outcome.virtual_s = cluster.simulation.now
        found = [
            *cluster.invariants.violations,
            *self._workload.history.violations,
            *self._storm.violations,
        ]
        outcome.violations = (found + outcome.violations)[:_MAX_VIOLATIONS]
        outcome.faults = dict(self._storm.counts)
        outcome.looks = cluster.invariants.looked
        outcome.acts = self._storm.drawn
        outcome.digest = cluster.simulation.transcript.digest()
        outcome.transcript = cluster.simulation.transcript.lines
        self._cover()
        if not outcome.violations:
            self._check_not_vacuous()
        return outcome

    async def _until_violated(self, cluster: JudgedCluster) -> None:
        scenario = asyncio.create_task(self._scenario(cluster))
        while not scenario.done():
            if (
                cluster.invariants.violations
                or self._workload.history.violations
                or cluster.simulation.scheduler.errors
            ):
                scenario.cancel()
                await asyncio.gather(scenario, return_exceptions=True)
                return
            await asyncio.sleep(_HASTE_S)
        await scenario

    async def _scenario(self, cluster: JudgedCluster) -> None:
        plan, workload, storm = self._plan, self._workload, self._storm
        await workload.prepare()
        storm.draw_conditions()
        workload.start()
        self._operators.start()
        await storm.rage(plan.seconds)
        await self._operators.stop()
        workload.calm()
        await asyncio.sleep(DRAIN_S)
        cluster.invariants.check_everything()
        await storm.calm()
        await self._operators.settle()
        await workload.see_it_go_on(plan.least, HEAL_S)
        await workload.finish(HEAL_S)
        for topic, partition in workload.replicated:
            await cluster.until_whole(topic, partition)
        self._coverage["compared"] += await workload.judge()
        await asyncio.sleep(1.0)
        cluster.invariants.check_everything()

    def _cover(self) -> None:
        cluster, history, cover = self._cluster, self._workload.history, self._coverage
        invariants = cluster.invariants
        committed = invariants.law(CommittedRecordsStay)
        images = [
            node.node.controller.image
            for node in cluster.controllers.values()
            if node.node is not None and node.node.controller is not None
        ]
        newest = max(images, key=lambda image: image.offset, default=None)
        cover["elections"] = invariants.law(OneLeaderPerQuorumEpoch).elections
        if newest is not None:
            cover["metadata commits"] = newest.offset + 1
            states = [state for _, _, state in newest.sorted_partitions()]
            cover["leader epochs"] = sum(state.leader_epoch for state in states)
            cover["isr changes"] = sum(state.partition_epoch for state in states)
        cover.update(self._storm.damage.counts)
        cover.update(self._operators.counts)
        cover.update(self._workload.counts)
        compacted = invariants.law(CompactedLogsKeepTheLastValues)
        cover["compacted segments"] = compacted.rounds
        cover["tombstones gone"] = compacted.dropped
        retention = invariants.law(RetentionTakesNoMore)
        cover["segments rolled"] = retention.rolled
        cover["segments deleted by retention"] = retention.deleted
        cover["rolled logs compared"] = invariants.law(LogsRememberWhatTheyHold).rolled
        cover["truncations"] = committed.truncations
        cover["compared"] += committed.looked
        cover["consumed"] = len(history.consumed)
        cover["acknowledged"] = len(history.promised)
        cover["acknowledged acks=1"] = history.acknowledged_weakly
        self._outcome.coverage = dict(sorted(cover.items()))

    def _check_not_vacuous(self) -> None:
        """A run in which too little happened proves nothing, and fails."""
        least, cover = self._plan.least, self._outcome.coverage
        for what in ("acknowledged", "consumed", "compared"):
            if cover[what] < least:
                self._outcome.violations.append(f"vacuous: {what} {cover[what]}, at least {least}")
        if not cover["elections"]:
            self._outcome.violations.append("vacuous: nobody was elected")
        for law in LAWS:
            if law.proof is Proof.RUN and not self._outcome.looks[law.name]:
                self._outcome.violations.append(f"vacuous: nothing was looked at: {law.name}")


def _place_of(error: Exception) -> str:
    """Where in the simulator an error without words was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    name, _, line = next(
        (each.filename.rpartition("/")[2], each.name, each.lineno)
        for each in reversed(frames)
        if "/chaos/sim/" in each.filename
    )
    return f"raised in {name}, line {line}"


def _draw_settings(rng: random.Random) -> dict[str, str]:
    """Half of the runs have the default timeout of followers, half have others. Most have a longer
    session than the default. Half take many snapshots."""
    settings = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}
    if rng.random() < 0.5:
        settings["replica.lag.time.max.ms"] = str(rng.choice([750, 1000, 3000, 30_000]))
        if rng.random() < 0.5:
            settings |= {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    if rng.random() < 0.5:
        settings["metadata.log.max.record.bytes.between.snapshots"] = rng.choice(["1500", "6000"])
    if rng.random() < 0.3:
        settings["replica.high.watermark.checkpoint.interval.ms"] = "500"
    return settings


def parse_faults(text: str) -> tuple[str, ...]:
    """``all``, ``none``, or kinds separated by commas. Raises ValueError for an unknown kind."""
    if text == "all":
        return KINDS
    names: Collection[str] = [] if text == "none" else text.split(",")
    for name in names:
        if name not in (*KINDS, *ONE_AIM):
            raise ValueError(f"no kind of fault {name!r}; there are {', '.join(KINDS)}")
    return tuple(names)
