"""Numbers as people read them. Formatting only: arithmetic keeps bytes and seconds."""


def bytes_text(size_bytes: float) -> str:
    """Decimal units, as disks and the Hub count: 1_560_936_091_448 -> "1560.94 GB"."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes:.0f} B"


def about_text(size_bytes: float) -> str:
    """To one decimal: 1_560_936_091_448 -> "1.6 TB"."""
    factor, unit = _scale(size_bytes)
    return f"{size_bytes / factor:.1f} {unit}"


def rate_text(bytes_per_s: float) -> str:
    """12_300_000_000 -> "12.3 GB/s"."""
    return f"{about_text(bytes_per_s)}/s"


def part_text(done_bytes: float, total_bytes: float) -> str:
    """Both in the unit of the total: "1.2 of 6.2 TB"."""
    factor, unit = _scale(total_bytes)
    return f"{done_bytes / factor:.1f} of {total_bytes / factor:.1f} {unit}"


def _scale(size_bytes: float) -> tuple[float, str]:
    scales = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((scale for scale in scales if size_bytes >= scale[0]), (1.0, "B"))


def duration_text(seconds: float) -> str:
    """8 -> "8 s", 75 -> "1 min 15 s", 4000 -> "1 h 07 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def clock_text(seconds: float) -> str:
    """Elapsed time at the head of a progress line: "03:07", "1:03:07"."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def countdown_text(seconds: float) -> str:
    """Time that is left, or that something takes: "4:10", "0:07", "1:03:07"."""
    return clock_text(round(seconds)).removeprefix("0")


def usd_text(usd: float) -> str:
    return f"${usd:,.2f}"
