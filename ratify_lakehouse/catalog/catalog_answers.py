"""What the answers of a catalog mean, above all those to a request that commits (updateTable of the `delta/v1` API).

Such a request is sent once. databricks-sdk, which makes all other calls, repeats a request by itself after 429, 503 or a
lost connection, and returns the last answer alone. That says nothing of the requests before: one may have been carried out.

| answer to one request | meaning | error |
|---|---|---|
| 200 with a table (DeltaLoadTableResponse) | carried out, if the table has the commit | |
| 409 CommitVersionConflict, UpdateRequirementConflict, AlreadyExists | refused | `CommitConflict` |
| 401 NotAuthorized, 403 PermissionDenied | refused | `CatalogDenied` |
| 404 NoSuchTable, NoSuchSchema, NoSuchCatalog, NotFound | refused | `TableMissing` |
| 429 ResourceExhausted, TooManyRequests | refused | `CatalogBusy` |
| 400 BadRequest, InvalidParameterValue, UnsupportedTableFormat, 501 NotImplemented | refused | `CatalogRejected` |
| 500 CommitStateUnknown, InternalServerError | unknown | `CommitOutcomeUnknown` |
| any answer without such a type: a gateway's 401, 403, 502, 503 or 504, a page | unknown | `CommitOutcomeUnknown` |
| none: a time-out, a lost connection | unknown | `CommitOutcomeUnknown` |

The types are those of DeltaErrorType (unity-catalog-delta-v1.yaml), which end in `Exception`. *Refused* means that this one
request was not carried out; `ratify_lakehouse.delta.commit_outcome` has the rule for a commit that was proposed by several.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ratify_lakehouse.errors import (
    CatalogBusy,
    CatalogDenied,
    CatalogRejected,
    CatalogUnavailable,
    CommitConflict,
    CommitOutcomeUnknown,
    RatifyError,
    TableMissing,
)

if TYPE_CHECKING:
    from requests import Response


def denied(host: str, what: str, reason: object) -> CatalogDenied:
    """Return the error of a token or a principal that is refused."""
    return CatalogDenied(
        f"The catalog at {host} refused to {what}: {reason}. Check UNITY_TOKEN (or UNITY_CLIENT_ID and UNITY_CLIENT_SECRET) "
        "and the grants of the principal behind it."
    )


def missing(host: str, what: str, reason: object) -> TableMissing:
    """Return the error of a name that the catalog does not have."""
    return TableMissing(f"The catalog at {host} could not {what}: {reason}. Check the name.")


def busy(host: str, what: str, reason: object) -> CatalogBusy:
    """Return the error of a catalog that takes no more work."""
    return CatalogBusy(f"The catalog at {host} is too busy to {what}: {reason}. Try again later.")


def unavailable(host: str, what: str, reason: object) -> CatalogUnavailable:
    """Return the error of a catalog that does not answer."""
    return CatalogUnavailable(
        f"The catalog at {host} did not answer ({what}): {reason}. Check that it runs (`ratify status`) and that UNITY_HOST "
        "is right."
    )


def unclear(host: str, what: str, reason: object) -> CatalogUnavailable:
    """Return the error of an answer that is none of the API's."""
    return CatalogUnavailable(f"The catalog at {host} could not {what}: {reason}")


def rejected(host: str, what: str, reason: object) -> CatalogRejected:
    """Return the error of a request that the catalog rejects as it stands."""
    return CatalogRejected(f"The catalog at {host} could not {what}: {reason}")


def conflict(host: str, what: str, reason: object) -> CommitConflict:
    """Return the error of a version that is taken, or of a requirement that is not met."""
    return CommitConflict(f"The catalog at {host} could not {what}: {reason}")


_Error = Callable[[str, str, object], RatifyError]
_REFUSED: dict[str, _Error] = {
    "CommitVersionConflict": conflict,
    "UpdateRequirementConflict": conflict,
    "AlreadyExists": conflict,
    "NotAuthorized": denied,
    "PermissionDenied": denied,
    "NoSuchTable": missing,
    "NoSuchSchema": missing,
    "NoSuchCatalog": missing,
    "NotFound": missing,
    "ResourceExhausted": busy,
    "TooManyRequests": busy,
    "BadRequest": rejected,
    "InvalidParameterValue": rejected,
    "UnsupportedTableFormat": rejected,
    "NotImplemented": rejected,
}
# Of answers without a type. It says what to do next, and not what became of the request.
_LIKELY: dict[int, _Error] = {401: denied, 403: denied, 404: missing, 409: conflict, 429: busy, 503: busy}


def updated_table(host: str, what: str, response: "Response") -> dict[str, Any]:
    """Return the table in an answer to updateTable.

    Raises:
        CommitConflict, CatalogDenied, TableMissing, CatalogBusy, CatalogRejected: the catalog refused this request.
        CommitOutcomeUnknown: it may have carried it out; `__cause__` is what the answer looks like.
    """
    answer = _json(response)
    if response.status_code == 200 and "metadata" in answer:
        return answer
    error = answer.get("error")
    if isinstance(error, dict):
        given = cast("dict[str, Any]", error)
        if refused := _REFUSED.get(str(given.get("type")).removesuffix("Exception")):
            raise _with_delay(refused(host, what, given.get("message")), response)
    reason = f"HTTP {response.status_code} {response.text[:200]!r}"
    likely = _LIKELY.get(response.status_code, rejected if 400 <= response.status_code < 500 else unclear)
    cause = _with_delay(likely(host, what, reason), response)
    raise CommitOutcomeUnknown(str(cause)) from cause


def _json(response: "Response") -> dict[str, Any]:
    try:
        answer: object = response.json()
    except ValueError:
        return {}
    return cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}


def _with_delay(error: RatifyError, response: "Response") -> RatifyError:
    after = response.headers.get("Retry-After", "")
    if isinstance(error, CatalogBusy) and after.isdecimal():
        error.retry_after = int(after)
    return error
