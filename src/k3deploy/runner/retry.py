"""Which failures are worth another try, and how long to wait: decided by the error's class, never by its text."""

from dataclasses import dataclass

from k3deploy.domain.errors import K3Error


@dataclass(frozen=True)
class Retry:
    """Transient failures get `delays_s` more attempts. A unit probes again each time, so nothing is done twice."""

    delays_s: tuple[float, ...] = (2.0, 5.0)

    def delay_after(self, attempt: int, error: K3Error) -> float | None:
        """Seconds to wait after the given attempt (1 = first); None when the failure is final."""
        if not error.transient or attempt > len(self.delays_s):
            return None
        return self.delays_s[attempt - 1]
