"""What would make an old result worthless, as one short text: equal inputs, equal digest."""

import hashlib
import json
from typing import Any

from k3deploy.domain.names import InputsDigest


def digest_of(**inputs: Any) -> InputsDigest:
    """Digest of plain JSON values by name. The order of names and keys does not matter; a new name changes it.

    Raises TypeError for a value that JSON can't carry: its text could differ from run to run.
    """
    text = json.dumps(inputs, sort_keys=True, separators=(",", ":"))
    return InputsDigest(hashlib.sha256(text.encode()).hexdigest()[:32])
