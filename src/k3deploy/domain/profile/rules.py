"""All rules that a profile must keep before a GPU is paid for, in one table; and the one way to run them."""

from collections.abc import Callable
from dataclasses import replace

from k3deploy.domain.faults import Fault, Path
from k3deploy.domain.launch.option_list import OptionLists
from k3deploy.domain.profile.engine_rules import ENGINE_RULES, option_rules
from k3deploy.domain.profile.fit_rules import FIT_RULES
from k3deploy.domain.profile.models import Profile
from k3deploy.domain.profile.parallel_rules import PARALLEL_RULES
from k3deploy.domain.profile.place_rules import PLACE_RULES
from k3deploy.domain.profile.rule import Rule


def table(option_lists: OptionLists) -> tuple[Rule, ...]:
    """The rules in the order in which their faults are shown."""
    return (*PARALLEL_RULES, *FIT_RULES, *ENGINE_RULES, *option_rules(option_lists), *PLACE_RULES)


def check(profile: Profile, option_lists: OptionLists, at: Callable[[Path], str]) -> list[Fault]:
    """Every fault of every rule, errors and warnings. What two pools share is said once."""
    found: dict[tuple[Path, str], Fault] = {}
    for rule in table(option_lists):
        for fault in rule.check(profile):
            found.setdefault((fault.path, fault.what), replace(fault, at=at(fault.path), level=rule.level))
    return list(found.values())
