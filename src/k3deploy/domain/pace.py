"""How fast something that counts goes now, from the moments at which it said how far it is."""

from dataclasses import dataclass
from typing import Final

# Long enough that one shard's end or one late word does not move it, short enough to show a link that slows down.
WINDOW_S: Final = 15.0
# Two words that came right after each other say nothing about a rate.
SHORTEST_S: Final = 2.0


@dataclass(frozen=True)
class Pace:
    """`samples`: (seconds, amount) of about the last WINDOW_S, oldest first."""

    samples: tuple[tuple[float, float], ...] = ()

    def then(self, at: float, amount: float) -> "Pace":
        """With one more. An amount below the last one is a new beginning: a killed transfer lost what it had."""
        kept = self.samples if self.samples and amount >= self.samples[-1][1] else ()
        return Pace((*(sample for sample in kept if at - sample[0] <= WINDOW_S), (at, amount)))

    @property
    def per_s(self) -> float | None:
        """None while too little is known."""
        if not self.samples:
            return None
        (begun_at, begun), (ended_at, ended) = self.samples[0], self.samples[-1]
        return (ended - begun) / (ended_at - begun_at) if ended_at - begun_at >= SHORTEST_S else None
