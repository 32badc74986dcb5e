"""Which objects the collections between the tasks of a worker leave out."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import types

import pytest

from stele.spark.worker_garbage import LoadedModules


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the collector, which is not to change in the process of the tests."""
    noted: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: noted.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: noted.append("freeze"))
    return noted


def test_objects_are_left_out_again_only_after_modules_were_loaded(
    monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    loaded = LoadedModules()
    loaded.leave_out()
    loaded.leave_out()
    assert calls == ["collect", "freeze"]
    monkeypatch.setitem(sys.modules, "loaded_by_a_later_task", types.ModuleType("later"))
    loaded.leave_out()
    loaded.leave_out()
    assert calls == ["collect", "freeze"] * 2


def test_processes_without_collections_between_tasks_are_left_alone(
    monkeypatch: pytest.MonkeyPatch, calls: list[str]
) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    LoadedModules().leave_out()
    assert calls == []


def test_garbage_is_freed_before_and_after() -> None:
    code = """
        import gc, os, weakref
        from stele.spark.worker_garbage import LoadedModules

        class Node:
            pass

        def cycle():
            node = Node()
            node.itself = node
            return weakref.ref(node)

        gc.disable()  # nothing is collected by chance
        os.environ["SPARK_REUSE_WORKER"] = "1"
        before = cycle()
        LoadedModules().leave_out()
        after = cycle()
        assert gc.get_freeze_count() > 1000
        assert before() is None
        gc.collect()
        assert after() is None
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
