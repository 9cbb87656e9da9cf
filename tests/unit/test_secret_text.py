"""What is a secret by its form is one on both sides: where a person wrote it, and in what a node prints."""

import pytest

from k3deploy.domain.secret_text import looks_secret, without_secrets
from k3deploy.remote.redact import redact

# One made-up value for each form that an issuer documents.
FORMS = (
    "hf_abcdefghijklmnopqrst",
    "AKIAABCDEFGHIJKLMNOP",
    "sk-abcdefghijklmnop1234",
    "ghp_abcdefghijklmnopqrstuvwx",
    "gho_abcdefghijklmnopqrstuvwx",
    "xoxb-123456789012-abc",
)


@pytest.mark.parametrize("value", FORMS)
def test_both_sides_know_the_same_forms(value: str) -> None:
    assert looks_secret("note", value)
    assert without_secrets(f"a {value} b") == "a *** b"
    assert redact(f"a {value} b") == "a *** b"


@pytest.mark.parametrize("name", ["token", "HF_TOKEN", "api-key", "api_key", "db-password", "secret", "access_key"])
def test_a_text_is_a_secret_under_a_secrets_name(name: str) -> None:
    assert looks_secret(name, "anything")


@pytest.mark.parametrize(
    ("name", "value"), [("tokenizer", "auto"), ("max-tokens", "512"), ("api_key", ""), ("token", 5), ("key_file", "x")]
)
def test_what_only_resembles_one_is_none(name: str, value: object) -> None:
    assert not looks_secret(name, value)
