"""The end of a fetch: what is there now is looked at once more, and named, where every byte of it was proved already.

So after a fetch from nothing there is nothing left to hash or to write, and the launch need not wait for another job.
"""

from k3deploy.remote.hub_cache import Repository, Wanted
from k3deploy.remote.protocol import Refusal
from k3deploy.remote.stamps import Stamps
from k3deploy.remote.weights_check import look, structure_faults
from k3deploy.remote.weights_ref import name_commit


def settle(repository: Repository, files: list[Wanted], stamps: Stamps) -> bool:
    """Whether all of it is proved now: digests, and how the files go together. Then its name means this commit too.

    Files that were there before are not hashed here; headers that do not fit are for the proof to explain.
    Raises Refusal for a file that is not right after all.
    """
    found, faults = look(repository, files)
    if faults:
        raise Refusal(
            f"{faults[0].path} is not right after the fetch",
            why=f"found {faults[0].found}, wanted {faults[0].wanted}",
            fix="run the same command again: only this file is fetched anew",
            path=faults[0].path,
            kind="hub",
        )
    if any(stamps.digest_of(file, found[file.path]) != file.digest for file in files):
        return False
    if not stamps.is_structure_proved(found):
        if structure_faults(files, found):
            return False
        stamps.put_structure(found)
        stamps.save()
    name_commit(repository)
    return True
