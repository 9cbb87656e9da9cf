"""Folders that several programs of ours make at the same moment: an image pull and a fetch begin together on a node."""

import os
import pwd
import threading
from pathlib import Path

import pytest

from k3deploy.remote.own_folder import make

ME = pwd.getpwuid(os.geteuid())


def test_whoever_comes_second_finds_the_folder_made(tmp_path: Path) -> None:
    failed: list[OSError] = []

    def run(barrier: threading.Barrier, path: str) -> None:
        barrier.wait()
        try:
            make(path, ME)
        except OSError as error:
            failed.append(error)

    for turn in range(60):
        barrier, path = threading.Barrier(8), str(tmp_path / f"run-{turn}" / "jobs" / "job")
        threads = [threading.Thread(target=run, args=(barrier, path)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Path(path).is_dir()
    assert failed == []


def test_a_file_in_the_way_is_not_taken_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("somebody's")
    with pytest.raises(FileExistsError):
        make(str(tmp_path / "jobs"), ME)
    assert (tmp_path / "jobs").read_text() == "somebody's"
