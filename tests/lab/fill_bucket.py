"""Copy a folder to the lab's S3 server, file by file below a prefix, as a mirror of a model: run inside the lab.

`python -m tests.lab.fill_bucket FOLDER s3://bucket/prefix` makes the bucket as well.
"""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import boto3


def main() -> None:
    folder, url = Path(sys.argv[1]), urlsplit(sys.argv[2])
    client = boto3.client("s3")
    client.create_bucket(Bucket=url.netloc)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        key = "/".join([*url.path.strip("/").split("/"), path.relative_to(folder).as_posix()])
        client.put_object(Bucket=url.netloc, Key=key.lstrip("/"), Body=path.read_bytes())


if __name__ == "__main__":
    main()
