"""The build cache: built once, whole or not at all."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from tests.lab import cache, folders

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("K3DEPLOY_LAB_HOME", str(tmp_path))
    return tmp_path


def test_built_once() -> None:
    calls: list[Path] = []

    def build(draft: Path) -> None:
        calls.append(draft)
        (draft / "thing").write_text("made")

    first = cache.entry("kind", "abc", build)
    second = cache.entry("kind", "abc", build)
    assert first == second == folders.cache() / "kind-abc"
    assert (first / "thing").read_text() == "made"
    assert len(calls) == 1


def test_a_failed_build_leaves_no_entry_and_can_be_tried_again() -> None:
    def fail(draft: Path) -> None:
        (draft / "half").write_text("")
        raise RuntimeError("no luck")

    with pytest.raises(RuntimeError, match="no luck"):
        cache.entry("kind", "abc", fail)
    assert not (folders.cache() / "kind-abc").exists()
    assert list(cache.entry("kind", "abc", lambda _: None).iterdir()) == []


def test_two_builders_at_once_build_once() -> None:
    calls: list[int] = []
    together = threading.Barrier(2)

    def ask() -> None:
        together.wait()
        cache.entry("kind", "abc", lambda _: calls.append(1))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]


def test_a_lock_file_may_be_removed_by_its_holder(own_home: Path) -> None:
    lock = own_home / "lock"
    for _ in range(2):
        with cache.locked(lock):
            lock.unlink()
    assert not lock.exists()


def test_recipes_differ_when_a_byte_moves_between_ingredients() -> None:
    assert cache.recipe_hash("ab", "c") != cache.recipe_hash("a", "bc")
    assert cache.recipe_hash("ab", b"c") == cache.recipe_hash("ab", "c")


def test_prune_keeps_what_was_used_lately() -> None:
    old, fresh, other = (cache.entry(kind, name, lambda _: None) for kind, name in (("a", "1"), ("a", "2"), ("b", "1")))
    for path in (old, other):
        os.utime(path, (0, 0))
    cache.prune("a")
    assert [path.exists() for path in (old, fresh, other)] == [False, True, True]
