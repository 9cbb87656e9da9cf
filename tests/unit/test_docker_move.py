"""Moving Docker's storage and undoing it, with a Docker whose restart goes as the test says."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3deploy.remote.docker_move import move
from k3deploy.remote.docker_unit import DockerService, UnitFailed
from k3deploy.remote.dockerd import Dockerd
from k3deploy.remote.journal import Journal
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.storage_folders import main as make_folders
from k3deploy.remote.storage_restore import restore
from tests.unit.docker_socket import INFO, DockerSocket, docker_socket

OLD = b'{"mtu": 1450, "runtimes": {"nvidia": {"path": "x"}}}\n'
NEW = '{\n  "mtu": 1450,\n  "data-root": "/nvme/docker"\n}\n'
RUN = "h100x32-20260728-074500-0a1b"


def unsaid(_word: dict[str, Any]) -> None:
    """For programs whose words a test does not look at."""


class Service(DockerService):
    """Comes up with the data-root of daemon.json; `refuses` holds the texts of daemon.json it does not start with."""

    def __init__(self, daemon: DockerSocket, config: Path, default_root: Path) -> None:
        super().__init__(Dockerd(daemon.path))
        self.socket = daemon
        self.config = config
        self.default_root = default_root
        self.refuses: list[bytes | None] = []
        self.driver_type: str | None = None
        self.acts: list[str] = []
        self.is_up = True

    def stop(self) -> list[str]:
        self.acts.append("stop")
        self.is_up = False
        return ["docker.socket", "docker.service"]

    def start(self, active: list[str]) -> dict[str, Any]:
        self.acts.append("start")
        text = self.config.read_bytes() if self.config.exists() else None
        if text in self.refuses:
            raise UnitFailed("unable to configure the Docker daemon")
        self.is_up = True
        root = (json.loads(text) if text else {}).get("data-root", str(self.default_root))
        status = [["driver-type", self.driver_type]] if self.driver_type else []
        info = {**INFO, "DockerRootDir": root, "DriverStatus": status}
        self.socket.routes["GET", "/info"] = info
        return info


class Machine:
    """A node in a temporary folder. Its mount point is the one that the folder is on."""

    def __init__(self, daemon: DockerSocket, folder: Path) -> None:
        self.daemon = daemon
        self.run_dir = folder / "k3deploy" / RUN
        self.run_dir.mkdir(parents=True)
        self.config = folder / "etc/docker/daemon.json"
        self.config.parent.mkdir(parents=True)
        self.config.write_bytes(OLD)
        self.mount = _mount_point(folder)
        self.docker_root = folder / "docker"
        self.service = Service(daemon, self.config, folder)
        self.words: list[dict[str, Any]] = []
        daemon.routes["GET", "/images/json"] = []
        daemon.routes["GET", "/volumes"] = {"Volumes": None}

    @property
    def backup(self) -> Path:
        return Path(f"{self.config}.k3deploy-{RUN}")

    @property
    def new_text(self) -> str:
        return NEW.replace("/nvme/docker", str(self.docker_root))

    def move(self, **changes: Any) -> dict[str, Any]:
        seen = self.config.read_bytes() if self.config.exists() else None
        args = {
            "mount": str(self.mount),
            "run_dir": str(self.run_dir),
            "run_id": RUN,
            "daemon_json": str(self.config),
            "seen_sha256": None if seen is None else hashlib.sha256(seen).hexdigest(),
            "text": self.new_text,
            "can_validate": False,
            "may_use_containerd": False,
            **changes,
        }
        return move(args, self.words.append, self.service)

    def restore(self, *images: str) -> dict[str, Any]:
        args = {"run_dir": str(self.run_dir), "run_id": RUN, "images": list(images), "daemon_json": str(self.config)}
        return restore(args, self.words.append, self.service)


def _mount_point(folder: Path) -> Path:
    place = folder
    while not place.is_mount():
        place = place.parent
    return place


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with docker_socket(tmp_path) as daemon:
        yield Machine(daemon, tmp_path)


def test_the_file_is_replaced_the_old_one_kept_and_docker_is_asked_where_it_is(machine: Machine) -> None:
    machine.docker_root.mkdir()
    result = machine.move()
    assert result["root"] == str(machine.docker_root)
    assert machine.config.read_text() == machine.new_text
    assert machine.backup.read_bytes() == OLD
    assert machine.service.acts == ["stop", "start"]
    entries = Journal(str(machine.run_dir)).entries()
    assert [(entry["kind"], entry["path"]) for entry in entries] == [("daemon-json", str(machine.config))]


def test_a_file_that_was_not_there_is_noted_as_absent(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.config.unlink()
    machine.move()
    assert not machine.backup.exists()
    assert Path(f"{machine.backup}.absent").exists()


def test_docker_that_does_not_start_gets_its_old_file_back(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.service.refuses = [machine.new_text.encode()]
    with pytest.raises(Refusal) as refusal:
        machine.move()
    assert refusal.value.what == "Docker did not start with its new storage"
    assert "unable to configure the Docker daemon" in refusal.value.why
    assert machine.config.read_bytes() == OLD
    assert machine.service.acts == ["stop", "start", "stop", "start"]
    assert machine.service.is_up


def test_docker_that_comes_back_elsewhere_gets_its_old_file_back(machine: Machine) -> None:
    """Something else than daemon.json decides: here its root is on /proc, another file system than the mount's."""
    with pytest.raises(Refusal) as refusal:
        machine.move(text='{"data-root": "/proc"}\n')
    assert "Docker came back with its storage at /proc" in refusal.value.why
    assert machine.config.read_bytes() == OLD


