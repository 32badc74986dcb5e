"""Rules for ``proto/``: nothing breaks, and it reads well. And the checks of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.idl import LOCK, RETIRED, breaks, compiled, lines
from deploy.idl_style import faults

PUBLIC = {"stele/v1/log.proto"}
"""Files that are made for people who have nothing else."""

A_FILE = """
syntax = "proto3";
package a.v1;
option go_package = "a/v1";
// A service.
service Things {
  // A method.
  rpc Find(FindRequest) returns (stream FindResponse);
}
// A request.
message FindRequest {
  // An enum.
  enum Kind {
    // Nothing.
    KIND_UNSPECIFIED = 0;
    // A kind.
    KIND_ONE = 1;
  }
  // A name.
  string name = 1;
  // A number.
  optional int64 number = 2;
  // Kinds.
  repeated Kind kinds = 3;
  // One of them.
  oneof either {
    // Text.
    string text = 4;
    // Bytes.
    bytes data = 5;
  }
}
// An answer.
message FindResponse {}
"""


def written(directory: Path, text: str) -> Path:
    (directory / "a/v1").mkdir(parents=True, exist_ok=True)
    (directory / "a/v1/things.proto").write_text(text)
    return directory


def test_nothing_that_was_published_is_broken() -> None:
    broken = breaks(LOCK.read_text().splitlines(), compiled())
    assert not broken, "reserve what is removed, number and name (deploy/idl.py)"


def test_the_idl_is_written_as_it_should_be() -> None:
    assert faults(compiled(), PUBLIC) == []


def test_the_lock_has_everything_that_a_client_relies_on(tmp_path: Path) -> None:
    assert lines(compiled(written(tmp_path, A_FILE))) == [
        "a.v1.FindRequest 1 name string",
        "a.v1.FindRequest 2 number optional int64",
        "a.v1.FindRequest 3 kinds repeated a.v1.FindRequest.Kind",
        "a.v1.FindRequest 4 text string of either",
        "a.v1.FindRequest 5 data bytes of either",
        "a.v1.FindRequest.Kind 0 KIND_UNSPECIFIED",
        "a.v1.FindRequest.Kind 1 KIND_ONE",
        "a.v1.Things rpc Find a.v1.FindRequest -> stream a.v1.FindResponse",
    ]


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        ("string name = 1", "string name = 9", "FindRequest 1 name"),
        ("string name = 1", "string title = 1", "FindRequest 1 name"),
        ("string name = 1", "bytes name = 1", "FindRequest 1 name"),
        ("string name = 1", "repeated string name = 1", "FindRequest 1 name"),
        ("string name = 1", "optional string name = 1", "FindRequest 1 name"),
        ("string name = 1;", "", "FindRequest 1 name"),
        ("string name = 1;", "reserved 1;", "FindRequest 1 name"),
        ("string name = 1;", 'reserved "name";', "FindRequest 1 name"),
        ("KIND_ONE = 1", "KIND_ONE = 2", "FindRequest.Kind 1"),
        ("KIND_ONE = 1", "KIND_TWO = 1", "FindRequest.Kind 1"),
        ("rpc Find(", "rpc Search(", "Things rpc Find"),
        ("(stream FindResponse)", "(FindResponse)", "Things rpc Find"),
        ("(FindRequest)", "(FindResponse)", "Things rpc Find"),
        ("package a.v1", "package a.v2", "FindRequest 1 name"),
    ],
)
def test_a_break_is_found(tmp_path: Path, old: str, new: str, broken: str) -> None:
    before = lines(compiled(written(tmp_path, A_FILE)))
    assert old in A_FILE
    found = breaks(before, compiled(written(tmp_path, A_FILE.replace(old, new))))
    assert any(line.startswith(f"a.v1.{broken}") for line in found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("string name = 1;", "string name = 1; int32 more = 6;"),
        ("string name = 1;", 'reserved 1; reserved "name";'),
        ("KIND_ONE = 1;", 'reserved 1; reserved "KIND_ONE";'),
        ("// A name.", "// A better comment."),
        ("message FindResponse {}", "message FindResponse {} message More {}"),
    ],
)
def test_what_breaks_nothing(tmp_path: Path, old: str, new: str) -> None:
    before = lines(compiled(written(tmp_path, A_FILE)))
    assert breaks(before, compiled(written(tmp_path, A_FILE.replace(old, new)))) == []


@pytest.mark.parametrize("name", ["a.v1.Things", "a.v1.Things.Find", "a.v1.FindResponse"])
def test_what_is_retired_must_not_come_back(tmp_path: Path, name: str) -> None:
    line = f"{RETIRED}{name}: nobody needs it"
    assert breaks([line], compiled(written(tmp_path, A_FILE))) == [line]
    assert breaks([f"{RETIRED}a.v1.Others: gone"], compiled(tmp_path)) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("", "", None),
        ("string name", "string theName", "FindRequest.theName is not written as its kind is"),
        ("message FindResponse", "message find_response", None),
        ("// A name.", "", "FindRequest.name has no comment"),
        ("// Nothing.", "", "FindRequest.Kind.KIND_UNSPECIFIED has no comment"),
        ("// An enum.", "", "FindRequest.Kind has no comment"),
        ("// A method.", "", "Find has no comment"),
        ("// A service.", "", "Things has no comment"),
        ("// One of them.", "", "FindRequest.either has no comment"),
        ("KIND_ONE", "ONE", "FindRequest.Kind.ONE does not begin with KIND_"),
        ("KIND_UNSPECIFIED", "KIND_NONE", "FindRequest.Kind has no KIND_UNSPECIFIED = 0"),
        ("package a.v1", "package b.v1", "a/v1/things.proto: its directory"),
        ('option go_package = "a/v1";', "", "a/v1/things.proto has no go_package"),
        ("rpc Find(", "rpc Search(", "Search does not go from SearchRequest"),
        ("rpc Find(", "rpc find(", "Things.find is not PascalCase"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, old: str, new: str, fault: str | None) -> None:
    text = A_FILE.replace(old, new) if old else A_FILE
    if "find_response" in new:
        text = text.replace("stream FindResponse", "stream find_response")
        fault = "find_response is not written as its kind is"
    found = faults(compiled(written(tmp_path, text)), {"a/v1/things.proto"})
    if fault is None:
        assert found == []
    else:
        assert any(each.startswith(fault) for each in found), found
