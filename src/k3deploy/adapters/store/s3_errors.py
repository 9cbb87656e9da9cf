"""What an S3 server's or botocore's error means for the person at the keyboard."""

import email.utils
import time
from typing import TYPE_CHECKING

from k3deploy.domain.errors import StoreError, StoreUnreachable

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

NO_BUCKET = "NoSuchBucket"
ABSENT = ("NoSuchKey", "404", "NotFound")
EXPIRED = ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired")

_WRONG_REGION = (
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
    "301",
    "307",
)
_WRONG_KEYS = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity")
_DENIED = ("AccessDenied", "AllAccessDisabled", "403", "Forbidden", "AccountProblem")
_UNSUPPORTED = ("NotImplemented", "XNotImplemented", "501")


def code_of(error: "ClientError") -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: "ClientError") -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def explain_answer(error: "ClientError", doing: str, where: str, bucket: str) -> StoreError:
    """The server answered with an error: `doing` is "read runs/x", `where` is s3://bucket/prefix."""
    code, context = code_of(error), {"store": where, "answer": f"{code_of(error)} ({status_of(error)})"}
    what = f"cannot {doing} in the store"
    if code == NO_BUCKET:
        return StoreError(
            what=f"there is no bucket {bucket}",
            why="its name is mistyped, it is on another server, or nobody has made it yet",
            fix=f"make it: aws s3 mb s3://{bucket} (another server: set AWS_ENDPOINT_URL)",
            context=context,
        )
    if code == "RequestTimeTooSkewed":
        return StoreError(
            what=f"this machine's clock is {_skew(error)} the store's",
            why="the server refuses signatures that are more than 15 minutes off",
            fix="set the clock (timedatectl set-ntp true), then run the same command again; nothing was changed",
            context=context,
        )
    if code in EXPIRED:
        return StoreError(
            what="the S3 credentials have expired",
            why="they were temporary, and reading them anew gave no newer ones",
            fix="renew them (aws sso login, or new AWS_* variables), then run the same command again",
            context=context,
        )
    if code in _WRONG_REGION:
        region = _region(error)
        return StoreError(
            what=f"bucket {bucket} is in another region" + (f": {region}" if region else ""),
            why="the request was signed for, or sent to, the wrong one",
            fix=f"export AWS_REGION={region}" if region else "set AWS_REGION to the bucket's region",
            context=context,
        )
    if code in _WRONG_KEYS:
        return StoreError(
            what="the store does not accept these S3 credentials",
            why=str(error.response.get("Error", {}).get("Message", "")),
            fix="check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
            context=context,
        )
    if code in _UNSUPPORTED:
        return StoreError(
            what=f"the store at {where} has no conditional writes",
            why="without them two operators could drive the same run and each undo the other's work",
            fix="use another store: a folder, or an S3 server that honours If-None-Match and If-Match",
            context=context,
        )
    if code in _DENIED or status_of(error) == 403:
        return StoreError(
            what=what + ": access denied",
            why="S3 answers so for a key that is absent too when listing is not allowed, so nothing is assumed",
            fix="allow s3:GetObject, s3:PutObject, s3:DeleteObject below the prefix and s3:ListBucket on the bucket",
            context=context,
        )
    return StoreError(
        what=what,
        why=f"the server answered {code}: {error.response.get('Error', {}).get('Message', '')}",
        fix="check the store's address and its server's log, then run the same command again",
        context=context,
    )


def explain_failure(error: Exception, doing: str, where: str) -> StoreError:
    """No answer at all: no credentials, no network, or settings that botocore cannot use."""
    from botocore import exceptions as botocore

    context = {"store": where}
    sso = (botocore.SSOError, botocore.TokenRetrievalError, botocore.UnauthorizedSSOTokenError)
    if isinstance(error, sso):
        return StoreError(
            what="the AWS session is over", why=str(error), fix="log in again: aws sso login", context=context
        )
    if isinstance(
        error, botocore.NoCredentialsError | botocore.PartialCredentialsError | botocore.CredentialRetrievalError
    ):
        return StoreError(
            what="there are no S3 credentials",
            why=str(error),
            fix="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or log in: aws sso login",
            context=context,
        )
    if isinstance(error, botocore.InvalidRegionError | botocore.NoRegionError):
        return StoreError(
            what="the S3 region is not usable",
            why=str(error),
            fix="export AWS_REGION=us-east-1 (or yours)",
            context=context,
        )
    if isinstance(error, botocore.ProfileNotFound):
        return StoreError(
            what="the AWS profile does not exist",
            why=str(error),
            fix="check AWS_PROFILE and ~/.aws/config",
            context=context,
        )
    if isinstance(error, botocore.HTTPClientError | botocore.ConnectionError):
        return StoreUnreachable(
            what=f"the store at {where} cannot be reached",
            why=str(error),
            fix="check the network and AWS_ENDPOINT_URL, then run the same command again",
            context=context,
        )
    return StoreError(
        what=f"cannot {doing} in the store",
        why=str(error),
        fix="check the AWS settings: aws configure list",
        context=context,
    )


def _skew(error: "ClientError") -> str:
    """How far the clock is off, by the answer's Date header: "16 min 40 s behind"."""
    date = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        ahead_s = round(time.time() - email.utils.parsedate_to_datetime(date).timestamp())
    except ValueError:
        return "too far from"
    minutes, seconds = divmod(abs(ahead_s), 60)
    return f"{minutes} min {seconds} s " + ("ahead of" if ahead_s > 0 else "behind")


def _region(error: "ClientError") -> str:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    details = dict(error.response.get("Error", {}))
    return str(headers.get("x-amz-bucket-region") or details.get("Region") or "")
