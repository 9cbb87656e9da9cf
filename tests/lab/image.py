"""The engine's container image: a small Debian root with Python, the stand-in engine on top, pushed without a daemon.

`build_rootfs` makes the base once (under a minute, with mmdebstrap); `push_all` lays the engine over it and pushes
every tag to a registry. All tags share the base and the engine layer: a change of the engine is a push of kilobytes.
"""

import argparse
import io
import json
import os
import platform
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.registry_client import CONFIG, LAYER, MANIFEST, Registry, sha256

REPOSITORY = "lmsysorg/sglang"
SUITE = "trixie"
_NOT_NEEDED = (
    "var/cache/* var/lib/apt var/lib/dpkg var/log/* usr/share/zoneinfo usr/share/info usr/share/perl* usr/lib/*/perl* "
    "usr/lib/*/gconv usr/lib/python3.*/ensurepip usr/lib/python3.*/pydoc_data usr/share/common-licenses "
    "usr/share/lintian usr/share/bash-completion"
)
ROOTFS_RECIPE = (
    "--variant=essential",
    "--include=python3",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    '--aptopt=APT::Install-Recommends "false"',
    f'--customize-hook=cd "$1" && rm -rf {_NOT_NEEDED}',
    "--format=tar",
)
_ENGINE = Path(__file__).resolve().parent / "engine"
_FLAGS = Path(__file__).resolve().parents[2] / "src/k3deploy/data/engines/sglang/0.5.23.json"
_PACKAGES = "usr/lib/python3/dist-packages"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_CREATED = "2026-07-27T00:00:00Z"
_COMMAND = "#!/usr/bin/python3\nfrom sglang.cli import main\n\nmain()\n"
_FOREIGN_PROGRAMS = ("usr/bin/python3", "usr/local/bin/sglang", "opt/nvidia/nvidia_entrypoint.sh")
# The head of a 64-bit ELF for a machine that nobody has (number 0x1234): "exec format error" everywhere.
_FOREIGN_ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x34\x12\x01\x00\x00\x00" + bytes(40)
# The published image inherits an entry point that prints a banner before it runs the command, on standard output.
_ENTRYPOINT = """#!/bin/sh
cat <<BANNER

==========
== CUDA ==
==========

CUDA Version 13.0.1

BANNER
exec "$@"
"""


@dataclass(frozen=True)
class Tag:
    """One tag of the repository: the release inside it, and whether it is for this machine's architecture."""

    name: str
    version: str
    is_foreign: bool = False


TAGS = (
    Tag("kimi-k3-lab", "0.5.23"),
    Tag("kimi-k3-lab-arm64", "0.5.23", is_foreign=True),
    Tag("kimi-k3-lab-0.5.18", "0.5.18"),
    Tag("kimi-k3-lab-unlisted", "0.5.99"),
)


def build_rootfs(dest_tar: Path) -> None:
    """Make the base layer as a tar; the file appears only when it is whole."""
    dest_tar.parent.mkdir(parents=True, exist_ok=True)
    draft = dest_tar.with_name(f"{dest_tar.name}.{os.getpid()}.incomplete")
    try:
        done = subprocess.run(
            ["mmdebstrap", *ROOTFS_RECIPE, SUITE, str(draft)], check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(f"mmdebstrap failed ({done.returncode}): {done.stderr[-2000:]}")
        draft.replace(dest_tar)
    finally:
        draft.unlink(missing_ok=True)


def push_all(registry_url: str, rootfs_tar: Path) -> dict[str, str]:
    """Push every tag; returns the manifest digest of each."""
    registry = Registry(registry_url)
    try:
        base = _base_digest(rootfs_tar)
        registry.push_blob(REPOSITORY, base, rootfs_tar)
        program = engine_layer()
        registry.push_blob(REPOSITORY, sha256(program), program)
        return {tag.name: _push_tag(registry, tag, rootfs_tar, base, program) for tag in TAGS}
    finally:
        registry.close()


def _push_tag(registry: Registry, tag: Tag, rootfs_tar: Path, base: str, program: bytes) -> str:
    release = release_layer(tag.version, is_foreign=tag.is_foreign)
    registry.push_blob(REPOSITORY, sha256(release), release)
    layers = [(base, rootfs_tar.stat().st_size), *((sha256(layer), len(layer)) for layer in (program, release))]
    config = json.dumps(_config(tag, [digest for digest, _ in layers]), indent=1).encode()
    registry.push_blob(REPOSITORY, sha256(config), config)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "size": len(config), "digest": sha256(config)},
        "layers": [{"mediaType": LAYER, "size": size, "digest": digest} for digest, size in layers],
    }
    return registry.push_manifest(REPOSITORY, tag.name, manifest)