def test_docker_that_comes_back_with_containerds_store_gets_its_old_file_back(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.service.driver_type = "io.containerd.snapshotter.v1"
    with pytest.raises(Refusal) as refusal:
        machine.move()
    assert "Docker keeps its images in containerd" in refusal.value.why
    assert machine.config.read_bytes() == OLD
    assert machine.move(may_use_containerd=True)["driver_type"] == "io.containerd.snapshotter.v1"


def test_docker_that_starts_with_neither_file_says_both(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.service.refuses = [machine.new_text.encode(), OLD]
    with pytest.raises(Refusal, match="nor again with the old"):
        machine.move()
    assert machine.config.read_bytes() == OLD


def test_running_containers_stop_the_move_before_anything_is_touched(machine: Machine) -> None:
    machine.daemon.routes["GET", "/containers/json"] = [{"Names": ["/prometheus"]}]
    with pytest.raises(Refusal) as refusal:
        machine.move()
    assert refusal.value.context["found"] == "prometheus"
    assert machine.service.acts == []
    assert machine.config.read_bytes() == OLD
    assert not machine.backup.exists()


def test_a_file_that_somebody_changed_since_the_plan_is_left_alone(machine: Machine) -> None:
    with pytest.raises(Refusal, match="changed a moment ago"):
        machine.move(seen_sha256="0" * 64)
    assert machine.service.acts == []


def test_a_mount_that_is_gone_stops_the_move(machine: Machine) -> None:
    with pytest.raises(Refusal, match="is not a mount point"):
        machine.move(mount=str(machine.run_dir))
    assert machine.service.acts == []


def test_a_second_move_keeps_the_first_backup(machine: Machine) -> None:
    """After a power cut between the file and the restart the same run goes on: the oldest state is what counts."""
    machine.docker_root.mkdir()
    machine.move()
    machine.move()
    assert machine.backup.read_bytes() == OLD


def test_restore_gives_back_the_same_bytes_mode_and_time_and_removes_what_was_made(machine: Machine) -> None:
    os.utime(machine.config, (1_700_000_000, 1_700_000_000))
    machine.config.chmod(0o640)
    journal = Journal(str(machine.run_dir))
    journal.add({"kind": "folder", "path": str(machine.docker_root)})
    (machine.docker_root / "overlay2").mkdir(parents=True)
    machine.move()
    (machine.docker_root / "overlay2/layer").write_text("unpacked")
    result = machine.restore()
    assert result == {
        "restored": [str(machine.config)],
        "removed": [str(machine.docker_root), str(machine.run_dir)],
        "kept": [],
    }
    assert machine.config.read_bytes() == OLD
    assert machine.config.stat().st_mode & 0o777 == 0o640
    assert machine.config.stat().st_mtime == 1_700_000_000
    assert not machine.backup.exists()
    assert not machine.docker_root.exists()
    assert not machine.run_dir.parent.exists()
    assert machine.service.is_up
    assert machine.restore() == {"restored": [], "removed": [], "kept": []}


def test_restore_of_a_file_that_was_not_there_removes_it(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.config.unlink()
    machine.move()
    machine.restore()
    assert not machine.config.exists()
    assert not Path(f"{machine.backup}.absent").exists()


def test_restore_keeps_a_folder_with_images_of_somebody_else(machine: Machine) -> None:
    Journal(str(machine.run_dir)).add({"kind": "folder", "path": str(machine.docker_root)})
    (machine.docker_root / "overlay2").mkdir(parents=True)
    machine.move()
    (machine.docker_root / "overlay2/layer").write_text("theirs")
    machine.daemon.routes["GET", "/images/json"] = [{"RepoDigests": ["their/image@sha256:1"], "RepoTags": None}]
    result = machine.restore()
    assert result["kept"] == [{"path": str(machine.docker_root), "why": "not empty: overlay2"}]
    assert (machine.docker_root / "overlay2/layer").read_text() == "theirs"


def test_restore_leaves_a_file_that_was_edited_meanwhile(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.move()
    machine.config.write_text('{"mtu": 9000}')
    with pytest.raises(Refusal, match="was edited after this run had replaced it"):
        machine.restore()
    assert machine.config.read_text() == '{"mtu": 9000}'
    assert machine.backup.read_bytes() == OLD


def test_restore_waits_for_other_runs_on_the_node(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.move()
    (machine.run_dir.parent / "other-run").mkdir()
    with pytest.raises(Refusal) as refusal:
        machine.restore()
    assert refusal.value.context["found"] == "other-run"
    assert machine.config.read_text() == machine.new_text


def test_restore_that_does_not_start_goes_back_to_what_ran(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.move()
    machine.service.refuses = [OLD]
    with pytest.raises(Refusal, match="did not start with its old"):
        machine.restore()
    assert machine.config.read_text() == machine.new_text
    assert machine.service.is_up
    assert machine.backup.read_bytes() == OLD, "so that it can be tried again"


def test_restore_finds_the_backup_when_the_disk_with_the_journal_was_wiped(machine: Machine) -> None:
    machine.docker_root.mkdir()
    machine.move()
    (machine.run_dir / "created.json").unlink()
    assert machine.restore()["restored"] == [str(machine.config)]
    assert machine.config.read_bytes() == OLD


def test_restore_removes_only_empty_folders_below_what_the_run_made(machine: Machine, tmp_path: Path) -> None:
    cache = tmp_path / "hf"
    (cache / "hub/.locks").mkdir(parents=True)
    (cache / "hub/models--other").mkdir()
    (cache / "hub/models--other/file").write_text("theirs")
    Journal(str(machine.run_dir)).add({"kind": "folder", "path": str(cache)})
    result = machine.restore()
    assert result["kept"] == [{"path": str(cache), "why": "not empty: hub"}]
    assert not (cache / "hub/.locks").exists()
    assert (cache / "hub/models--other/file").read_text() == "theirs"


def test_folders_are_made_with_owner_and_mode_and_noted_once(tmp_path: Path) -> None:
    run_dir = tmp_path / "k3deploy" / RUN
    wanted = [
        {"path": str(tmp_path / "a/hf"), "owner": "login", "mode": 0o755},
        {"path": str(tmp_path / "docker"), "owner": "root", "mode": 0o710},
    ]
    args = {"mount": str(_mount_point(tmp_path)), "run_dir": str(run_dir), "folders": wanted}
    made = make_folders(args, unsaid)["made"]
    assert made == [
        str(path) for path in (run_dir.parent, run_dir, tmp_path / "a", tmp_path / "a/hf", tmp_path / "docker")
    ]
    assert run_dir.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "docker").stat().st_mode & 0o777 == 0o710
    noted = [entry["path"] for entry in Journal(str(run_dir)).entries()]
    assert noted == [str(tmp_path / "a"), str(tmp_path / "a/hf"), str(tmp_path / "docker")]
    assert make_folders(args, unsaid)["made"] == []
    assert len(Journal(str(run_dir)).entries()) == 3


def test_folders_are_not_made_below_a_plain_folder(tmp_path: Path) -> None:
    args = {"mount": str(tmp_path), "run_dir": str(tmp_path / "k3deploy" / RUN), "folders": []}
    with pytest.raises(Refusal, match="is not a mount point"):
        make_folders(args, unsaid)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_the_place_of_the_runs_folder_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (tmp_path / "k3deploy").symlink_to(elsewhere)
    args = {"mount": str(_mount_point(tmp_path)), "run_dir": str(tmp_path / "k3deploy" / RUN), "folders": []}
    with pytest.raises(Refusal, match="is not a folder of ours"):
        make_folders(args, unsaid)
    assert list(elsewhere.iterdir()) == []


def test_a_damaged_journal_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"schema": 99, "entries": []}'):
        (tmp_path / "created.json").write_text(text)
        with pytest.raises(Refusal, match="cannot be read"):
            Journal(str(tmp_path)).entries()
