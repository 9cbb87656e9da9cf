"""What our YAML reader makes of text that is right: YAML 1.2's scalars, line numbers, anchors."""

import pytest

from k3deploy.domain import yaml_text


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("8", 8),
        ("1_560_936_091_448", 1560936091448),
        ("-3", -3),
        ("0.85", 0.85),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("010", "010"),
        ("0x1F", "0x1F"),
        ("12:30", "12:30"),
        ("2026-07-28", "2026-07-28"),
        (".nan", ".nan"),
        ("1e999", "1e999"),
        ("9" * 40, "9" * 40),
        ('"yes"', "yes"),
        ("'0.85'", "0.85"),
        ("expandable_segments:True", "expandable_segments:True"),
        (">=0.5.17,<0.6", None),  # `>` begins a block: a range has to be quoted
        ("[a, 1, {b: c}]", ["a", 1, {"b": "c"}]),
    ],
)
def test_scalars(written: str, value: object) -> None:
    if written.startswith(">="):
        with pytest.raises(Exception, match="not valid YAML"):
            yaml_text.read(f"key: {written}\n".encode(), "f.yaml")
        return
    assert yaml_text.read(f"key: {written}\n".encode(), "f.yaml").value == {"key": value}


def test_keys_are_text_whatever_they_look_like() -> None:
    assert yaml_text.read(b"on: a\n8: b\nnull: c\n", "f.yaml").value == {"on": "a", "8": "b", "null": "c"}


def test_lines() -> None:
    document = yaml_text.read(b"# head\nengine:\n  flags:\n    a: 1\npools:\n  - name: x\n  - name: y\n", "f.yaml")
    assert document.at(("engine", "flags", "a")) == "f.yaml:4"
    assert document.at(("pools", 1, "name")) == "f.yaml:7"
    assert document.at(("engine", "flags", "missing")) == "f.yaml:3"
    assert document.at(("nowhere",)) == "f.yaml:2"


def test_anchors_and_merges() -> None:
    text = b"base: &base {x: 1, y: 2}\none:\n  <<: *base\n  y: 3\ntwo:\n  <<: [{x: 9}, *base]\n"
    value = yaml_text.read(text, "f.yaml").value
    assert value["one"] == {"x": 1, "y": 3}
    assert value["two"] == {"x": 9, "y": 2}


def test_a_byte_order_mark_and_windows_line_ends_are_read() -> None:
    document = yaml_text.read(b"\xef\xbb\xbfname: x\r\nschema: 1\r\n", "f.yaml")
    assert document.value == {"name": "x", "schema": 1}
    assert document.at(("schema",)) == "f.yaml:2"
