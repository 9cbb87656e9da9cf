"""Hugging Face as the operator's machine sees it."""
