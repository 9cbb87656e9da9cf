"""Make the S3 client: as the operator's AWS settings say, with what other S3 servers need when one is named.

Those settings are boto3's own: AWS_ENDPOINT_URL, AWS_REGION, AWS_PROFILE, the files in ~/.aws, instance roles.
"""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from k3deploy.domain.errors import StoreError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30
ATTEMPTS = 4
CONNECTIONS = 32  # threads that may use the store at the same time


def make_client(bucket: str) -> "S3Client":
    """Raises StoreError for an endpoint that names the bucket; botocore's errors for settings it cannot use."""
    import boto3
    from botocore.config import Config

    common: dict[str, Any] = {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        "max_pool_connections": CONNECTIONS,
        "retries": {"mode": "standard", "total_max_attempts": ATTEMPTS},
    }
    session = boto3.session.Session()
    client = session.client("s3", config=Config(**common))
    endpoint = urlsplit(client.meta.endpoint_url)
    if is_amazon(endpoint.hostname or ""):
        return client
    _check_endpoint(client.meta.endpoint_url, bucket)
    client.close()
    # Since 1.36 boto3 adds CRC checksums to every request, which many other servers refuse (boto/boto3#4392), and
    # it puts the bucket into the host name, which needs wildcard DNS that few of them have.
    others = Config(
        **common,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={"addressing_style": _configured_style(session) or "path"},
    )
    return session.client("s3", config=others)


def is_amazon(host: str) -> bool:
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def _configured_style(session: Any) -> Any:
    """`s3 = addressing_style` of the profile in ~/.aws/config."""
    scoped = session._session.get_scoped_config()  # noqa: SLF001 - boto3 has no other way to its own configuration
    settings = scoped.get("s3")
    return settings.get("addressing_style") if isinstance(settings, dict) else None


def _check_endpoint(url: str, bucket: str) -> None:
    parts = urlsplit(url)
    names_bucket = (parts.hostname or "").startswith(bucket + ".") or parts.path.strip("/").split("/")[0] == bucket
    if names_bucket:
        raise StoreError(
            what=f"the S3 endpoint {url} contains the bucket's name",
            why="the bucket is added to it, so it would be there twice",
            fix="give the bare endpoint in AWS_ENDPOINT_URL: the server's own address",
            context={"found": url, "bucket": bucket},
        )
