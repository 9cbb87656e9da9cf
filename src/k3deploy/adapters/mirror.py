"""Mirrors of the Hub that nodes may fetch weights from. What is right is still said by the Hub's own list of files."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from k3deploy.contracts import Mirror
from k3deploy.domain.command import Secret
from k3deploy.domain.errors import HubError, StoreError
from k3deploy.domain.supply import Supply
from k3deploy.domain.weights import Manifest

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Long enough for 1.56 TB at 50 MB/s; a signature lives for seven days at most.
SIGNED_FOR_S = 12 * 3600


def open_mirror(url: str | None) -> Mirror | None:
    """The mirror of a profile's `weights.mirror`; None where there is none."""
    if url is None:
        return None
    return BucketMirror(url) if url.startswith("s3://") else HubMirror(url)


class HubMirror:
    """A server that speaks as the Hub does. The operator's token is for the Hub, so it is not sent there."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def supply(self, manifest: Manifest) -> Supply:  # noqa: ARG002 - the client itself asks for what it needs
        """See the contract."""
        return Supply(environment={"HF_ENDPOINT": self._url})


class BucketMirror:
    """An S3 bucket with a repository's files below a prefix, which may name {repo} and {commit}.

    The operator's machine has the credentials; nodes get an address for each file, signed for some hours.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url, self._bucket, self._prefix = url, parts.netloc, parts.path.strip("/")

    def supply(self, manifest: Manifest) -> Supply:
        """See the contract. Raises HubError when a file is missing there, or has another size."""
        from botocore.exceptions import BotoCoreError, ClientError

        from k3deploy.adapters.store.s3_client import make_client

        prefix = self._prefix.replace("{repo}", manifest.repo).replace("{commit}", manifest.commit)
        place = f"{prefix}/" if prefix else ""
        try:
            client = make_client(self._bucket)
            sizes = _sizes(client, self._bucket, place)
            urls = {file.path: _signed(client, self._bucket, place + file.path) for file in manifest.files}
        except (BotoCoreError, ClientError, StoreError) as err:
            raise self._unusable(str(err)) from err
        self._check(manifest, place, sizes)
        return Supply(origin="urls", secrets={"urls": Secret(json.dumps(urls))})

    def _check(self, manifest: Manifest, place: str, sizes: Mapping[str, int]) -> None:
        """A mirror that lacks a file is found out now, not when the other 95 have been fetched."""
        wrong = [file for file in manifest.files if sizes.get(place + file.path) != file.size_bytes]
        if wrong:
            found = sizes.get(place + wrong[0].path)
            raise HubError(
                what=f"the mirror {self._url} is not complete: {len(wrong)} of {len(manifest.files)} files",
                why=f"first {wrong[0].path}: {'absent' if found is None else f'{found} bytes'}, "
                f"wanted {wrong[0].size_bytes} bytes",
                fix=f"copy {manifest.repo} at {manifest.commit} there, or use weights.strategy auto without a mirror",
                context={"found": f"s3://{self._bucket}/{place}", "repo": manifest.repo},
            )

    def _unusable(self, why: str) -> HubError:
        return HubError(
            what=f"the mirror {self._url} cannot be used",
            why=why,
            fix="check the bucket's name and your AWS settings (AWS_PROFILE, AWS_ENDPOINT_URL, AWS_REGION)",
            context={"found": self._url},
        )


def _sizes(client: "S3Client", bucket: str, prefix: str) -> dict[str, int]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return {each["Key"]: each["Size"] for page in pages for each in page.get("Contents", ())}


def _signed(client: "S3Client", bucket: str, key: str) -> str:
    return client.generate_presigned_url("get_object", {"Bucket": bucket, "Key": key}, ExpiresIn=SIGNED_FOR_S)
