"""Every error that the server answers with, and its two shapes on the wire.

The `delta/v1` API answers `{"error": {"message", "type", "code"}}` (DeltaErrorResponse in unity-catalog-delta-v1.yaml);
the 2.1 API answers `{"error_code", "message", "details"}`, which is also what databricks-sdk parses.
"""

from typing import Any, ClassVar


class ApiError(Exception):
    """An answer other than success. `message` goes to the client: it names securables, never internals."""

    status: ClassVar[int] = 500
    delta_type: ClassVar[str] = "InternalServerErrorException"
    error_code: str = "INTERNAL"
    headers: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls, *, status: int, delta_type: str, error_code: str) -> None:
        cls.status, cls.delta_type, cls.error_code = status, delta_type, error_code

    def __init__(self, message: str, *, error_code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if error_code is not None:
            self.error_code = error_code


class InvalidRequestError(ApiError, status=400, delta_type="BadRequestException", error_code="INVALID_ARGUMENT"):
    """The request cannot be understood: not JSON, a wrong type, a missing field, an unknown action."""


class InvalidParameterError(
    ApiError, status=400, delta_type="InvalidParameterValueException", error_code="INVALID_ARGUMENT"
):
    """The request is understood, and breaks a rule of the API or of the managed-table contract."""


class UnsupportedTableFormatError(
    ApiError, status=400, delta_type="UnsupportedTableFormatException", error_code="INVALID_ARGUMENT"
):
    """The table exists, and cannot be served as a Delta table."""


class FailedPreconditionError(ApiError, status=400, delta_type="BadRequestException", error_code="FAILED_PRECONDITION"):
    """The request is right, and the state of the catalog forbids it (a schema that still has tables)."""


class NotAuthorizedError(ApiError, status=401, delta_type="NotAuthorizedException", error_code="UNAUTHENTICATED"):
    """No bearer token, or one that is wrong, expired or revoked."""

    headers: ClassVar[dict[str, str]] = {"WWW-Authenticate": "Bearer"}

    def __init__(self) -> None:
        super().__init__("The bearer token is missing, wrong, expired or revoked; send 'Authorization: Bearer <token>'.")


class PermissionDeniedError(ApiError, status=403, delta_type="PermissionDeniedException", error_code="PERMISSION_DENIED"):
    """The principal lacks a privilege: see `access_rules`."""


class NoSuchPathError(ApiError, status=404, delta_type="NotFoundException", error_code="NOT_FOUND"):
    """The API has no such path."""


class NoSuchCatalogError(ApiError, status=404, delta_type="NoSuchCatalogException", error_code="CATALOG_NOT_FOUND"):
    """No catalog of that name."""


class NoSuchSchemaError(ApiError, status=404, delta_type="NoSuchSchemaException", error_code="SCHEMA_NOT_FOUND"):
    """No schema of that name."""


class NoSuchTableError(ApiError, status=404, delta_type="NoSuchTableException", error_code="TABLE_NOT_FOUND"):
    """No table, or no staging table, of that name, id or location."""


class NoSuchPrincipalError(ApiError, status=404, delta_type="NotFoundException", error_code="NOT_FOUND"):
    """No principal, or credential of one, of that name or id."""


class MethodNotAllowedError(ApiError, status=405, delta_type="BadRequestException", error_code="METHOD_NOT_ALLOWED"):
    """The path exists, for other methods."""


class AlreadyExistsError(ApiError, status=409, delta_type="AlreadyExistsException", error_code="ALREADY_EXISTS"):
    """The name is taken."""


class CommitVersionConflictError(ApiError, status=409, delta_type="CommitVersionConflictException", error_code="ABORTED"):
    """Another writer's commit was ratified first: reload, rebuild, propose the next version."""


class UpdateRequirementConflictError(
    ApiError, status=409, delta_type="UpdateRequirementConflictException", error_code="ABORTED"
):
    """An assert-etag or assert-table-uuid requirement does not hold: reload and retry."""


class BodyTooLargeError(ApiError, status=413, delta_type="BadRequestException", error_code="INVALID_ARGUMENT"):
    """The request body is over the limit."""


class ResourceExhaustedError(ApiError, status=429, delta_type="ResourceExhaustedException", error_code="RESOURCE_EXHAUSTED"):
    """Too many ratified commits wait to be published."""


class NotSupportedError(ApiError, status=501, delta_type="NotImplementedException", error_code="UNIMPLEMENTED"):
    """A part of the published API that this server does not implement."""


def error_body(error: ApiError, path: str) -> dict[str, Any]:
    """The JSON answer for `error`, in the shape that clients of `path` parse."""
    if "/unity-catalog/delta/v1/" in path:
        return {"error": {"message": error.message, "type": error.delta_type, "code": error.status}}
    return {
        "error_code": error.error_code,
        "message": error.message,
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": error.error_code}],
    }
