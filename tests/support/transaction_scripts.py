"""Scripts for a transaction coordinator: one line for each event and what comes of it.

A producer id and epoch is written ``0:3``, where 0 is the first id that was given out. Commands::

    init [expect=0:3] [keep] [2pc] [timeout=5000]   -> 0:4 | 0:4 keeps 0:3 | ERROR
    add 0:0 a0 b1                                   -> ok | ERROR
    verify 0:0 a0 b1                                -> ok | a0 ok, b1 ERROR | ERROR
    commit 0:0, abort 0:0                           -> ok | ok 0:1 | ERROR | nothing (no answer yet)
    state                                           -> Ongoing 0:0 a0 b1
    due                                             -> commit 0:1 a0 b1 | nothing
    markers [a0 b1]           the markers of all partitions, or of these, are written
    pass 5000                 milliseconds
    hold, release             what is appended is not committed; it is
    refuse ERROR, accept      the log takes no records; it does
    reload [3]                another coordinator loads the log, or only its first 3 records
    records                   -> 3 (of the log)
    epoch 32766               the epoch of the transactional id is made this one
    version 1                 of the cluster and of clients

All commands are about the transactional id ``t`` and follow version 2 unless they say otherwise.
"""

from __future__ import annotations

from typing import Any

from broker.coordinator.transaction.records import decode_value, transaction_record
from broker.coordinator.transaction.types import (
    NEEDS_PRODUCER_ID,
    AddPartitionsAnswer,
    EndAnswer,
    EndRequest,
    InitAnswer,
    TransactionRef,
)
from stele.errors import ErrorCode
from tests.support.coordinators import Heard
from tests.support.transactions import FIRST_PRODUCER_ID, TransactionBench, partitions


def _pair(producer_id: int, producer_epoch: int) -> str:
    return f"{producer_id - FIRST_PRODUCER_ID}:{producer_epoch}"


def _parsed(pair: str) -> tuple[int, int]:
    number, epoch = pair.split(":")
    return FIRST_PRODUCER_ID + int(number), int(epoch)


class Script:
    """Runs lines and compares what comes of them."""

    def __init__(self, **config: Any) -> None:
        config = {"transaction_two_phase_commit_enable": True} | config
        self.bench = TransactionBench(**config)
        self.bench.writes_markers = False

    def run(self, text: str) -> None:
        for number, line in enumerate(text.strip().splitlines(), 1):
            event, _, comment = line.partition("#")
            command, arrow, expected = event.partition("->")
            told = self._do(*command.split()) if command.strip() else None
            if arrow:
                assert told == expected.strip(), f"line {number}: {line.strip()} {comment}"

    def tell(self, command: str) -> str | None:
        """What comes of one command."""
        return self._do(*command.split())

    def _do(self, name: str, *words: str) -> str | None:
        told: str | None = getattr(self, f"do_{name}")(*words)
        return told

    # ------------------------------------------------------------------ requests

    def do_init(self, *words: str) -> str:
        fields: dict[str, Any] = {}
        for word in words:
            key, _, value = word.partition("=")
            match key:
                case "expect":
                    fields["expected_producer_id"], fields["expected_producer_epoch"] = _parsed(
                        value
                    )
                case "keep":
                    fields["keep_prepared"] = True
                case "2pc":
                    fields["enable_two_phase_commit"] = True
                case "timeout":
                    fields["transaction_timeout_ms"] = int(value)
        return self._init_text(self.bench.init(**fields))

    def _init_text(self, answer: InitAnswer) -> str:
        if answer.error is not ErrorCode.NONE:
            return answer.error.name
        text = _pair(answer.producer_id, answer.producer_epoch)
        if answer.ongoing_producer_id >= 0:
            kept = _pair(answer.ongoing_producer_id, answer.ongoing_producer_epoch)
            text += f" keeps {kept}"
        return text

    def _ref(self, pair: str) -> TransactionRef:
        return TransactionRef("t", *_parsed(pair))

    def do_add(self, pair: str, *names: str) -> str:
        answer = self.bench.add(self._ref(pair), *names)
        return self._add_text(answer, names)

    def do_verify(self, pair: str, *names: str) -> str:
        answer = self.bench.add(self._ref(pair), *names, verify_only=True)
        return self._add_text(answer, names)

    def _add_text(self, answer: AddPartitionsAnswer, names: tuple[str, ...]) -> str:
        if answer.error is not ErrorCode.NONE:
            assert set(answer.by_partition) == {answer.error}
            return answer.error.name
        if set(answer.by_partition) <= {ErrorCode.NONE}:
            return "ok"
        each = zip(names, answer.by_partition, strict=True)
        texts = (f"{name} {'ok' if not error else error.name}" for name, error in each)
        return ", ".join(texts)

    def do_commit(self, pair: str) -> str:
        return self._end(pair, commit=True)

    def do_abort(self, pair: str) -> str:
        return self._end(pair, commit=False)

    def _end(self, pair: str, *, commit: bool) -> str:
        """Unlike the bench it does not need an answer."""
        bench = self.bench
        request = EndRequest(self._ref(pair), commit, 2 if bench.version == 2 else 0)

        def ask(request: EndRequest) -> Heard:
            return bench.ask(request)

        heard = ask(request)
        if heard.told == [NEEDS_PRODUCER_ID]:
            fresh = bench.new_producer_id()
            heard = ask(EndRequest(request.ref, commit, request.client_version, fresh))
        if not heard.told:
            return "nothing"
        (answer,) = heard.told
        if isinstance(answer, ErrorCode):
            return answer.name
        assert isinstance(answer, EndAnswer)
        if answer.error is not ErrorCode.NONE:
            return answer.error.name
        if answer.producer_id < 0:
            return "ok"
        return f"ok {_pair(answer.producer_id, answer.producer_epoch)}"

    def do_state(self) -> str:
        return self.bench.state()

    # ------------------------------------------------------------------ markers

    def do_due(self) -> str:
        texts = (
            f"{'commit' if each.commit else 'abort'} {_pair(*each.ref[1:])} "
            + " ".join(f"{each.topic}{each.partition}" for each in each.partitions)
            for each in self.bench.due
        )
        return ", ".join(texts) or "nothing"

    def do_markers(self, *names: str) -> None:
        self.bench.write_markers(partitions(*names) if names else None)

    # ------------------------------------------------------------------ world

    def do_pass(self, ms: str) -> None:
        self.bench.pass_time(int(ms))

    def do_hold(self) -> None:
        self.bench.commits_at_once = False

    def do_release(self) -> None:
        self.bench.commits_at_once = True
        self.bench.commit()
        self.bench.pass_time(0)

    def do_refuse(self, error: str) -> None:
        self.bench.refusal = ErrorCode[error]

    def do_accept(self) -> None:
        self.bench.refusal = ErrorCode.NONE
        self.bench.pass_time(0)

    def do_reload(self, keeps: str | None = None) -> None:
        self.bench.commits_at_once = True
        self.bench.reload(keeps=None if keeps is None else int(keeps))

    def do_records(self) -> str:
        return str(len(self.bench.log))

    def do_epoch(self, epoch: str) -> None:
        data = self.bench.log[-1].value
        assert data is not None
        value = decode_value(data)._replace(producer_epoch=int(epoch))
        self.bench.append(transaction_record("t", value, 2))

    def do_version(self, version: str) -> None:
        self.bench.version = int(version)
