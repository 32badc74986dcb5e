"""``stele certs``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import run
from node.certificates import CertificateDirectory, CertificateError, certificates_in


@pytest.fixture
def made(tmp_path: Path) -> CertificateDirectory:
    folder = tmp_path / "certs"
    nodes = ["--node", "1=localhost,127.0.0.1", "--node", "2=b2.example.com"]
    assert run(["certs", "create", *nodes, "--user", "ann", "--dir", str(folder)]) == 0
    return CertificateDirectory(folder)


def authorities(directory: CertificateDirectory) -> list[str]:
    return certificates_in(directory.truststore.read_text())


def test_files_and_their_modes(made: CertificateDirectory) -> None:
    names = {each.name: each.stat().st_mode & 0o777 for each in made.path.iterdir()}
    private = dict.fromkeys(["ca.key", "node-1.pem", "node-2.pem", "user-ann.pem"], 0o600)
    assert names == {"ca.pem": 0o644, **private}


def test_more_can_be_added_and_none_is_replaced(
    made: CertificateDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["certs", "create", "--dir", str(made.path)]
    before = authorities(made)
    assert run([*arguments, "--node", "3=b3"]) == 0
    assert authorities(made) == before
    capsys.readouterr()
    assert run([*arguments, "--node", "1=elsewhere"]) == 1
    assert "node-1.pem exists: stele certs renew --node 1 makes" in capsys.readouterr().err
    assert run(arguments) == 2


def test_only_what_is_missing_is_made(made: CertificateDirectory) -> None:
    arguments = ["certs", "create", "--dir", str(made.path), "--missing"]
    before = (made.path / "node-1.pem").read_text()
    assert run([*arguments, "--node", "1=localhost", "--node", "3=b3"]) == 0
    assert (made.path / "node-1.pem").read_text() == before
    assert (made.path / "node-3.pem").exists()
    assert run([*arguments, "--node", "1=localhost"]) == 0


def test_a_renewal_keeps_names_and_authority(made: CertificateDirectory) -> None:
    before, subjects = authorities(made), list(made.subjects())
    old = (made.path / "node-1.pem").read_text()
    assert run(["certs", "renew", "--dir", str(made.path), "--days", "10"]) == 0
    assert authorities(made) == before
    assert list(made.subjects()) == subjects
    assert (made.path / "node-1.pem").read_text() != old


def test_some_are_renewed_and_may_get_other_names(
    made: CertificateDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["certs", "renew", "--dir", str(made.path)]
    before = {each.name: each.read_text() for each in made.path.glob("*.pem")}

    def changed() -> set[str]:
        return {name for name, old in before.items() if (made.path / name).read_text() != old}

    assert run([*arguments, "--node", "2=b9,10.0.0.9"]) == 0
    assert changed() == {"node-2.pem"}
    assert next(each for each in made.subjects() if each.node_id == 2).hosts == ("b9", "10.0.0.9")
    assert run([*arguments, "--user", "ann"]) == 0
    assert changed() == {"node-2.pem", "user-ann.pem"}
    assert run([*arguments, "--node", "1"]) == 0
    assert changed() == {"node-1.pem", "node-2.pem", "user-ann.pem"}
    capsys.readouterr()
    assert run([*arguments, "--user", "an"]) == 1
    assert "no certificate of 'an'. Did you mean 'ann'?" in capsys.readouterr().err
    assert run([*arguments, "--node", "7=b7"]) == 1
    assert run([*arguments, "--authority", "--node", "1"]) == 2


def test_a_new_authority_in_three_steps(
    made: CertificateDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--dir", str(made.path)]
    (first,) = authorities(made)
    leaf = (made.path / "node-1.pem").read_text()
    assert run(["certs", "renew", *folder, "--authority"]) == 0
    second, earlier = authorities(made)
    assert earlier == first
    capsys.readouterr()
    assert run(["certs", "renew", *folder, "--forget-earlier"]) == 1
    assert "node-1.pem, node-2.pem, user-ann.pem: issued by" in capsys.readouterr().err
    assert authorities(made) == [second, first]
    assert (made.path / "node-1.pem").read_text() == leaf
    assert run(["certs", "renew", *folder]) == 0
    assert (made.path / "node-1.pem").read_text() != leaf
    assert authorities(made) == [second, first]
    assert run(["certs", "renew", *folder, "--forget-earlier"]) == 0
    assert authorities(made) == [second]


def test_showing(made: CertificateDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["certs", "show", str(made.path), "--json"]) == 0
    shown = {Path(each["file"]).name: each for each in json.loads(capsys.readouterr().out)}
    assert shown["node-2.pem"]["names"] == ["b2.example.com", "stele:node:2"]
    assert shown["ca.pem"]["is_authority"] is True
    assert run(["certs", "show", str(made.path / "node-1.pem"), "--soon", "400"]) == 3
    assert "localhost, 127.0.0.1, stele:node:1" in capsys.readouterr().out
    assert run(["certs", "show", "--dir", str(made.path), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(shown)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["create", "--node", "x=h"], 2, "not of the form ID=HOST,HOST"),
        (["create", "--node", "1="], 2, "not of the form ID=HOST,HOST"),
        (["create", "--user", "../ann"], 1, "cannot be the name of a file"),
        (["renew"], 1, "has no authority"),
        (["renew", "--authority", "--forget-earlier"], 2, "not at once"),
    ],
)
def test_mistakes(
    arguments: list[str],
    code: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["certs", *arguments, "--dir", str(tmp_path / "certs")]) == code
    assert said in capsys.readouterr().err


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nothing")
    directory = CertificateDirectory(tmp_path)
    with pytest.raises(CertificateError, match=r"x\.pem: no certificate in PEM"):
        list(directory.subjects())
