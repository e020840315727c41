"""Storage: short-lived credentials for one location, and the deletion of dropped managed tables.

The server's own keys come from where boto3 looks for them (`AWS_ACCESS_KEY_ID`, a profile, the instance's role) and are
used only for AssumeRole, with a session policy that limits the role to one prefix.
"""

import json
import logging
import shutil
import uuid
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ratify_lakehouse.embedded.catalog.api_errors import ApiError, NotSupportedError
from ratify_lakehouse.embedded.catalog.object_names import check_managed, file_path

_READ = ["s3:GetObject"]
_WRITE = ["s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials from STS; `expires_at` is in epoch milliseconds."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False)
    expires_at: int


@dataclass(frozen=True)
class S3:
    """The role to assume for S3, None where there is none; `endpoint` is that of S3 and STS outside of AWS.

    `credential_seconds` is the lifetime of vended credentials; AWS requires 900 or more.
    """

    role_arn: str | None = None
    endpoint: str | None = None
    region: str = "us-east-1"
    credential_seconds: int = 3600

    def vend(self, location: str, operation: str) -> Credentials | None:
        """Credentials to READ or READ_WRITE `location` only; None for file: storage, which needs none.

        Raises NotSupportedError when the server has no role or no boto3, ApiError when STS gives no credentials.
        """
        if location.startswith("file:"):
            return None
        if not self.role_arn:
            raise NotSupportedError(
                f"{location}: this server has no role for S3; name one by s3_role_arn (RATIFY_S3_ROLE_ARN)."
            )
        try:
            from botocore.exceptions import BotoCoreError, ClientError  # pyright: ignore[reportMissingTypeStubs]
        except ImportError:
            raise NotSupportedError("S3 needs boto3: pip install 'ratify-lakehouse[s3]'.") from None
        try:
            issued = _sts(self).assume_role(
                RoleArn=self.role_arn,
                RoleSessionName=f"ratify-{uuid.uuid4()}",
                Policy=json.dumps(session_policy(location, operation, self.role_arn.split(":")[1])),
                DurationSeconds=self.credential_seconds,
            )["Credentials"]
        except (BotoCoreError, ClientError) as error:
            _log.error("STS gave no credentials for %s: %s", location, error)
            raise ApiError(f"STS gave no credentials for {location}; see the log of the catalog server.") from error
        expires_at = int(issued["Expiration"].timestamp() * 1000)
        return Credentials(issued["AccessKeyId"], issued["SecretAccessKey"], issued["SessionToken"], expires_at)

    def delete_managed(self, location: str) -> bool:
        """Delete the files of a dropped managed table; False if some are left, for another attempt later."""
        try:
            check_managed(location)
            if location.startswith("file:"):
                return _delete_directory(location)
            self._delete_prefix(location)
        except Exception as error:  # noqa: BLE001 - the drop is committed: it must not fail now, nor may the server's start
            _log.warning("cannot delete %s yet, will try again: %s", location, error)
            return False
        return True

    def _delete_prefix(self, location: str) -> None:
        # With credentials for this prefix only, like any client: a bug here cannot delete anything else.
        client = _client(self, "s3", self.vend(location, "READ_WRITE"))
        bucket, _, key = location.removeprefix("s3://").partition("/")
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{key}/"):
            objects = [{"Key": item["Key"]} for item in page.get("Contents", [])]
            if objects:
                failed = client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True}).get("Errors", [])
                if failed:
                    raise OSError(f"{len(failed)} objects are left, the first for {failed[0].get('Code')}")


def session_policy(location: str, operation: str, partition: str) -> dict[str, Any]:
    """The IAM policy that limits a session to READ or READ_WRITE on one location; `partition` is AWS's, mostly `aws`.

    The key of the location itself is among the resources because S3A asks whether it is a file.
    """
    bucket, _, key = location.removeprefix("s3://").partition("/")
    objects = f"arn:{partition}:s3:::{bucket}/{key}"
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": _READ + (_WRITE if operation == "READ_WRITE" else []),
                "Resource": [objects, f"{objects}/*"],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket"],
                "Resource": [f"arn:{partition}:s3:::{bucket}"],
                "Condition": {"StringLike": {"s3:prefix": [f"{key}/*"]}},
            },
        ],
    }


def _delete_directory(location: str) -> bool:
    path = file_path(location)
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        # Never written, or another request deletes it at this moment: then that request, or the next, reports the result.
        return not path.exists()
    return True


@cache
def _sts(s3: S3) -> Any:
    return _client(s3, "sts")


def _client(s3: S3, service: str, credentials: Credentials | None = None) -> Any:
    import boto3  # pyright: ignore[reportMissingTypeStubs] it ships none
    from botocore.config import Config  # pyright: ignore[reportMissingTypeStubs]

    keys = {}
    if credentials:
        keys = {
            "aws_access_key_id": credentials.access_key_id,
            "aws_secret_access_key": credentials.secret_access_key,
            "aws_session_token": credentials.session_token,
        }
    # A request waits for it, and so does the start of the server: boto3's default timeouts are minutes.
    timeouts = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 3})
    # A session per client: boto3's default session is not thread-safe.
    session: Any = boto3.Session(region_name=s3.region, **keys)
    return session.client(service, endpoint_url=s3.endpoint, config=timeouts)
