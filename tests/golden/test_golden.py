"""The golden files are what is made now, one by one, and there is none that nothing makes."""

from k3deploy.adapters import profiles
from k3deploy.domain.launch.render import render
from tests.golden.made import PROFILES, cluster, made, on_disk


def test_every_golden_file_is_as_made() -> None:
    wanted, found = made(), on_disk()
    assert sorted(found) == sorted(wanted), "scripts/golden shows the difference"
    for path, text in wanted.items():
        assert found[path] == text, f"{path}: scripts/golden shows the difference, scripts/golden --accept takes it"


def test_every_rank_of_every_profile_has_a_golden_file() -> None:
    # 1 machine; 4 machines; nine replicas of 2
    assert sum(path.startswith("launch/") for path in on_disk()) == 1 + 4 + 18


def test_lab_profiles_differ_from_their_parents_by_model_and_image_only() -> None:
    for name in PROFILES:
        parent, lab = profiles.load_profile(name), profiles.load_profile(f"lab-{name}")
        topology, addresses = cluster(parent)
        for a, b in zip(
            render(parent, topology, addresses, image="i"),
            render(lab, topology, addresses, image="i"),
            strict=True,
        ):
            assert [word.replace("moonshotai/Kimi-K3", "lab/Kimi-K3-mini") for word in a.argv] == list(b.argv)
