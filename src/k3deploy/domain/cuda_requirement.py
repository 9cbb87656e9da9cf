"""Whether a driver meets an image's NVIDIA_REQUIRE_CUDA, as the NVIDIA container toolkit reads it. Pure.

The variable holds alternatives divided by blanks; each one is conditions divided by commas, all of which must hold:
`cuda>=13.0 brand=tesla,driver>=535,driver<536`.
"""

import re
from collections.abc import Sequence
from typing import Final

# First driver branch of each CUDA release (NVIDIA, CUDA toolkit release notes, table of driver versions for Linux).
_DRIVER_OF_CUDA: Final = (
    ((13, 0), 580),
    ((12, 9), 575),
    ((12, 8), 570),
    ((12, 7), 565),
    ((12, 6), 560),
    ((12, 5), 555),
    ((12, 4), 550),
    ((12, 3), 545),
    ((12, 2), 535),
    ((12, 1), 530),
    ((12, 0), 525),
    ((11, 8), 520),
)
_CONDITION: Final = re.compile(r"(?P<name>\w+)(?P<operator>>=|<=|!=|=|>|<)(?P<value>[\w.]+)")
_VARIABLE: Final = "NVIDIA_REQUIRE_CUDA="


def unmet(variables: Sequence[str], driver: str) -> str | None:
    """The requirement that this driver does not meet; None when it meets it, or when there is none.

    `variables` are NAME=VALUE rows of the image's environment; `driver` is what nvidia-smi reports, like 570.133.20.
    """
    for row in variables:
        if row.startswith(_VARIABLE):
            wanted = row.removeprefix(_VARIABLE)
            if wanted.strip() and not any(_holds(each, driver) for each in wanted.split()):
                return wanted.split()[0]
    return None


def _holds(alternative: str, driver: str) -> bool:
    return all(_is_met(condition, driver) for condition in alternative.split(","))


def _is_met(condition: str, driver: str) -> bool:
    """Brands and architectures are not compared: what we do not know does not speak against a driver."""
    found = _CONDITION.fullmatch(condition)
    if found is None:
        return True
    if found["name"] == "driver":
        return _compare(_numbers(driver), found["operator"], _numbers(found["value"]))
    if found["name"] == "cuda":
        return _compare(_cuda_of(driver), found["operator"], _numbers(found["value"]))
    return True


def _cuda_of(driver: str) -> tuple[int, ...]:
    """The newest CUDA that a driver's branch supports."""
    branch = _numbers(driver)[0]
    return next((cuda for cuda, first in _DRIVER_OF_CUDA if branch >= first), (0,))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)) or (0,)


def _compare(have: tuple[int, ...], operator: str, wanted: tuple[int, ...]) -> bool:
    width = max(len(have), len(wanted))
    left, right = (each + (0,) * (width - len(each)) for each in (have, wanted))
    return {
        ">=": left >= right,
        "<=": left <= right,
        "!=": left != right,
        "=": left == right,
        ">": left > right,
        "<": left < right,
    }[operator]
