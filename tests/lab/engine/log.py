"""Log lines in the form the real engine writes: `[YYYY-mm-dd HH:MM:SS TPn EPn] text`, all on stderr."""

import sys
import threading
import time

_lock = threading.Lock()


def line(text: str, tag: str = "") -> None:
    """One log record; `tag` is the rank part of the prefix, empty for the main process."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    prefix = f"[{stamp} {tag}]" if tag else f"[{stamp}]"
    raw(f"{prefix} {text}\n")


def raw(text: str) -> None:
    """Text as it is: progress bars with carriage returns, tracebacks."""
    with _lock:
        sys.stderr.write(text)
        sys.stderr.flush()


def bar(desc: str, done: int, total: int, elapsed_s: float) -> str:
    """One state of a tqdm bar with the engine's bar format, ready to follow a carriage return."""
    rate = done / elapsed_s if elapsed_s > 0 and done else 0.0
    remaining = _clock((total - done) / rate) if rate else "?"
    speed = f"{rate:.2f}it/s" if rate else "?it/s"
    percent = 100 * done // total if total else 100
    times = f"[{_clock(elapsed_s)}<{remaining}, {speed}]"
    return f"\r{desc}: {percent:3d}% Completed | {done}/{total} {times}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes:02d}:{rest:02d}"
