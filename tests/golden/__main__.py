"""`scripts/golden`: compare the golden files with what is made now; `--accept` writes them. See made.py."""

import difflib
import sys
from pathlib import Path

from tests.golden.made import FOLDER, made, on_disk


def main(argv: list[str]) -> int:
    """0 when all is equal (or was accepted), 1 when something differs, 2 for an unknown option."""
    if argv not in ([], ["--accept"]):
        print("usage: scripts/golden [--accept]", file=sys.stderr)
        return 2
    wanted, found = made(), on_disk()
    changed = sorted(path for path in {*wanted, *found} if wanted.get(path) != found.get(path))
    for path in changed:
        before, after = found.get(path, "").splitlines(), wanted.get(path, "").splitlines()
        print("\n".join(difflib.unified_diff(before, after, path, path, lineterm="")))
    if argv and changed:
        for path in changed:
            _write(FOLDER / path, wanted.get(path))
        print(f"accepted {len(changed)} files: each diff is a change of what users get, so read it", file=sys.stderr)
        return 0
    return 1 if changed else 0


def _write(path: Path, text: str | None) -> None:
    if text is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
