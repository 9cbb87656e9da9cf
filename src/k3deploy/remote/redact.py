"""Take secrets out of text before it leaves the node: what an engine or a tool prints may hold somebody's key."""

import re

_SECRET = "***"
# Forms that their issuers document: Hugging Face, AWS, OpenAI style, GitHub, Slack.
_FORMS = re.compile(
    r"hf_[A-Za-z0-9]{12,}|AKIA[0-9A-Z]{16}|\bsk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}"
)
# SGLang prints all its options at its start, the API key among them: api_key='...', --api-key ..., Bearer ...
_NAMED = re.compile(
    r"((?:api[-_]?key|token|secret|password|passwd)[\"']?\s*[:=]\s*[\"']?|--[\w-]*api-key[ =]|\bBearer )"
    r"([^\s\"',)]{6,})",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """The text with every secret replaced by `***`. A number or None after `token=` is no secret."""
    return _NAMED.sub(_named, _FORMS.sub(_SECRET, text))


def _named(match: "re.Match[str]") -> str:
    value = match.group(2)
    is_plain = value.replace(".", "").replace("-", "").isdigit() or value in ("***", "Number", "False")
    return match.group(0) if is_plain else match.group(1) + _SECRET
