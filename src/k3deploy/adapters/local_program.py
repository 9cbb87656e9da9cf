"""Programs that run on nodes, run here: on this machine's own files, in this process."""

import importlib
from collections.abc import Mapping
from typing import Any

from k3deploy.contracts import Progress
from k3deploy.domain.command import Program
from k3deploy.domain.errors import ProgramFailed
from k3deploy.remote.protocol import Refusal


class LocalPrograms:
    """Implements `flows.verify_local.Programs`. What `progress` raises ends the program."""

    def call(self, program: Program, progress: Progress) -> Mapping[str, Any]:
        """See there."""

        def say(word: Mapping[str, Any]) -> None:
            progress(word["message"], done=word.get("done"), total=word.get("total"))

        main = importlib.import_module(f"k3deploy.remote.{program.entry}").main
        try:
            result: Mapping[str, Any] = main(dict(program.args), say)
        except Refusal as refusal:
            raise ProgramFailed(
                what=refusal.what, why=refusal.why, fix=refusal.fix, context=refusal.context
            ) from refusal
        return result
