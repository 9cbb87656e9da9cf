"""The Hub client for nodes: its lock, the wheelhouse that pip fills, and what a node does with the wheels."""

import hashlib
import io
import os
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import k3deploy
from k3deploy.adapters.wheelhouse import Wheelhouse, user_cache
from k3deploy.domain.client_lock import ClientLock, fits
from k3deploy.domain.errors import PackageIndexError, ProfileError
from k3deploy.domain.names import Sha256
from tests.unit.remote_program import run, section

LOCK = (Path(k3deploy.__file__).parent / "data" / "node-client.txt").read_text()


def wheel(name: str, members: Mapping[str, str]) -> bytes:
    """A wheel that pip accepts: its members and the metadata that belongs to its name."""
    package, version, *_ = name.split("-")
    info = f"{package}-{version}.dist-info"
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in members.items():
            archive.writestr(zipfile.ZipInfo(path), text)
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        tag = name.removesuffix(".whl").split("-", 2)[2]
        archive.writestr(zipfile.ZipInfo(f"{info}/METADATA"), metadata)
        archive.writestr(zipfile.ZipInfo(f"{info}/WHEEL"), f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "")
    return content.getvalue()


PURE = "pure_part-1.0-py3-none-any.whl"
X86 = "native_part-2.0-cp38-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
ARM = "native_part-2.0-cp38-abi3-manylinux_2_28_aarch64.whl"
WHEELS = {
    PURE: wheel(PURE, {"pure_part/__init__.py": "x = 1\n"}),
    X86: wheel(X86, {"native_part/__init__.py": "arch = 'x86'\n"}),
    ARM: wheel(ARM, {"native_part/__init__.py": "arch = 'arm'\n"}),
}
SUMS = {name: Sha256(hashlib.sha256(data).hexdigest()) for name, data in WHEELS.items()}
LOCK_TEXT = (
    f"pure-part==1.0 \\\n    --hash=sha256:{SUMS[PURE]}\n"
    f"native-part==2.0 \\\n    --hash=sha256:{SUMS[X86]} \\\n    --hash=sha256:{SUMS[ARM]}\n"
)


class TestLock:
    def test_the_shipped_one_is_the_client_with_everything_it_needs(self) -> None:
        lock = ClientLock.parse(LOCK)
        assert lock.client_version.startswith("2.4.")
        names = {package.name for package in lock.packages}
        # What huggingface_hub 2.4 declares, for Python 3.10 on Linux, and hf-xet, which has wheels per architecture.
        needed = {"click", "filelock", "fsspec", "hf-xet", "httpx2", "packaging", "pyyaml", "tomli", "tqdm"}
        assert needed | {"huggingface-hub", "typing-extensions"} <= names
        per_architecture = {package.name for package in lock.packages if len(package.hashes) == 2}
        assert per_architecture == {"hf-xet", "pyyaml"}
        assert all(len(package.hashes) in (1, 2) for package in lock.packages)

    def test_it_names_no_place(self) -> None:
        assert "://" not in LOCK

    def test_its_id_changes_with_every_byte(self) -> None:
        assert ClientLock.parse(LOCK_TEXT).id != ClientLock.parse(LOCK_TEXT + "\n").id

    @pytest.mark.parametrize(
        "text", ["", "# only words\n", "a==1\n", "a --hash=sha256:" + "0" * 64, "a>=1 \\\n  --hash=x\n"]
    )
    def test_what_is_no_lock_is_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"lock|pinned"):
            ClientLock.parse(text)

    @pytest.mark.parametrize(
        ("name", "x86_64", "aarch64"),
        [
            (PURE, True, True),
            (X86, True, False),
            (ARM, False, True),
            ("a-1-cp310-cp310-macosx_11_0_arm64.whl", False, False),
            ("a-1-py3-none-win_amd64.whl", False, False),
        ],
    )
    def test_which_wheel_fits_which_architecture(self, name: str, x86_64: bool, aarch64: bool) -> None:
        assert (fits(name, "x86_64"), fits(name, "aarch64")) == (x86_64, aarch64)

    def test_missing_and_strange_wheels_are_named(self) -> None:
        lock = ClientLock.parse(LOCK_TEXT)
        sums = {PURE: SUMS[PURE], ARM: SUMS[ARM], "other-1-py3-none-any.whl": Sha256("0" * 64)}
        assert lock.missing(sums, "aarch64") == ()
        assert lock.missing(sums, "x86_64") == ("native-part==2.0",)
        assert lock.strangers(sums) == ("other-1-py3-none-any.whl",)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A folder that stands for a package index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, data in WHEELS.items():
        (folder / name).write_bytes(data)
    return folder


