"""What the tracker says, taken apart: numbers and names only, whatever came over the wire."""

import json
from typing import NamedTuple


class Answer(NamedTuple):
    """`leases`: files to fetch from the origin; `holders`: who gives which file; `revoked`: leases to let go of.

    `hub_bytes`: what all nodes took from the origin; `bounds_s`: by strategy, empty until every link is known.
    """

    leases: list[int]
    holders: dict[int, list[str]]
    revoked: list[int]
    hub_bytes: int
    bounds_s: dict[str, float]


def parse_answer(text: bytes) -> Answer:
    """Raises ValueError for anything that is not an answer."""
    try:
        body = json.loads(text)
        return Answer(
            leases=[int(index) for index in body["leases"]],
            holders={int(index): [str(name) for name in names] for index, names in body["holders"].items()},
            revoked=[int(index) for index in body["revoked"]],
            hub_bytes=int(body["hub_bytes"]),
            bounds_s={str(name): float(bound_s) for name, bound_s in (body["bounds_s"] or {}).items()},
        )
    except (KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"no answer of a tracker: {error!r}") from error
