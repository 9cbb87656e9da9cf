"""Make room for what has to be fetched again: bad files are moved aside, never removed, and good ones are linked."""

from typing import Any

from k3deploy.remote.hub_cache import Wanted, wanted_files
from k3deploy.remote.plain_folder import PlainFolder
from k3deploy.remote.protocol import Refusal, Say
from k3deploy.remote.stamps import Stamps
from k3deploy.remote.tidy import remove_partials, tidy
from k3deploy.remote.weights_check import bad_paths, look
from k3deploy.remote.weights_place import place


def main(args: dict[str, Any], say: Say) -> dict[str, Any]:
    """`args`: those of `place`. Returns {"missing", "moved"}: paths. Raises Refusal."""
    repository = place(args)
    files = wanted_files(args["manifest"])
    try:
        if isinstance(repository, PlainFolder):
            missing, moved = _plain(repository, files)
        else:
            tidied = tidy(repository, files, Stamps(repository), resumes=False)
            missing, moved = [file.path for file in tidied.missing], tidied.quarantined
    except OSError as error:
        raise Refusal(
            "what is bad cannot be moved aside",
            why=str(error),
            fix="make the folder one that you may write to, then run the same command again",
            path=str(error.filename or repository.folder),
        ) from error
    return {"missing": missing, "moved": moved}


def _plain(folder: PlainFolder, files: list[Wanted]) -> tuple[list[str], list[str]]:
    found, faults = look(folder, files)
    wrong = {fault.path for fault in faults} | bad_paths(files, found, Stamps(folder))
    remove_partials(folder, set())
    moved = [file.path for file in files if file.path in wrong and folder.set_aside(file.path)]
    return [file.path for file in files if file.path in wrong], moved
