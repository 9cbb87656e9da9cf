"""Values become words in one place; the words are checked against the list of the engine's release."""

import pytest

from k3deploy.adapters import engines
from k3deploy.domain.launch import flags
from k3deploy.domain.launch.base import Flag
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.versions import VersionRange


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (True, ()),
        (False, None),
        (None, None),
        (0, ("0",)),
        (3600, ("3600",)),
        (0.85, ("0.85",)),
        ("", ("",)),
        ("marlin", ("marlin",)),
        ({"enable_multithread_load": True}, ('{"enable_multithread_load":true}',)),
        ({"a": [1, {"b": "ü"}]}, ('{"a":[1,{"b":"ü"}]}',)),
        ([1, 2, 64], ("1", "2", "64")),
        (["a", {"b": 1}], ("a", '{"b":1}')),
    ],
)
def test_words(value: object, words: tuple[str, ...] | None) -> None:
    assert flags.words(value) == words


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(ValueError, match="empty list"):
        flags.words([])


def test_flag() -> None:
    assert flags.flag("cuda-graph-bs-decode", [1, 2], "s") == Flag("--cuda-graph-bs-decode", "1", "s", rest=("2",))
    assert flags.flag("enable-metrics", True, "s") == Flag("--enable-metrics", None, "s")
    assert flags.flag("enable-metrics", False, "s") is None
    assert Flag("--a", "1", "s", rest=("2",)).words == ("--a", "1", "2")


def _sglang() -> OptionLists:
    return engines.option_lists("sglang")


def test_the_shipped_list_is_complete() -> None:
    options = _sglang().of("0.5.23")
    assert options is not None
    # 531 options, 12 of which can also be turned off by --no-...
    assert sum(not name.startswith("--no-") or name == option.name for name, option in options.options.items()) >= 531
    assert options.options["--reasoning-parser"].choices.count("kimi_k3") == 1
    assert options.problem("--no-dcp-replicate-q-proj", ()) is None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("--tp-size", ("32",)),
        ("--trust-remote-code", ()),
        ("--mem-fraction-static", ("0.85",)),
        ("--context-length", ("1M",)),
        ("--context-length", ("64Ki",)),
        ("--model-loader-extra-config", ('{"enable_multithread_load":true}',)),
        ("--cuda-graph-bs-decode", ("1", "2", "4")),
        ("--reasoning-parser", ("kimi_k2",)),  # the engine accepts it: that is why there is a rule of our own
    ],
)
def test_what_the_parser_of_the_release_accepts(name: str, words: tuple[str, ...]) -> None:
    options = _sglang().of("0.5.23")
    assert options is not None
    assert options.problem(name, words) is None


def test_a_deprecated_option_is_a_warning_that_names_its_successor() -> None:
    options = _sglang().of("0.5.23")
    assert options is not None
    problem = options.problem("--enable-dp-attention", ())
    assert problem is not None
    assert problem.is_warning
    assert problem.fix == "use --attn-dp-size <dp-size>"


def test_a_release_without_a_list_is_unchecked_and_one_with_a_list_is_checked() -> None:
    given = [Flag("--tp-size", "eight", "s"), Flag("--no-such", None, "s"), Flag("--enable-dp-attention", None, "s")]
    assert _sglang().check(given, "0.5.18").status == "unchecked"
    check = _sglang().check(given, "0.5.23")
    assert check.status == "checked"
    assert [problem.flag for problem in check.errors] == ["--tp-size", "--no-such"]
    assert [problem.flag for problem in check.problems] == ["--tp-size", "--no-such", "--enable-dp-attention"]


def test_the_newest_list_that_a_range_allows() -> None:
    newest = _sglang().newest_in(VersionRange.parse(">=0.5.17,<0.6"))
    assert newest is not None
    assert newest.version == "0.5.23"
    assert _sglang().newest_in(VersionRange.parse("<0.5.20")) is None
