"""The wheels: each has what its users need, and no file is in two of them.

The client needs the stubs, and nothing of the servers. Thin clients need the stubs alone.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import re
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
from stele import Admin, NewTopic, __version__
from tests.support.acceptance import grpc_port

ROOT = Path(__file__).parents[2]
ROOMS_OF_SERVERS = wheels.server().rooms
OURS = {"stele-protos", "stele-log-client"}
"""The packages that the test installs from their wheels."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheels of the stubs and of the client."""
    version = importlib.metadata.version("setuptools")
    if int(version.partition(".")[0]) < 77:
        pytest.skip(f"setuptools 77 can build the wheels, {version} is installed")
    directory = tmp_path_factory.mktemp("wheels")
    return {
        "protos": wheels.build(wheels.protos(), directory),
        "client": wheels.build(wheels.client(), directory),
    }


@pytest.fixture(scope="module")
def wheel(built: dict[str, Path]) -> Path:
    return built["client"]


def _environment(home: Path, *installed: Path) -> Path:
    """The Python of an environment with these wheels, what they require, and nothing else.

    What they require is linked by name from the environment of the tests. So nothing is downloaded,
    and neither the checkout nor a package that is not required can be imported by mistake.
    """
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*command, "--no-deps", "--no-index", *map(str, installed)], check=True)
    (site_packages,) = home.glob("lib/python*/site-packages")
    for source in sorted(set().union(*map(_required_by, installed))):
        (site_packages / source.name).symlink_to(source)
    return python


@pytest.fixture(scope="module")
def client_python(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _environment(tmp_path_factory.mktemp("client"), built["client"], built["protos"])


@pytest.fixture(scope="module")
def thin_python(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _environment(tmp_path_factory.mktemp("thin"), built["protos"])


def _required_by(wheel: Path) -> set[Path]:
    """Modules, packages and metadata of everything that the wheel requires, directly or not."""
    (metadata,) = importlib.metadata.distributions(path=[str(wheel)])
    found: dict[str, set[Path]] = {}
    missing = list(metadata.requires or [])
    while missing:
        requirement = Requirement(missing.pop())
        wanted = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if not wanted or requirement.name in found or requirement.name in OURS:
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


def files_of(wheel: Path) -> set[str]:
    """Without the files that describe the wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name}


def test_they_hold_the_package_and_nothing_else(built: dict[str, Path]) -> None:
    sources = {
        str(path.relative_to(wheels.ROOT))
        for path in (wheels.ROOT / "stele").rglob("*")
        if path.suffix in (".py", ".pyi", ".typed")
    }
    client, protos = files_of(built["client"]), files_of(built["protos"])
    assert not client & protos
    generated = {name for name in sources if name.startswith("stele/wire/v1/")}
    assert client == sources - generated
    services = {name for name in protos if name.endswith("_pb2_grpc.py")}
    assert protos == generated | services
    assert {"stele/py.typed", "stele/spark/source.py"} <= client
    assert {"stele/wire/v1/log_pb2.pyi", "stele/wire/v1/py.typed"} <= generated
    assert {"stele/wire/v1/log_pb2_grpc.py", "stele/wire/v1/admin_pb2_grpc.py"} <= services


def test_the_wheels_are_the_project() -> None:
    """Each room and each dependency is in one of the wheels. The servers' wheel needs the client's,
    which needs the stubs."""
    protos, client, server = wheels.protos(), wheels.client(), wheels.server()
    rooms = {path.parent.name for path in wheels.ROOT.glob("*/__init__.py")}
    assert {*client.rooms, *server.rooms} == rooms - {"tests", "bench"}
    assert not set(client.rooms) & set(server.rooms)
    own, *others = server.metadata["dependencies"]
    assert own == f"stele-log-client=={__version__}"
    stubs, *its = client.metadata["dependencies"]
    assert stubs == f"stele-protos=={__version__}"
    assert set(its) < set(others)
    names = {Requirement(each).name for each in protos.metadata["dependencies"]}
    assert names == {"grpcio", "protobuf"}


def test_the_stubs_require_what_they_were_made_with(built: dict[str, Path]) -> None:
    """Generated code refuses a library that is older than its compiler."""
    required = {
        requirement.name: requirement.specifier
        for requirement in map(Requirement, wheels.protos().metadata["dependencies"])
    }
    stub = zipfile.ZipFile(built["protos"]).read("stele/wire/v1/log_pb2_grpc.py").decode()
    (grpcio,) = re.findall(r"GRPC_GENERATED_VERSION = '([\d.]+)'", stub)
    assert str(required["grpcio"]) == f">={grpcio}"
    messages = (wheels.ROOT / "stele/wire/v1/log_pb2.py").read_text()
    (protobuf,) = re.findall(r"# Protobuf Python Version: ([\d.]+)", messages)
    assert str(required["protobuf"]) == f">={protobuf}"


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
    assert {"stele.aio", "stele.sync", "stele.wire.v1.log_pb2", "stele.real"} <= set(modules)


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


IMPORT_STUBS = """
import importlib, importlib.util, pkgutil, sys
for name in ("stele.aio", "stele.wire.kafka", "uvloop", "crc32c", *sys.argv[1:]):
    assert importlib.util.find_spec(name.partition(".")[0]) is None or (
        name.startswith("stele.") and importlib.util.find_spec(name) is None
    ), name
import stele.wire.v1
for module in pkgutil.iter_modules(stele.wire.v1.__path__, "stele.wire.v1."):
    importlib.import_module(module.name)
    print(module.name)
"""


def test_the_stubs_need_no_client(thin_python: Path, tmp_path: Path) -> None:
    modules = run(thin_python, IMPORT_STUBS, tmp_path, *ROOMS_OF_SERVERS).splitlines()
    assert {"stele.wire.v1.log_pb2", "stele.wire.v1.log_pb2_grpc"} <= set(modules)


@pytest.mark.processes
def test_the_programs_of_the_page_run_with_the_stubs_alone(
    thin_python: Path, one_broker: ProcessCluster, tmp_path: Path
) -> None:
    with Admin(one_broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("orders", 2, 1)])
    page = (ROOT / "docs/grpc.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    address = f"127.0.0.1:{grpc_port(one_broker, one_broker.broker_ids[0])}"
    printed = run(thin_python, program, tmp_path, address, "orders")
    assert [line.split()[0] for line in printed.splitlines()] == ["written"] * 3 + ["read"] * 3


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
