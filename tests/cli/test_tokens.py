"""``stele tokens …``: what it asks the cluster for, and what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import pytest

from cli import main, tokens
from stele.admin.delegation_tokens import DelegationToken

TOKEN = DelegationToken(
    "an-id", "User:ann", "User:tool", ("User:rita", "User:bob"), 0, 86_400_000, 604_800_000, b"hmac"
)
SECRET = "aG1hYw=="


class _Admin:
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __enter__(self) -> _Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def create_delegation_token(self, **asked: Any) -> DelegationToken:
        self.asked.append(("create", asked))
        return TOKEN

    def renew_delegation_token(self, token_id: str, **asked: Any) -> int:
        self.asked.append((token_id, asked))
        return 86_400_000

    expire_delegation_token = renew_delegation_token

    def describe_delegation_tokens(
        self, owners: Sequence[str], *, linearizable: bool
    ) -> list[DelegationToken]:
        self.asked.append((",".join(owners), {"linearizable": linearizable}))
        return [TOKEN]


@pytest.fixture(autouse=True)
def admin(monkeypatch: pytest.MonkeyPatch) -> _Admin:
    admin = _Admin()
    monkeypatch.setattr(tokens, "connect", lambda bootstrap, timeout: admin)
    return admin


def test_a_token_is_made(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    line = "tokens create --owner User:ann --renewer User:rita --renewer User:bob"
    assert main.run([*line.split(), "--max-lifetime-ms", "5"]) == 0
    told = capsys.readouterr()
    assert told.out == f"sasl.jaas.config={TOKEN.jaas_config}\n"
    assert f'username="an-id" password="{SECRET}" tokenauth="true";' in told.out
    assert "token an-id of User:ann expires at 1970-01-02 00:00:00" in told.err
    assert "renewed until 1970-01-08" in told.err
    assert SECRET not in told.err
    assert admin.asked == [
        (
            "create",
            {
                "owner": "User:ann",
                "renewers": ["User:rita", "User:bob"],
                "max_lifetime_ms": 5,
                "request_id": None,
            },
        )
    ]
    assert main.run(["tokens", "create", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hmac"] == SECRET


def test_tokens_are_listed_without_their_secrets(
    admin: _Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["tokens", "list", "--owner", "User:ann", "--local"]) == 0
    told = capsys.readouterr().out
    head, row = (line.split() for line in told.splitlines())
    assert head[:4] == ["TOKEN", "OWNER", "REQUESTER", "RENEWERS"]
    assert row[:4] == ["an-id", "User:ann", "User:tool", "User:rita,User:bob"]
    assert admin.asked == [("User:ann", {"linearizable": False})]
    assert SECRET not in told
    assert main.run(["tokens", "list", "--show-hmac"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(SECRET)
    for arguments, shown in (([], None), (["--show-hmac"], SECRET)):
        assert main.run(["tokens", "list", "--json", *arguments]) == 0
        (token,) = json.loads(capsys.readouterr().out)
        assert (token["token_id"], token.get("hmac")) == ("an-id", shown)


def test_a_token_is_renewed_and_expired(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    for line, name, period_ms, said in (
        ("renew an-id", "renew_period_ms", None, "expires at 1970-01-02"),
        ("renew an-id --period-ms 5", "renew_period_ms", 5, "expires at 1970-01-02"),
        ("expire an-id", "expiry_period_ms", None, "lets nobody in any more"),
        ("expire an-id --period-ms 0", "expiry_period_ms", 0, "expires at 1970-01-02"),
    ):
        assert main.run(["tokens", *line.split()]) == 0
        assert said in capsys.readouterr().err
        assert admin.asked.pop() == ("an-id", {name: period_ms, "request_id": None})


def test_a_token_does_not_print_its_secret() -> None:
    assert "hmac" not in repr(TOKEN)