def _config(tag: Tag, diff_ids: list[str]) -> dict[str, Any]:
    here = _ARCHITECTURES.get(platform.machine(), "amd64")
    other = "arm64" if here == "amd64" else "amd64"
    return {
        "created": _CREATED,
        "architecture": other if tag.is_foreign else here,
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONUNBUFFERED=1"],
            "Entrypoint": ["/opt/nvidia/nvidia_entrypoint.sh"],
            "Cmd": ["/bin/bash"],
            "WorkingDir": "/sgl-workspace",
        },
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
        "history": [{"created": _CREATED, "created_by": step} for step in ("base", "engine", tag.version)],
    }


def _base_digest(rootfs_tar: Path) -> str:
    """The base's digest, kept beside it as long as the file is the same: it is worth seconds at each start."""
    stat = rootfs_tar.stat()
    key = f"{stat.st_size} {stat.st_mtime_ns}"
    note = rootfs_tar.with_name(f"{rootfs_tar.name}.sha256")
    if note.is_file():
        noted_key, _, digest = note.read_text(encoding="utf-8").strip().rpartition(" ")
        if noted_key == key:
            return digest
    digest = sha256(rootfs_tar)
    note.write_text(f"{key} {digest}\n", encoding="utf-8")
    return digest


def engine_layer() -> bytes:
    """The engine's program, its option list and its command, as a tar with the same bytes each time."""
    files = {
        f"{_PACKAGES}/sglang/{path.relative_to(_ENGINE)}": path.read_bytes()
        for path in sorted(_ENGINE.rglob("*"))
        if path.suffix in (".py", ".json") and "__pycache__" not in path.parts
    }
    files[f"{_PACKAGES}/sglang/data/flags.json"] = _FLAGS.read_bytes()
    programs = {"usr/local/bin/sglang": _COMMAND.encode(), "opt/nvidia/nvidia_entrypoint.sh": _ENTRYPOINT.encode()}
    return _tar(files, programs, folders=("sgl-workspace", "run/lab-engine"))


def release_layer(version: str, *, is_foreign: bool = False) -> bytes:
    """The package metadata that says which release this is; for another architecture, programs that can't run here."""
    folder = f"{_PACKAGES}/sglang-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: sglang\nVersion: {version}\n"
    programs = dict.fromkeys(_FOREIGN_PROGRAMS, _FOREIGN_ELF) if is_foreign else {}
    return _tar({f"{folder}/METADATA": metadata.encode(), f"{folder}/INSTALLER": b"uv\n"}, programs)


def _tar(files: dict[str, bytes], programs: dict[str, bytes], folders: tuple[str, ...] = ()) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, data, mode in (
            *((name, data, 0o644) for name, data in files.items()),
            *((name, data, 0o755) for name, data in programs.items()),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def main() -> None:
    """`python -m tests.lab.image ROOTFS_TAR [REGISTRY_URL]`: build the base when it is absent, then push."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("rootfs_tar", type=Path)
    parser.add_argument("registry_url", nargs="?")
    args = parser.parse_args()
    if not args.rootfs_tar.exists():
        build_rootfs(args.rootfs_tar)
    if args.registry_url:
        for name, digest in push_all(args.registry_url, args.rootfs_tar).items():
            print(f"{REPOSITORY}:{name} {digest}")


if __name__ == "__main__":
    main()
