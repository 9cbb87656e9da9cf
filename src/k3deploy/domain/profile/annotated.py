"""A resolved profile for people: YAML with the source of each value behind it. Without the comments it is the lock."""

from collections.abc import Iterator, Mapping
from typing import Any

from k3deploy.domain.faults import Path, path_text
from k3deploy.domain.profile.lock import text_of
from k3deploy.domain.profile.models import Profile

_COLUMN = 64

Line = tuple[str, str]  # text and source


def annotated(profile: Profile, sources: Mapping[str, str]) -> str:
    """`mem-fraction-static: 0.85   # h100x32.yaml:32`, for every value."""
    body = profile.model_dump(mode="json", by_alias=True)
    lines = (f"{text:<{_COLUMN}}  # {source}" if source else text for text, source in _lines(body, (), sources))
    return "\n".join(lines) + "\n"


def _lines(value: Any, path: Path, sources: Mapping[str, str]) -> Iterator[Line]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _item(text_of({key: None}).partition(":")[0] + ":", item, (*path, key), sources)
        return
    for index, item in enumerate(value):
        inner = list(_item("-", item, (*path, index), sources))
        if _is_nested(item):  # `-` and the first key of a map share a line
            text, source = inner[1]
            inner[:2] = [(f"- {text[2:]}", source)]
        yield from inner


def _item(head: str, item: Any, path: Path, sources: Mapping[str, str]) -> Iterator[Line]:
    if not _is_nested(item):
        yield f"{head} {_scalar(item)}", sources.get(path_text(path), "")
        return
    yield head, ""
    for text, source in _lines(item, path, sources):
        yield f"  {text}", source


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict | list) and bool(value)


def _scalar(value: Any) -> str:
    return text_of({"": value}).partition(":")[2].strip()
