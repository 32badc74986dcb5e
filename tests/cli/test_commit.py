"""The commit that ``stele --version`` prints: of a checkout, of a build, or none."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cli import commit, main
from cli.commit import commit_of_checkout, known_commit
from deploy import wheels


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    return subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "--quiet")
    (root / "file").write_text("1")
    git(root, "add", "file")
    git(root, "commit", "--quiet", "-m", "one")
    git(root, "tag", "-a", "v1", "-m", "a tag is no commit")
    return root


def test_a_checkout_has_a_commit_and_says_if_it_was_changed(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")[:12]
    assert commit_of_checkout(checkout) == head
    (checkout / "file").write_text("2")
    assert commit_of_checkout(checkout) == f"{head}-dirty"


def test_what_is_no_checkout_has_no_commit(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = checkout / "site-packages"
    inside.mkdir()
    assert commit_of_checkout(inside) is None, "the checkout around it is another project"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of_checkout(checkout) is None, "there is no git"


def test_a_build_says_from_which_commit_it_is(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built_from = tmp_path / "cli" / "built_from.py"
    built_from.parent.mkdir()
    shutil.copy(wheels.ROOT / "cli" / "built_from.py", built_from)
    before = built_from.read_text()
    wheels.write_commit(tmp_path, tmp_path)
    assert built_from.read_text() == before, "what is no checkout has no commit"
    wheels.write_commit(tmp_path, checkout)
    found: dict[str, object] = {}
    exec(built_from.read_text(), found)
    assert found["COMMIT"] == git(checkout, "rev-parse", "HEAD")[:12]
    monkeypatch.setattr(commit, "COMMIT", "0123456789ab")
    assert known_commit(checkout) == "0123456789ab"
    other_wheel = tmp_path / "other"
    other_wheel.mkdir()
    wheels.write_commit(other_wheel, checkout)
    assert list(other_wheel.iterdir()) == []


@pytest.mark.parametrize("known", ["0123456789ab", None])
def test_the_version_names_the_commit_if_it_is_known(
    known: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "known_commit", lambda: known)
    assert main.run(["--version"]) == 0
    assert ("(commit 0123456789ab, Python 3" in capsys.readouterr().out) == (known is not None)
    assert main.run(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commit"] == known
