"""The client's wheel: without the servers' wheel it has everything that a client needs."""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from chaos.process_cluster import ProcessCluster
from deploy import wheels
from stele import __version__

ROOT = Path(__file__).parents[2]
ROOMS_OF_SERVERS = wheels.server().rooms


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    version = importlib.metadata.version("setuptools")
    if int(version.partition(".")[0]) < 77:
        pytest.skip(f"setuptools 77 can build the wheel, {version} is installed")
    return wheels.build(wheels.client(), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def client_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, what the wheel requires, and nothing else.

    What it requires is linked by name from the environment of the tests. So nothing is downloaded,
    and neither the checkout nor a package that is not required can be imported by mistake.
    """
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", str(wheel)], check=True)
    (site_packages,) = home.glob("lib/python*/site-packages")
    for source in sorted(_required_by(wheel)):
        (site_packages / source.name).symlink_to(source)
    return python


def _required_by(wheel: Path) -> set[Path]:
    """Modules, packages and metadata of everything that the wheel requires, directly or not."""
    (metadata,) = importlib.metadata.distributions(path=[str(wheel)])
    found: dict[str, set[Path]] = {}
    missing = list(metadata.requires or [])
    while missing:
        requirement = Requirement(missing.pop())
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not wanted or requirement.name in found:
            continue
        distribution = importlib.metadata.distribution(requirement.name)
        missing += distribution.requires or []
        found[requirement.name] = {
            Path(str(distribution.locate_file(file.parts[0])))
            for file in distribution.files or []
            if file.parts[0] not in ("..", "__pycache__")
        }
    return set().union(*found.values())


def run(python: Path, program: str, directory: Path, *arguments: str) -> str:
    """Run a program. Returns what it prints."""
    done = subprocess.run(
        [python, "-I", "-c", program, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_holds_the_client_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "stele",
        f"stele_log_client-{__version__}.dist-info",
    }
    room = wheels.ROOT / "stele"
    sources = {
        str(path.relative_to(wheels.ROOT))
        for path in room.rglob("*")
        if path.suffix in (".py", ".pyi", ".typed")
    }
    assert sources <= set(names)
    assert {"stele/py.typed", "stele/spark/source.py", "stele/wire/v1/data_pb2.pyi"} <= sources


def test_the_two_wheels_are_the_project() -> None:
    """Each room and each dependency is in one of the wheels, and the servers' wheel needs the
    client's."""
    client, server = wheels.client(), wheels.server()
    rooms = {path.parent.name for path in wheels.ROOT.glob("*/__init__.py")}
    assert {*client.rooms, *server.rooms} == rooms - {"tests", "bench"}
    assert not set(client.rooms) & set(server.rooms)
    own, *others = server.metadata["dependencies"]
    assert own == f"stele-log-client=={__version__}"
    assert set(client.metadata["dependencies"]) < set(others)


IMPORT_ALL = """
import importlib, importlib.util, pkgutil, sys, stele
for room in sys.argv[1:]:
    assert importlib.util.find_spec(room) is None, room
for module in pkgutil.walk_packages(stele.__path__, "stele.", onerror=print):
    if not module.name.startswith(("stele.spark", "stele.column")):
        importlib.import_module(module.name)
        print(module.name)
print(stele.__file__)
"""


def test_every_module_can_be_imported_without_servers(client_python: Path, tmp_path: Path) -> None:
    """Except ``stele.spark``, ``stele.columns`` and ``stele.column_decoder``, which need extras."""
    *modules, file = run(client_python, IMPORT_ALL, tmp_path, *ROOMS_OF_SERVERS).splitlines()
    assert Path(file).is_relative_to(client_python.parent.parent)
    assert {"stele.aio", "stele.sync", "stele.wire.v1.data_pb2", "stele.real"} <= set(modules)


@pytest.fixture
def one_broker(tmp_path: Path) -> Iterator[ProcessCluster]:
    cluster = ProcessCluster(tmp_path / "cluster", controllers=1, brokers=1)
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


PRODUCE_AND_CONSUME = """
import sys
from stele import Admin, Consumer, NewTopic, Producer
from stele.wire.compression import Compression

bootstrap = sys.argv[1]
with Admin(bootstrap) as admin:
    admin.create_topics([NewTopic("t", 1, 1)])
for codec in Compression:
    with Producer(bootstrap, compression=codec.name.lower()) as producer:
        producer.send("t", codec.name.encode() * 100)
with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
    consumer.assign([("t", 0)])
    left = {codec.name.encode() * 100 for codec in Compression}
    while left:
        for record in consumer.poll(timeout_ms=10_000):
            left.remove(record.value)
            print(record.offset)
"""


@pytest.mark.processes
def test_it_produces_and_consumes(
    client_python: Path, one_broker: ProcessCluster, tmp_path: Path
) -> None:
    printed = run(client_python, PRODUCE_AND_CONSUME, tmp_path, one_broker.bootstrap_servers)
    assert printed.split() == ["0", "1", "2", "3", "4"]


def test_a_clone_of_the_packages_name_does_not_shadow_it(tmp_path: Path) -> None:
    """For scripts in the parent folder, which Python searches first."""
    (tmp_path / "stele").symlink_to(ROOT, target_is_directory=True)
    script = tmp_path / "script.py"
    script.write_text("import stele; print(stele.__version__)")
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
