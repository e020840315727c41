"""Every error that the server answers with, and its two shapes on the wire.

The `delta/v1` API answers `{"error": {"message", "type", "code"}}` (DeltaErrorResponse in unity-catalog-delta-v1.yaml);
the 2.1 API answers `{"error_code", "message", "details"}`, which is also what databricks-sdk parses.
"""

from typing import Any, ClassVar


class ApiError(Exception):
    """An answer other than success. `message` goes to the client, so it names things, and never internals."""

    status: ClassVar[int] = 500
    delta_type: ClassVar[str] = "InternalServerErrorException"
    error_code: str = "INTERNAL"

    def __init__(self, message: str, *, error_code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if error_code is not None:
            self.error_code = error_code


class InvalidRequestError(ApiError):
    """The request cannot be understood: not JSON, a wrong type, a missing field, an unknown action."""

    status = 400
    delta_type = "BadRequestException"
    error_code = "INVALID_ARGUMENT"


class InvalidParameterError(ApiError):
    """The request is understood, and breaks a rule of the API or of the managed-table contract."""

    status = 400
    delta_type = "InvalidParameterValueException"
    error_code = "INVALID_ARGUMENT"


class UnsupportedTableFormatError(ApiError):
    """The table exists, and cannot be served as a Delta table."""

    status = 400
    delta_type = "UnsupportedTableFormatException"
    error_code = "INVALID_ARGUMENT"


class FailedPreconditionError(ApiError):
    """The request is right, and the state of the catalog forbids it (a schema that still has tables)."""

    status = 400
    delta_type = "BadRequestException"
    error_code = "FAILED_PRECONDITION"


class NotAuthorizedError(ApiError):
    """No bearer token, or one that is wrong, expired or revoked."""

    status = 401
    delta_type = "NotAuthorizedException"
    error_code = "UNAUTHENTICATED"


class PermissionDeniedError(ApiError):
    """The principal lacks a privilege: see `access`."""

    status = 403
    delta_type = "PermissionDeniedException"
    error_code = "PERMISSION_DENIED"


class NoSuchPathError(ApiError):
    """The API has no such path."""

    status = 404
    delta_type = "NotFoundException"
    error_code = "NOT_FOUND"


class NoSuchCatalogError(ApiError):
    """No catalog of that name."""

    status = 404
    delta_type = "NoSuchCatalogException"
    error_code = "CATALOG_NOT_FOUND"


class NoSuchSchemaError(ApiError):
    """No schema of that name, or no catalog to hold it."""

    status = 404
    delta_type = "NoSuchSchemaException"
    error_code = "SCHEMA_NOT_FOUND"


class NoSuchTableError(ApiError):
    """No table, or no staging table, of that name, id or location."""

    status = 404
    delta_type = "NoSuchTableException"
    error_code = "TABLE_NOT_FOUND"


class NoSuchPrincipalError(ApiError):
    """No principal, or credential of one, of that name or id."""

    status = 404
    delta_type = "NotFoundException"
    error_code = "NOT_FOUND"


class MethodNotAllowedError(ApiError):
    """The path exists, for other methods."""

    status = 405
    delta_type = "BadRequestException"
    error_code = "METHOD_NOT_ALLOWED"


class AlreadyExistsError(ApiError):
    """The name is taken."""

    status = 409
    delta_type = "AlreadyExistsException"
    error_code = "ALREADY_EXISTS"


class CommitVersionConflictError(ApiError):
    """Another writer's commit was ratified first: reload, rebuild, propose the next version."""

    status = 409
    delta_type = "CommitVersionConflictException"
    error_code = "ABORTED"


class UpdateRequirementConflictError(ApiError):
    """An assert-etag or assert-table-uuid requirement does not hold: reload and retry."""

    status = 409
    delta_type = "UpdateRequirementConflictException"
    error_code = "ABORTED"


class BodyTooLargeError(ApiError):
    """The request body is over the limit."""

    status = 413
    delta_type = "BadRequestException"
    error_code = "INVALID_ARGUMENT"


class ResourceExhaustedError(ApiError):
    """Too many ratified commits wait to be published."""

    status = 429
    delta_type = "ResourceExhaustedException"
    error_code = "RESOURCE_EXHAUSTED"


class NotSupportedError(ApiError):
    """A part of the published API that this server does not implement."""

    status = 501
    delta_type = "NotImplementedException"
    error_code = "UNIMPLEMENTED"


def error_body(error: ApiError, path: str) -> dict[str, Any]:
    """The JSON answer for `error`, in the shape that clients of `path` parse."""
    if "/unity-catalog/delta/v1/" in path:
        return {"error": {"message": error.message, "type": error.delta_type, "code": error.status}}
    return {
        "error_code": error.error_code,
        "message": error.message,
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.error_code}],
    }
