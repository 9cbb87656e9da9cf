"""Progress for people, on stderr: one line per change, and in a terminal a live block of what is running now."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TextIO

from k3deploy.domain import events as ev
from k3deploy.domain.fetch_view import ALL, block, node_line, total_line
from k3deploy.domain.run_state import RunState, Unit, apply
from k3deploy.domain.transfer import Total, Transfer
from k3deploy.domain.units import bytes_text, clock_text, duration_text, usd_text

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

# In a log, a unit that only counts on says so once in this time; anything new is said at once.
_QUIET_S = 10.0


class Console(Protocol):
    """An EventSink that must be closed, so that the terminal is left as it was. `state` is what it shows."""

    @property
    def state(self) -> RunState: ...

    def emit(self, event: ev.Event) -> None: ...

    def close(self) -> None: ...


def open_console(stream: TextIO = sys.stderr) -> Console:
    """A live view for a terminal, plain lines for everything else."""
    return LiveConsole(stream) if stream.isatty() else PlainConsole(lambda line: _write(stream, line))


def _write(stream: TextIO, line: str) -> None:
    stream.write(line + "\n")
    stream.flush()


@dataclass
class PlainConsole:
    """One line per change. `write` gets complete lines without a newline."""

    write: Callable[[str], None]
    _state: RunState = field(default_factory=RunState)
    _last: dict[tuple[str, str], tuple[float, str]] = field(default_factory=dict)

    def emit(self, event: ev.Event) -> None:
        apply(self._state, event)
        for text in self._lines(event):
            self.write(text)

    def close(self) -> None:
        """Nothing to put back."""

    @property
    def state(self) -> RunState:
        return self._state

    def _lines(self, event: ev.Event) -> list[str]:
        match event:
            case ev.RunStarted():
                price = "" if event.usd_per_hour is None else f", {usd_text(event.usd_per_hour)}/h"
                count = f"{len(event.nodes)} node{'s' if len(event.nodes) != 1 else ''}"
                return [self.line(event.at, "run", event.flow, f"profile {event.profile} on {count}{price}")]
            case ev.StepStarted():
                return [self.line(event.at, event.target, event.phase, event.step + " ...")]
            case ev.Progressed() if self._is_news(event):
                return self._progress_lines(event)
            case ev.Retried():
                text = f"failed ({event.reason}); again in {event.delay_s:.0f} s"
                return [self.line(event.at, event.target, event.phase, text)]
            case ev.Verified() if event.has_changed:
                text = f"ok: {event.summary} ({duration_text(event.duration_s)})"
                return [self.line(event.at, event.target, event.phase, text)]
            case ev.TargetFailed():
                return [self.line(event.at, event.target, event.phase, f"FAILED: {event.error.get('what', '')}")]
            case _:
                return []

    def _progress_lines(self, event: ev.Progressed) -> list[str]:
        transfer = Transfer.of(self._state.unit(event.phase, event.target))
        if transfer is None:
            return [self.line(event.at, event.target, event.phase, _amount(event) or event.message)]
        lines = [self.line(event.at, event.target, event.phase, node_line(transfer))]
        total = Total.of(self._state.phase(event.phase), event.phase)
        text = total_line(total) if total is not None else ""
        self._last.setdefault((event.phase, ALL), (event.at, ""))  # the first words come from one node after the other
        if text and self._is_due((event.phase, ALL), "", event.at, _QUIET_S):
            lines.append(self.line(event.at, ALL, event.phase, text))
        return lines

    def _is_news(self, event: ev.Progressed) -> bool:
        key = (event.phase, event.target)
        if event.total is None:
            return self._is_due(key, event.message, event.at, float("inf"))
        return self._is_due(key, event.message.rstrip("0123456789.% "), event.at, _QUIET_S)

    def _is_due(self, key: tuple[str, str], kind: str, at: float, quiet_s: float) -> bool:
        """Whether this kind of word is new, or was last said `quiet_s` ago. Then it counts as said now."""
        said_at, said = self._last.get(key, (at, None))
        if kind == said and at - said_at < quiet_s:
            return False
        self._last[key] = (at, kind)
        return True

    def line(self, at: float, target: str, phase: str, text: str) -> str:
        elapsed = clock_text(at - (self._state.flow_started_at or at))
        return f"{elapsed}  {target:<10} {phase:<15} {text}"


def _amount(event: ev.Progressed) -> str:
    """`message  12.3 of 400.0 MB (3 %)` where the action counts bytes, else nothing."""
    if event.total is None or event.done is None or event.total <= 0:
        return ""
    share = 100 * event.done / event.total
    return f"{event.message}: {bytes_text(event.done)} of {bytes_text(event.total)} ({share:.0f} %)"


class LiveConsole:
    """What is done scrolls by, above a block with one line for each unit at work."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live: Live | None = None
        self._plain = PlainConsole(self._print)

    @property
    def state(self) -> RunState:
        return self._plain.state

    def emit(self, event: ev.Event) -> None:
        if isinstance(event, ev.Progressed | ev.StepStarted):
            if isinstance(event, ev.Progressed) and self._is_remark(event):
                self._print(self._plain.line(event.at, event.target, event.phase, event.message))
            apply(self._plain.state, event)  # the block shows these
        else:
            self._plain.emit(event)
        if isinstance(event, ev.StepStarted) and self._live is None:
            self._start()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _is_remark(self, event: ev.Progressed) -> bool:
        """Whether a transfer has something to say (a stall, a limit of the Hub): the block has room for its figures."""
        unit = self._plain.state.unit(event.phase, event.target)
        return Transfer.of(unit) is not None and unit.message != event.message

    def _start(self) -> None:
        # Imported when there is something to draw: a run with nothing to do does not pay for it.
        from rich.console import Console as RichConsole
        from rich.live import Live

        console = RichConsole(file=self._stream, highlight=False, soft_wrap=False)
        self._live = Live(get_renderable=self._block, console=console, refresh_per_second=4, transient=True)
        self._live.start()

    def _print(self, line: str) -> None:
        if self._live is not None:
            self._live.console.print(line, markup=False, soft_wrap=True)
        else:
            _write(self._stream, line)

    def _block(self) -> "Text":
        from rich.text import Text

        units = list(self._plain.state.units.values())
        # Between two frames the block may be asked for once more when its end has come.
        width, height = self._live.console.size if self._live is not None else (80, 24)
        others = [unit for unit in units if unit.status == "running" and unit.step and Transfer.of(unit) is None]
        rows = [*block(units, width), *map(_row, others)]
        room = max(4, height // 2)
        if len(rows) > room:
            rows[room - 1 :] = [f"  and {len(rows) - room + 1} more at work"]
        return Text("\n".join(rows), no_wrap=True, overflow="ellipsis")


def _row(unit: Unit) -> str:
    bar = ""
    if unit.total and unit.done is not None:
        share = min(1.0, unit.done / unit.total)
        bar = f"{'#' * round(20 * share):<20} {100 * share:3.0f} %  "
    return f"  {unit.target:<10} {unit.phase:<15} {bar}{unit.message}"
