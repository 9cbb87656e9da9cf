"""A store in S3, or in any server that speaks like it and honours conditional writes."""

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from k3deploy.adapters.store import s3_errors
from k3deploy.contracts import Stored
from k3deploy.domain.errors import StoreConflict, StoreError
from k3deploy.domain.store_keys import check_key

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUSY_TRIES = 5
FIRST_DELAY_S = 0.05

Answer = TypeVar("Answer")


class S3Store:
    """Implements `contracts.Store`. Nothing is contacted before the first call; boto3 is not even loaded.

    The tag is the object's ETag, which follows the content: a value that was changed and changed back has its old
    tag again. What must not be confused carries a counter in its content.
    """

    def __init__(
        self, bucket: str, prefix: str = "", *, make_client: "Callable[[str], S3Client] | None" = None
    ) -> None:
        self._bucket = bucket
        self._start = f"{prefix}/" if prefix else ""
        self._make_client = make_client
        self._client: S3Client | None = None
        self._lock = threading.Lock()

    def get(self, key: str) -> Stored | None:
        name = self._name(key)

        def read(client: "S3Client") -> Stored:
            answer = client.get_object(Bucket=self._bucket, Key=name)
            with answer["Body"] as body:
                return Stored(body.read(), _bare(answer["ETag"]))

        return self._ask(f"read {key}", read, absent=lambda: None)

    def put(self, key: str, data: bytes) -> str:
        name = self._name(key)
        return self._ask(
            f"write {key}", lambda client: _bare(client.put_object(Bucket=self._bucket, Key=name, Body=data)["ETag"])
        )

    def put_if_absent(self, key: str, data: bytes) -> str:
        name = self._name(key)
        return self._write_once(
            key,
            data,
            lambda client: _bare(
                client.put_object(Bucket=self._bucket, Key=name, Body=data, IfNoneMatch="*")["ETag"],
            ),
            "it exists already",
        )

    def put_if_match(self, key: str, data: bytes, tag: str) -> str:
        # Without quotes, which radosgw insists on and the others accept.
        name = self._name(key)
        return self._write_once(
            key,
            data,
            lambda client: _bare(
                client.put_object(Bucket=self._bucket, Key=name, Body=data, IfMatch=_bare(tag))["ETag"]
            ),
            "it is gone, or has changed since it was read",
        )

    def list(self, prefix: str) -> Sequence[str]:
        def read(client: "S3Client") -> list[str]:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._start + prefix)
            return [entry["Key"].removeprefix(self._start) for page in pages for entry in page.get("Contents", ())]

        return sorted(self._ask(f"list {prefix}", read))

    def delete(self, key: str) -> None:
        name = self._name(key)
        self._ask(f"delete {key}", lambda client: client.delete_object(Bucket=self._bucket, Key=name))

    def describe(self) -> str:
        return f"s3://{self._bucket}/{self._start}".rstrip("/")

    def _name(self, key: str) -> str:
        check_key(key)
        return self._start + key

    def _connected(self) -> "S3Client":
        with self._lock:
            if self._client is None:
                from k3deploy.adapters.store.s3_client import make_client

                self._client = (self._make_client or make_client)(self._bucket)
            return self._client

    def _forget(self, client: "S3Client") -> None:
        """The next call reads the credentials anew."""
        with self._lock:
            if self._client is client:
                self._client = None

    def _ask(
        self,
        doing: str,
        request: "Callable[[S3Client], Answer]",
        *,
        absent: Callable[[], Answer] | None = None,
        passes: tuple[int, ...] = (),
    ) -> Answer:
        """Translate what goes wrong, except for the statuses in `passes`. Expired credentials are read anew, once."""
        from botocore.exceptions import BotoCoreError, ClientError

        for is_last in (False, True):
            client: S3Client | None = None
            try:
                client = self._connected()
                return request(client)
            except ClientError as err:
                code = s3_errors.code_of(err)
                if absent is not None and code in s3_errors.ABSENT:
                    return absent()
                if s3_errors.status_of(err) in passes and code != s3_errors.NO_BUCKET:
                    raise
                if code in s3_errors.EXPIRED and client is not None and not is_last:
                    self._forget(client)
                    continue
                raise s3_errors.explain_answer(err, doing, self.describe(), self._bucket) from err
            except BotoCoreError as err:
                raise s3_errors.explain_failure(err, doing, self.describe()) from err
        raise AssertionError("the last round returns or raises")

    def _write_once(self, key: str, data: bytes, write: "Callable[[S3Client], str]", why: str) -> str:
        """A conditional write: 412 is a conflict, and so is 404, as Amazon answers If-Match for an absent key.

        409 says that another write is under way: that is decided by trying again.
        """
        from botocore.exceptions import ClientError

        for attempt in range(1, BUSY_TRIES + 1):
            try:
                return self._ask(f"write {key}", write, passes=(404, 409, 412))
            except ClientError as err:
                if s3_errors.status_of(err) != 409:
                    # botocore repeats a request whose answer got lost: then this is the answer to our own write.
                    own = self.get(key) if err.response["ResponseMetadata"].get("RetryAttempts") else None
                    if own is not None and own.data == data:
                        return own.tag
                    raise self._conflict(key, why) from err
                if attempt == BUSY_TRIES:
                    raise StoreError(
                        what=f"{key} was not written to {self.describe()}",
                        why=f"the server said {BUSY_TRIES} times that another write to it was under way",
                        fix="run the same command again",
                        context={"key": key},
                    ) from err
                time.sleep(FIRST_DELAY_S * 2**attempt * random.random())  # noqa: S311 - no secret
        raise AssertionError("the last attempt returns or raises")

    def _conflict(self, key: str, why: str) -> StoreConflict:
        return StoreConflict(
            what=f"{key} was not written to {self.describe()}",
            why=why,
            fix="somebody else is writing this run; look who: k3deploy status",
            context={"key": key},
        )


def _bare(tag: str) -> str:
    return tag.strip('"')
