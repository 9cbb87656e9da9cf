"""Engine versions: PEP 440's order as far as it is needed, and ranges."""

import itertools

import pytest

from k3deploy.domain.versions import Version, VersionRange

# Ascending, as PEP 440 orders them.
_ORDER = [
    "0.5.9",
    "0.5.17.dev2",
    "0.5.17rc1",
    "0.5.17",
    "0.5.17.post1",
    "0.5.18",
    "0.5.20",
    "0.5.23",
    "0.6.dev1",
    "0.6",
]


def test_order() -> None:
    versions = [Version.parse(text) for text in _ORDER]
    for (i, a), (j, b) in itertools.product(enumerate(versions), repeat=2):
        assert (a < b) == (i < j)


def test_equal_versions() -> None:
    assert Version.parse("0.6") == Version.parse("0.6.0") == Version.parse("v0.6.0+g1a2b3c4")
    assert len({Version.parse("0.6"), Version.parse("0.6.0")}) == 1


@pytest.mark.parametrize(
    ("text", "range_text", "is_inside"),
    [
        ("0.5.23", ">=0.5.17,<0.6", True),
        ("0.5.17", ">=0.5.17,<0.6", True),
        ("0.5.16", ">=0.5.17,<0.6", False),
        ("0.6.0", ">=0.5.17,<0.6", False),
        ("0.5.17.dev3+gabc", ">=0.5.17", False),
        ("0.5.17.post1", ">0.5.17", True),
        ("0.5.23", "==0.5.23", True),
        ("0.5.19", ">=0.5.17, !=0.5.19", False),
        ("0.5.19", "<=0.5.19", True),
    ],
)
def test_ranges(text: str, range_text: str, is_inside: bool) -> None:
    assert (Version.parse(text) in VersionRange.parse(range_text)) is is_inside


@pytest.mark.parametrize("text", ["", "latest", "0.5.x", "1.2.3-", "0..5"])
def test_no_version(text: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        Version.parse(text)


@pytest.mark.parametrize("text", ["", "0.5.17", "~=0.5", ">=0.5.17,", ">= "])
def test_no_range(text: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        VersionRange.parse(text)
