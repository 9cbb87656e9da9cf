"""What /bin/sh executes equals what was built, for any arguments, environment and folder."""

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from k3deploy.domain.command import Command

# Any text that a process can be given: no NUL, and encodable.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
# PATH decides which program runs, LD_* how it is loaded.
FREE_NAMES = NAMES.filter(lambda name: name not in {"PATH", "_"} and not name.startswith("LD_"))


def executed(command: Command) -> list[str]:
    """What the program that /bin/sh started printed, NUL by NUL."""
    done = subprocess.run(["/bin/sh", "-c", command.line()], capture_output=True, check=True)
    return done.stdout.decode("utf-8").split("\0")[:-1]


@given(st.lists(TEXT, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_arguments_arrive_as_they_were_built(words: list[str]) -> None:
    # The format is used again for each argument.
    assert executed(Command(("printf", "%s\\0", *words))) == words


@given(st.dictionaries(FREE_NAMES, TEXT, max_size=4))
@settings(max_examples=60, deadline=None)
def test_the_environment_arrives_as_it_was_built(env: dict[str, str]) -> None:
    found = dict(entry.split("=", 1) for entry in executed(Command(("env", "-0"), env=env)))
    assert {name: found[name] for name in env} == env
    assert found["LC_ALL"] == env.get("LC_ALL", "C")


@given(TEXT.filter(lambda text: text not in ("", ".", "..") and "/" not in text and len(text.encode()) < 200))
@settings(max_examples=30, deadline=None)
def test_the_folder_may_have_any_name(name: str) -> None:
    # A folder that is not there is refused by the program that changes into it, under the very name.
    line = Command(("true",), cwd=f"/nonexistent/{name}").line()
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False)
    assert done.returncode == 125
