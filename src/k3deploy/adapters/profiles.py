"""Find and read profile files: a path, ./configs/NAME.yaml, the user's folder, then the ones shipped with k3deploy."""

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import k3deploy
from k3deploy.adapters import engines, text_files
from k3deploy.domain import yaml_text
from k3deploy.domain.errors import ProfileError
from k3deploy.domain.faults import Fault, shown
from k3deploy.domain.profile import loader, lock
from k3deploy.domain.profile.loader import LoadedProfile
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.yaml_text import Document

_ENGINE = "sglang"  # the only one so far: the model refuses any other
_MAX_PARENTS = 8
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Place:
    """A folder of profiles, and how people call it."""

    title: str
    folder: Path


@dataclass(frozen=True)
class Found:
    """A profile file. `title` is what messages call it: its path as given, or its name where the name is enough."""

    name: str
    path: Path
    place: str

    @property
    def title(self) -> str:
        return self.path.name if self.place else str(self.path)


def places() -> tuple[Place, ...]:
    """Where names are looked up, first match wins. `XDG_CONFIG_HOME` (else ~/.config) holds the user's folder."""
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return (
        Place("./configs", Path("configs")),
        Place("user", config_home / "k3deploy" / "profiles"),
        Place("shipped", _shipped_folder()),
    )


def _shipped_folder() -> Path:
    package = Path(k3deploy.__file__).parent
    in_wheel = package / "configs"
    return in_wheel if in_wheel.is_dir() else package.parents[1] / "configs"  # a source checkout: the top of the repo


def load(name: str, settings: Sequence[str] = (), where: Sequence[Place] | None = None) -> LoadedProfile:
    """The profile that a name or path means, with `--set` assignments on top.

    Raises ProfileError or ProfileFaults: no such profile, unreadable, or wrong in any way that can be seen by itself.
    """
    looked = places() if where is None else where
    found = find(name, looked)
    documents = _chain(found, looked)
    return loader.load(documents, engines.option_lists(_ENGINE), settings)


def load_profile(name: str, settings: Sequence[str] = ()) -> Profile:
    """`load` for those who want nothing but the profile."""
    return load(name, settings).profile


def profile_to_lock(profile: Profile) -> str:
    """The resolved profile as YAML: itself a valid profile, equal to this one when it is read again."""
    return lock.dump(profile)


def profile_from_lock(text: str) -> Profile:
    """Read a lock. Raises ProfileError or ProfileFaults when somebody changed it, or another version wrote it."""
    return loader.load_lock(yaml_text.read(text.encode(), "profile.lock.yaml"))


def find(name: str, where: Sequence[Place]) -> Found:
    """Raises ProfileError when nothing is found, with the nearest known name."""
    if "/" in name or name.endswith(_SUFFIXES):
        path = Path(name)
        if not path.is_file():
            raise ProfileError(
                what=f"there is no profile file {name}",
                fix="check the path, or name a profile: k3deploy profiles list",
                context={"folder": path.parent.absolute()},
            )
        return Found(path.stem, path, "")
    for place in where:
        for suffix in _SUFFIXES:
            path = place.folder / f"{name}{suffix}"
            if path.is_file():
                return Found(name, path, place.title)
    known = sorted({found.name for found in listing(where)})
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    raise ProfileError(
        what=f"there is no profile {shown(name)}",
        why="looked in " + ", ".join(str(place.folder) for place in where),
        fix=f"did you mean {near[0]}?" if near else "see them with: k3deploy profiles list",
        context={"known": ", ".join(known)},
    )


def listing(where: Sequence[Place]) -> Iterator[Found]:
    """All profiles by name; one that an earlier place has too is left out, as it cannot be reached by name."""
    seen: set[str] = set()
    for place in where:
        if not place.folder.is_dir():
            continue
        for path in sorted(place.folder.iterdir()):
            if path.suffix in _SUFFIXES and path.stem not in seen and path.is_file():
                seen.add(path.stem)
                yield Found(path.stem, path, place.title)


def _chain(found: Found, where: Sequence[Place]) -> list[Document]:
    """The files that a profile extends, farthest first, then itself."""
    chain = [found]
    documents = [_read(found)]
    while (parent := documents[0].value.get("extends")) is not None:
        at = documents[0].at(("extends",))
        if not isinstance(parent, str) or not parent:
            raise Fault(
                "`extends` is not the name of a profile",
                "write one name or path",
                path=("extends",),
                at=at,
                found=shown(parent),
                wanted="a name or path",
            ).as_error()
        found = _find_parent(parent, chain[0], where, at)
        if len(chain) > _MAX_PARENTS or any(found.path.samefile(known.path) for known in chain):
            raise Fault(
                "profiles extend each other in a circle",
                "remove one `extends`",
                path=("extends",),
                at=at,
                found=" extends ".join([*(known.name for known in reversed(chain)), found.name]),
            ).as_error()
        documents.insert(0, _read(found))
        chain.insert(0, found)
    return documents


def _find_parent(parent: str, child: Found, where: Sequence[Place], at: str) -> Found:
    if "/" in parent or parent.endswith(_SUFFIXES):
        parent = str(child.path.parent / parent)  # relative to the file that says it, wherever one stands
    try:
        return find(parent, where)
    except ProfileError as err:
        raise ProfileError(
            what=err.what, why=err.why, fix=err.fix, context={"at": at, "path": "extends", **err.context}
        ) from err


def _read(found: Found) -> Document:
    data = text_files.read(found.path, limit_bytes=yaml_text.MAX_BYTES)
    return replace(yaml_text.read(data, found.title), name=found.title)
