"""The engine option lists that ship with the package: data/engines/<engine>/<version>.json."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import k3deploy
from k3deploy.domain.launch.option_list import OptionList, OptionLists

_FOLDER = Path(k3deploy.__file__).parent / "data" / "engines"


@cache
def option_lists(engine: str) -> OptionLists:
    """All lists of an engine; each one is read when it is first asked for."""
    return OptionLists(_Lists(_FOLDER / engine))


class _Lists(Mapping[str, OptionList]):
    """Version -> list, read lazily: a list is 190 kB, and a run needs one."""

    def __init__(self, folder: Path) -> None:
        self._paths = {path.stem: path for path in sorted(folder.glob("*.json"))}
        self._read: dict[str, OptionList] = {}

    def __getitem__(self, version: str) -> OptionList:
        if version not in self._read:
            self._read[version] = OptionList.from_dict(json.loads(self._paths[version].read_text("utf-8")))
        return self._read[version]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)
