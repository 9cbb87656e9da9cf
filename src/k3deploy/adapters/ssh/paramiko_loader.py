"""Load paramiko without its optional `invoke`, which would double the time that this takes (about 100 ms of CPU).

paramiko 5.1 uses invoke for one thing, `Match exec` in its own parser of ssh_config, and says that it may be absent.
"""

import logging
import sys
import threading

_lock = threading.Lock()


def load() -> None:
    """Import paramiko, once. To be called before any module that imports it at its top."""
    with _lock:
        if "paramiko" in sys.modules:
            return
        hides_invoke = "invoke" not in sys.modules
        if hides_invoke:
            sys.modules["invoke"] = None  # type: ignore[assignment]  # documented: makes `import invoke` fail
        try:
            import paramiko  # noqa: F401
        finally:
            if hides_invoke:
                del sys.modules["invoke"]
        # Its failures are told once, by us; without a handler Python would print them to stderr as well.
        logging.getLogger("paramiko").addHandler(logging.NullHandler())
