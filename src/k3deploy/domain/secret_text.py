"""Recognise text that looks like a secret, so that it is refused where it has no place and never shown."""

import re

# Forms that their issuers document: Hugging Face, AWS, OpenAI style, GitHub, Slack, and PEM private keys.
_FORMS = re.compile(
    r"hf_[A-Za-z0-9]{12,}|AKIA[0-9A-Z]{16}|\bsk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_NAMES = re.compile(
    r"(^|[-_])(token|secret|password|passwd|passphrase|credentials?|api[-_]?key|access[-_]key)$", re.IGNORECASE
)


def looks_secret(name: str, value: object) -> bool:
    """Whether a value, by its form or by the name it stands under, is a secret. Numbers and switches never are."""
    if not isinstance(value, str) or not value:
        return False
    return _FORMS.search(value) is not None or _NAMES.search(name) is not None


def without_secrets(text: str) -> str:
    """The text with everything that has a secret's form replaced by `***`."""
    return _FORMS.sub("***", text)
