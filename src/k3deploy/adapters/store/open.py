"""From what a person types to a store: a folder, or s3://bucket/prefix."""

import re
from pathlib import Path

from k3deploy.adapters.store.directory import DirectoryStore
from k3deploy.contracts import Store
from k3deploy.domain.errors import UsageError
from k3deploy.domain.store_keys import check_key

# The rules for general purpose buckets; other S3 servers allow no more than these.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)


def open_store(url: str) -> Store:
    """Nothing is contacted or created yet. Raises UsageError for what is neither a folder nor s3://bucket[/prefix]."""
    scheme = _SCHEME.match(url)
    if scheme is None and url:
        return DirectoryStore(Path(url).expanduser())
    if scheme is None or scheme[1].lower() != "s3":
        raise UsageError(
            what=f"{url!r} is not a place to keep progress in",
            why="it is neither a folder nor an address that starts with s3://",
            fix="use --store FOLDER or --store s3://bucket/prefix (any S3 server: set AWS_ENDPOINT_URL)",
        )
    bucket, _, prefix = url[scheme.end() :].partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise UsageError(
            what=f"{bucket!r} cannot be the name of a bucket",
            why="a name has 3 to 63 lower-case letters, digits, dots and hyphens",
            fix="use --store s3://bucket/prefix",
        )
    try:
        if prefix:
            check_key(prefix)
    except ValueError as err:
        raise UsageError(
            what=f"{prefix!r} cannot be a prefix in the store",
            why="its parts may hold letters, digits, dots, hyphens and underscores, separated by single slashes",
            fix="use --store s3://bucket/prefix",
        ) from err
    from k3deploy.adapters.store.s3 import S3Store

    return S3Store(bucket, prefix)