def _environment(index: Path) -> dict[str, str]:
    return {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_EXTRA_INDEX_URL": ""}


class TestWheelhouse:
    def test_pip_fetches_once_what_fits_the_node(self, tmp_path: Path, index: Path) -> None:
        house = Wheelhouse(lock_text=LOCK_TEXT, cache=tmp_path / "cache", environment=_environment(index))
        pack = house.pack("aarch64")
        assert dict(pack.wheels) == {PURE: SUMS[PURE], ARM: SUMS[ARM]}
        assert sorted(zipfile.ZipFile(pack.path).namelist()) == [ARM, PURE]
        for path in index.iterdir():
            path.unlink()
        # From the cache now, in this process and in the next one.
        assert house.pack("aarch64") == pack
        assert Wheelhouse(lock_text=LOCK_TEXT, cache=tmp_path / "cache").pack("aarch64") == pack

    def test_many_nodes_ask_at_once(self, tmp_path: Path, index: Path) -> None:
        house = Wheelhouse(lock_text=LOCK_TEXT, cache=tmp_path / "cache", environment=_environment(index))
        packs = []
        threads = [threading.Thread(target=lambda: packs.append(house.pack("x86_64"))) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(packs) == 6
        assert len({str(pack.path) for pack in packs}) == 1

    def test_a_damaged_cache_is_made_anew(self, tmp_path: Path, index: Path) -> None:
        def house() -> Wheelhouse:
            return Wheelhouse(lock_text=LOCK_TEXT, cache=tmp_path / "cache", environment=_environment(index))

        pack = house().pack("x86_64")
        whole = pack.path.read_bytes()
        pack.path.write_bytes(whole[: len(whole) // 2])
        assert house().pack("x86_64").path.read_bytes() == whole
        data = bytearray(whole)
        data[60] ^= 0xFF
        pack.path.write_bytes(data)
        next((tmp_path / "cache").rglob(X86)).write_bytes(b"damaged")
        assert house().pack("x86_64").path.read_bytes() == whole

    def test_an_index_without_the_wheels_is_said_with_the_way_out(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        house = Wheelhouse(lock_text=LOCK_TEXT, cache=tmp_path / "c", environment=_environment(tmp_path / "empty"))
        with pytest.raises(PackageIndexError) as caught:
            house.pack("x86_64")
        assert caught.value.what == "cannot download the node client's wheels"
        assert "pure-part==1.0" in caught.value.why
        assert "--wheelhouse DIR" in caught.value.fix

    def test_an_index_that_is_not_there_is_said(self, tmp_path: Path) -> None:
        environment = {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_RETRIES": "0",
        }
        house = Wheelhouse(lock_text=LOCK_TEXT, cache=tmp_path / "c", environment=environment)
        with pytest.raises(PackageIndexError):
            house.pack("x86_64")

    def test_an_index_with_other_bytes_is_refused(self, tmp_path: Path, index: Path) -> None:
        (index / PURE).write_bytes(wheel(PURE, {"pure_part/__init__.py": "import os\n"}))
        house = Wheelhouse(lock_text=LOCK_TEXT, cache=tmp_path / "c", environment=_environment(index))
        with pytest.raises(PackageIndexError):
            house.pack("x86_64")
        assert not list((tmp_path / "c").rglob("*.whl"))

    def test_the_operators_own_folder_needs_no_index(self, tmp_path: Path, index: Path) -> None:
        house = Wheelhouse(index, lock_text=LOCK_TEXT, cache=tmp_path / "c", environment={"PIP_NO_INDEX": "1"})
        assert dict(house.pack("x86_64").wheels) == {PURE: SUMS[PURE], X86: SUMS[X86]}

    @pytest.mark.parametrize(
        ("change", "key", "named"),
        [
            (lambda folder: (folder / PURE).unlink(), "missing", "pure-part==1.0"),
            (lambda folder: (folder / X86).unlink(), "missing", "native-part==2.0"),
            (
                lambda folder: (folder / "x-1-py3-none-any.whl").write_bytes(b"x"),
                "not in the lock",
                "x-1-py3-none-any.whl",
            ),
            (lambda folder: (folder / PURE).write_bytes(b"other"), "not in the lock", PURE),
        ],
    )
    def test_a_folder_that_is_not_the_locks_is_refused(
        self, tmp_path: Path, index: Path, change: Callable[[Path], Any], key: str, named: str
    ) -> None:
        change(index)
        house = Wheelhouse(index, lock_text=LOCK_TEXT, cache=tmp_path / "c")
        with pytest.raises(ProfileError, match="are not those of the lock") as caught:
            house.pack("x86_64")
        assert caught.value.context[key] == named

    def test_a_folder_that_is_not_there_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(ProfileError, match="there is no folder") as caught:
            Wheelhouse(tmp_path / "nowhere", cache=tmp_path / "c").pack("x86_64")
        assert f"k3deploy wheelhouse {tmp_path / 'nowhere'}" in caught.value.fix

    def test_the_folder_for_others_holds_both_architectures_and_nothing_else(self, tmp_path: Path, index: Path) -> None:
        house = Wheelhouse(lock_text=LOCK_TEXT, cache=tmp_path / "c", environment=_environment(index))
        sizes = house.copy_to(tmp_path / "made" / "here")
        assert sizes == {name: len(data) for name, data in WHEELS.items()}
        assert {path.name for path in (tmp_path / "made" / "here").iterdir()} == set(WHEELS)
        again = Wheelhouse(tmp_path / "made" / "here", lock_text=LOCK_TEXT, cache=tmp_path / "c2")
        assert set(again.pack("aarch64").wheels) == {PURE, ARM}

    def test_the_cache_is_where_caches_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
        assert user_cache() == Path("/somewhere/k3deploy")


def _pack(folder: Path, wheels: Mapping[str, bytes]) -> dict[str, Any]:
    with zipfile.ZipFile(folder / "pack.zip", "w") as archive:
        for name, data in wheels.items():
            archive.writestr(name, data)
    return {
        "pack": str(folder / "pack.zip"),
        "wheels": {name: hashlib.sha256(data).hexdigest() for name, data in wheels.items()},
        "folder": str(folder / "client"),
        "lock": "abc",
    }


class TestOnTheNode:
    def test_wheels_become_a_folder_for_sys_path(self, tmp_path: Path) -> None:
        args = _pack(tmp_path, {PURE: WHEELS[PURE], X86: WHEELS[X86]})
        assert run("client_unpack", args).result == {"files": 8}
        assert (tmp_path / "client" / "pure_part" / "__init__.py").read_text() == "x = 1\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["client"]
        assert section("client", folder=args["folder"], lock="abc") == {"is_whole": True, "why": ""}

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda folder: (folder / "pure_part" / "__init__.py").unlink(), "it has 3 files, not the 4"),
            (lambda folder: (folder / "pure_part" / "__init__.py").write_text(""), "it has 4 files, not the 4"),
            (lambda folder: (folder / "pure_part" / "more.py").write_text(""), "it has 5 files, not the 4"),
            (lambda folder: (folder / "k3deploy-client.json").write_text("{"), "its stamp is damaged"),
            (lambda folder: (folder / "k3deploy-client.json").write_text("{}"), "its stamp is damaged"),
            (lambda folder: (folder / "k3deploy-client.json").write_text("[]"), "its stamp is damaged"),
            (lambda folder: (folder / "k3deploy-client.json").unlink(), "it is not there"),
        ],
    )
    def test_a_client_that_was_changed_is_not_whole(
        self, tmp_path: Path, change: Callable[[Path], Any], why: str
    ) -> None:
        run("client_unpack", _pack(tmp_path, {PURE: WHEELS[PURE]}))
        change(tmp_path / "client")
        answer = section("client", folder=str(tmp_path / "client"), lock="abc")
        assert not answer["is_whole"]
        assert answer["why"].startswith(why)

    def test_what_python_compiled_does_not_count(self, tmp_path: Path) -> None:
        run("client_unpack", _pack(tmp_path, {PURE: WHEELS[PURE]}))
        (tmp_path / "client" / "pure_part" / "__pycache__").mkdir()
        (tmp_path / "client" / "pure_part" / "__pycache__" / "x.pyc").write_bytes(b"x")
        assert section("client", folder=str(tmp_path / "client"), lock="abc")["is_whole"]

    def test_a_client_of_another_lock_is_not_ours(self, tmp_path: Path) -> None:
        run("client_unpack", _pack(tmp_path, {PURE: WHEELS[PURE]}))
        assert section("client", folder=str(tmp_path / "client"), lock="xyz")["why"] == "it is of lock abc"

    def test_unpacking_again_replaces_all(self, tmp_path: Path) -> None:
        run("client_unpack", _pack(tmp_path, {PURE: WHEELS[PURE]}))
        (tmp_path / "client" / "left.py").write_text("")
        run("client_unpack", _pack(tmp_path, {PURE: WHEELS[PURE]}))
        assert not (tmp_path / "client" / "left.py").exists()
        assert section("client", folder=str(tmp_path / "client"), lock="abc")["is_whole"]

    @pytest.mark.parametrize(
        "member", ["../out.py", "/tmp/k3deploy-out.py", "a/../../out.py", "a//b.py", "a\\..\\b.py", "./a.py"]
    )
    def test_a_wheel_that_would_write_elsewhere_is_refused(self, tmp_path: Path, member: str) -> None:
        bad = wheel(PURE, {"pure_part/__init__.py": "", member: "bad"})
        error = run("client_unpack", _pack(tmp_path, {PURE: bad})).error
        assert "would be written outside of the folder" in error["why"]
        assert list(tmp_path.iterdir()) == []

    def test_a_link_in_a_wheel_becomes_a_plain_file(self, tmp_path: Path) -> None:
        content = io.BytesIO(WHEELS[PURE])
        with zipfile.ZipFile(content, "a") as archive:
            link = zipfile.ZipInfo("pure_part/link.py")
            link.external_attr = 0o120777 << 16
            archive.writestr(link, "/etc/passwd")
        run("client_unpack", _pack(tmp_path, {PURE: content.getvalue()}))
        path = tmp_path / "client" / "pure_part" / "link.py"
        assert not path.is_symlink()
        assert path.read_text() == "/etc/passwd"

    def test_a_wheel_with_another_hash_is_refused_and_nothing_is_left(self, tmp_path: Path) -> None:
        args = _pack(tmp_path, {PURE: WHEELS[PURE]})
        args["wheels"][PURE] = "0" * 64
        assert run("client_unpack", args).error["why"].endswith("has another hash")
        assert list(tmp_path.iterdir()) == []

    def test_a_pack_with_more_in_it_is_refused(self, tmp_path: Path) -> None:
        args = _pack(tmp_path, {PURE: WHEELS[PURE], X86: WHEELS[X86]})
        del args["wheels"][X86]
        assert run("client_unpack", args).error["why"].endswith("it holds other wheels than were sent")

    def test_a_cut_off_pack_is_refused(self, tmp_path: Path) -> None:
        args = _pack(tmp_path, {PURE: WHEELS[PURE]})
        (tmp_path / "pack.zip").write_bytes((tmp_path / "pack.zip").read_bytes()[:100])
        assert "run the same command again" in run("client_unpack", args).error["fix"]
        assert list(tmp_path.iterdir()) == []
