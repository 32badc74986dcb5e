"""A file of client properties as options of our clients."""

from __future__ import annotations

from pathlib import Path

import pytest

import stele
from stele.errors import ConfigError
from stele.security.properties import VARIABLE, as_properties, security_options

TEXT = """# of Kafka's tools
bootstrap.servers=h:1
acks=all
security.protocol=SASL_SSL
ssl.truststore.location=/ca.pem
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.ScramLoginModule required \\
  username="u" \\
  password="p";
"""


def test_what_is_about_security_becomes_options(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(TEXT)
    options = stele.security_options(file)
    assert options == {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": "/ca.pem",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_jaas_config": 'org.apache.kafka.ScramLoginModule required username="u" password="p";',
    }
    assert as_properties(options)["sasl.mechanism"] == "SCRAM-SHA-512"


def test_a_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert security_options() == {}
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL")
    monkeypatch.setenv(VARIABLE, str(file))
    assert security_options() == {"security_protocol": "SSL"}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.properties: .*No such file"):
        security_options(tmp_path / "gone.properties")
    binary = tmp_path / "store.p12"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        security_options(binary)


def test_a_typing_error_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("ssl.trustore.location=/ca.pem")
    with pytest.raises(ConfigError, match=r"did you mean ssl\.truststore\.location\?"):
        security_options(file)
