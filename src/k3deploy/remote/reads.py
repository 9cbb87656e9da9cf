"""What this process has read so far, page cache included: the proof that a look costs no weights."""


def bytes_read() -> int:
    """From /proc/self/io."""
    with open("/proc/self/io", encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("rchar:")).split()[1])
