"""A resolved profile as YAML text, which is a valid profile again: what ran, so that it can be run once more."""

import json
from typing import Any

import yaml

from k3deploy.domain import yaml_text
from k3deploy.domain.profile.models import Profile

_HEADER = "# What a run used, every value written out. It is itself a profile.\n"


class _Dumper(yaml.SafeDumper):
    """Quotes every text that our reader, or a YAML 1.1 reader, would take for something else."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = None if yaml_text.is_plain(text) and "\n" not in text else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def dump(profile: Profile) -> str:
    """Every field, defaults included."""
    return _HEADER + text_of(profile.model_dump(mode="json", by_alias=True))


def text_of(value: Any) -> str:
    """Any JSON-like value as YAML, keys in their own order."""
    # PyYAML writes these line breaks of Unicode as they are, and reads them back as others: then all is escaped.
    is_plain = not any(character in json.dumps(value, ensure_ascii=False) for character in "\x85\u2028\u2029\ufeff")
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=is_plain, width=10_000)
    return text
