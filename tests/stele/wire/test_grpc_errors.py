"""Errors over gRPC: an enum, a message beside each, and a comment with the meaning of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from runtime import errors_proto
from stele.error_meanings import MEANINGS, explain
from stele.errors import ErrorCode
from stele.wire.v1 import (
    admin_pb2,
    controller_pb2,
    errors_pb2,
    metadata_pb2,
    raft_pb2,
)

ROOT = Path(__file__).parents[3]
MODULES = (admin_pb2, controller_pb2, errors_pb2, metadata_pb2, raft_pb2)
# Between replicas of the quorum only the code matters.
AMONG_REPLICAS = {
    "stele.v1.BeginQuorumEpochResponse",
    "stele.v1.EndQuorumEpochResponse",
    "stele.v1.FetchSnapshotResponse",
    "stele.v1.QuorumFetchResponse",
    "stele.v1.SupportedFeaturesResponse",
    "stele.v1.VoteResponse",
}


def messages_of(module: ModuleType) -> Iterator[Descriptor]:
    def nested(descriptor: Descriptor) -> Iterator[Descriptor]:
        yield descriptor
        for each in descriptor.nested_types:
            yield from nested(each)

    for descriptor in module.DESCRIPTOR.message_types_by_name.values():
        yield from nested(descriptor)


WITH_ERRORS = [
    descriptor
    for module in MODULES
    for descriptor in messages_of(module)
    if "error" in descriptor.fields_by_name
]


@pytest.mark.parametrize("descriptor", WITH_ERRORS, ids=lambda each: each.full_name)
def test_every_error_is_of_the_enum_and_has_a_message_beside_it(descriptor: Descriptor) -> None:
    error = descriptor.fields_by_name["error"]
    assert error.type == FieldDescriptor.TYPE_ENUM
    assert error.enum_type is not None
    assert error.enum_type.full_name == "stele.v1.ErrorCode"
    if descriptor.full_name not in AMONG_REPLICAS:
        assert descriptor.fields_by_name["message"].type == FieldDescriptor.TYPE_STRING


def test_the_enum_is_kafkas() -> None:
    assert dict(errors_pb2.ErrorCode.items()) == {code.name: code.value for code in ErrorCode}


def test_an_error_of_a_newer_node_is_kept() -> None:
    answer = admin_pb2.DeleteTopicsResponse.FromString(b"\x08\xe7\x07")  # field 1, 999
    assert answer.error == 999
    assert explain(999) == "error 999, of a newer version"


@pytest.mark.parametrize("module", MODULES, ids=lambda each: each.__name__.rpartition(".")[2])
def test_go_programs_have_a_package(module: ModuleType) -> None:
    assert module.DESCRIPTOR.GetOptions().go_package == "stele/v1;stelev1"


def test_the_idl_is_current() -> None:
    written = (ROOT / "proto" / "stele" / "v1" / "errors.proto").read_text()
    assert written == errors_proto.text(), "run scripts/generate"


def answered() -> set[str]:
    """The errors in the source of the servers."""
    found: set[str] = set()
    for room in (
        "broker",
        "controller",
        "raft",
        "runtime",
        "security",
        "storage",
        "metadata",
        "node",
    ):
        for file in sorted((ROOT / room).rglob("*.py")):
            found.update(re.findall(r"\bErrorCode\.([A-Z][A-Z0-9_]+)", file.read_text()))
    return found


def test_whatever_is_answered_has_a_meaning() -> None:
    assert sorted(answered() - {code.name for code in MEANINGS}) == []


def test_what_is_said() -> None:
    assert explain(ErrorCode.NONE) == ""
    assert explain(ErrorCode.NONE, "said") == "said"
    assert explain(ErrorCode.INVALID_CONFIG, "segment.bytes=1") == "segment.bytes=1"
    assert explain(ErrorCode.INVALID_CONFIG) == MEANINGS[ErrorCode.INVALID_CONFIG]
    for meaning in MEANINGS.values():
        assert not meaning.endswith(".")
