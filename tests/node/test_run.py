"""A node as a process: signals, exit codes, one-line errors."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from node.format import format_directory
from runtime.real.world import RealWorld
from tests.support.sim import combined_settings, free_ports

pytestmark = pytest.mark.processes

_PROGRAM = """
import json, logging, sys
from node.run import run_node
from runtime.config.node import from_settings
logging.getLogger("runtime.real.watchdog").disabled = True  # long turns are the machine's
settings = json.loads(sys.argv[1])
sys.exit(run_node(from_settings(settings), on_ready=lambda node: print("ready", flush=True)))
"""


def start(settings: dict[str, str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, json.dumps(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def formatted(directory: Path) -> dict[str, str]:
    world = RealWorld()
    format_directory(world.world.disk, [str(directory)], "cluster", 1, world.world.rng)
    world.close()
    return combined_settings(directory, free_ports(1)[0])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    process = start(formatted(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_second_signal_stops_it_at_once(tmp_path: Path) -> None:
    process = start(formatted(tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "stele: interrupted: the node did not shut down cleanly\n"
    # The signal ends the step under way. The logs are still closed, and marked as clean unless it
    # was their step.
    again = start(combined_settings(tmp_path, free_ports(1)[0]))
    assert again.stdout is not None
    assert again.stdout.readline() == "ready\n"
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=30)


def test_what_keeps_it_from_starting_is_one_line(tmp_path: Path) -> None:
    settings = combined_settings(tmp_path, free_ports(1)[0])
    process = start(settings)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert errors.startswith("stele: ")
    assert "stele format" in errors
    assert errors.count("\n") == 1


_UNFORMATTED = """
import json, sys
from node.run import run_node
from runtime.config.node import from_settings
code = run_node(from_settings(json.loads(sys.argv[1])))
print(code, [name for name in ("node.node", "grpc", "cryptography.x509") if name in sys.modules])
"""


def test_a_directory_that_is_not_formatted_is_found_before_the_code_is_imported(
    tmp_path: Path,
) -> None:
    settings = json.dumps(combined_settings(tmp_path, free_ports(1)[0]))
    ended = subprocess.run(
        [sys.executable, "-c", _UNFORMATTED, settings], capture_output=True, text=True, check=True
    )
    assert ended.stdout == "1 []\n"
    assert "stele format" in ended.stderr
