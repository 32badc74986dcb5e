"""``deploy/secure``: what a secure cluster of containers needs before its nodes start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import stele
from node.certificates import CertificateDirectory
from stele.config import ClientConfig
from stele.security.stores import read_key_store, read_trust_store

SCRIPT = Path(__file__).parents[2] / "deploy" / "secure"


def prepare(home: Path, nodes: str) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "STELE_SECURITY_DIR": str(home),
        "NODES": nodes,
    }
    subprocess.run(["sh", str(SCRIPT), "prepare"], env=environment, check=True, timeout=60)


def test_it_makes_what_is_missing_and_keeps_what_is_there(tmp_path: Path) -> None:
    prepare(tmp_path, "1=c1,127.0.0.1 101=b1")
    certificates = CertificateDirectory(tmp_path / "certificates")
    assert [each.name for each in certificates.subjects()] == ["node-1", "node-101", "admin"]
    before = {file.name: file.read_bytes() for file in tmp_path.rglob("*.p*")}
    prepare(tmp_path, "1=c1,127.0.0.1 101=b1 102=b2")
    after = {file.name: file.read_bytes() for file in tmp_path.rglob("*.p*")}
    assert after.items() >= before.items()
    assert set(after) - set(before) == {"node-102.pem"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.glob("*.p*"))


def test_the_clients_properties_need_no_other_file(tmp_path: Path) -> None:
    prepare(tmp_path, "1=c1")
    for user in ("admin", "app"):
        options = stele.security_options(tmp_path / f"{user}.properties")
        security = ClientConfig(**options).client_security()
        assert security.sasl is not None
        password = (tmp_path / f"{user}.password").read_text()
        assert (security.sasl.username, security.sasl.password) == (user, password)
        assert security.tls.truststore.location is None
        assert len(read_trust_store(security.tls.truststore).certificates) == 1
    administrator = ClientConfig(**stele.security_options(tmp_path / "nodes.properties"))
    read_key_store(administrator.client_security().tls.keystore)
