"""Where a profile's name is looked up, and how files extend each other."""

from pathlib import Path

import pytest

from k3deploy.adapters import profiles
from k3deploy.adapters.profiles import Place
from k3deploy.domain.errors import ProfileError

_OWN = "extends: {parent}\nname: {name}\ndescription: {text}\nprovenance: {{source: x, verified_by: nobody}}\n"


def _write(folder: Path, name: str, parent: str, text: str = "x") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(_OWN.format(parent=parent, name=name, text=text), "utf-8")
    return path


@pytest.fixture
def places(tmp_path: Path) -> list[Place]:
    shipped = next(place for place in profiles.places() if place.title == "shipped")
    return [Place("./configs", tmp_path / "configs"), Place("user", tmp_path / "user"), shipped]


def test_the_nearest_place_wins(places: list[Place]) -> None:
    _write(places[1].folder, "mine", "h100x32", "user")
    assert profiles.load("mine", where=places).profile.description == "user"
    _write(places[0].folder, "mine", "h100x32", "here")
    assert profiles.load("mine", where=places).profile.description == "here"
    assert [f.place for f in profiles.listing(places) if f.name == "mine"] == ["./configs"]


def test_a_shipped_name_can_be_taken_over(places: list[Place]) -> None:
    _write(places[0].folder, "h100x32", str(places[2].folder / "h100x32.yaml"), "ours")
    assert profiles.load("h100x32", where=places).profile.description == "ours"


def test_a_parent_by_path_is_relative_to_the_file_that_names_it(places: list[Place], tmp_path: Path) -> None:
    _write(tmp_path / "team", "base", "h100x32")
    child = _write(tmp_path / "team" / "sites", "north", "../base.yaml")
    loaded = profiles.load(str(child), where=places)
    assert loaded.profile.pools[0].replicas.parallel.tensor == 32
    assert loaded.sources["name"] == f"{child}:2"
    assert loaded.sources["pools[0].replicas.parallel.tensor"] == "h100x32.yaml:50"
    assert loaded.sources["network.api"] == "default"


def test_a_longer_circle_is_named(places: list[Place]) -> None:
    _write(places[0].folder, "a", "b")
    _write(places[0].folder, "b", "a")
    with pytest.raises(ProfileError) as error:
        profiles.load("a", where=places)
    assert error.value.context["found"] == "a extends b extends a"


def test_a_file_that_cannot_be_read(tmp_path: Path, places: list[Place]) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "odd.yaml").symlink_to(tmp_path / "configs" / "odd.yaml")
    with pytest.raises(ProfileError, match="there is no profile"):
        profiles.load("odd", where=places)


def test_settings_are_the_top_layer(places: list[Place]) -> None:
    loaded = profiles.load("h100x32", ["engine.flags.mem-fraction-static=0.8", "price.usd_per_gpu_hour=null"], places)
    assert loaded.profile.engine.flags["mem-fraction-static"] == 0.8
    assert loaded.profile.usd_per_hour is None
    assert loaded.sources["engine.flags.mem-fraction-static"] == "--set engine.flags.mem-fraction-static"


def test_a_profile_is_frozen(places: list[Place]) -> None:
    profile = profiles.load("h100x32", where=places).profile
    with pytest.raises(ValueError, match="frozen"):
        profile.name = "other"
