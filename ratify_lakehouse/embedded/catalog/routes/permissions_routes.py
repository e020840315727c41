"""/permissions of the 2.1 API: the grants on the metastore, a catalog, a schema or a table."""

from starlette.responses import JSONResponse, Response

from ratify_lakehouse.embedded.catalog import access_rules
from ratify_lakehouse.embedded.catalog.access_rules import Privilege
from ratify_lakehouse.embedded.catalog.api_errors import InvalidParameterError, NotSupportedError
from ratify_lakehouse.embedded.catalog.api_models import UpdatePermissions
from ratify_lakehouse.embedded.catalog.endpoint import Call
from ratify_lakehouse.embedded.catalog.object_names import split_full_name
from ratify_lakehouse.embedded.catalog.store import grant_store, principal_store


def get_permissions(call: Call) -> Response:
    """The owner sees all grants, any other principal only its own, as on the reference server."""
    with call.read() as tx:
        effective = grant_store.effective(tx, call.principal, _names(call))
        requested = call.query.get("principal")
        own = None if effective.has(Privilege.OWNER) else call.principal
        if own is not None and requested not in (None, own):
            return _answer({})
        return _answer(grant_store.assignments(tx, effective.securable_id, requested or own))


def update_permissions(call: Call) -> Response:
    """All changes, or none; the answer has the grants of the principals that the request names."""
    request = call.parse(UpdatePermissions)
    names = _names(call)
    with call.write(*names) as tx:
        effective = grant_store.effective(tx, call.principal, names)
        changed = [principal_store.get_principal(tx, change.principal).name for change in request.changes]
        for name, change in zip(changed, request.changes, strict=True):
            grant_store.grant(tx, effective.securable_id, name, _privileges(call, change.add))
            grant_store.revoke(tx, effective.securable_id, name, _privileges(call, change.remove))
        found = grant_store.assignments(tx, effective.securable_id, None)
    return _answer({name: granted for name, granted in found.items() if name in changed})


def _names(call: Call) -> list[str]:
    """The names of the securable: none for the metastore, whose own name is ignored, because there is only one."""
    kind = call.path["securable_type"].lower()
    if kind not in access_rules.KINDS:
        raise NotSupportedError(f"This server has no grants on a {kind}, only on {', '.join(access_rules.KINDS)}.")
    level = access_rules.KINDS.index(kind)
    return split_full_name(call.path["full_name"], level) if level else []


def _privileges(call: Call, names: list[str]) -> list[Privilege]:
    kind = call.path["securable_type"].lower()
    known = access_rules.grantable(kind)
    for name in names:
        if name not in known:
            possible = ", ".join(sorted(known))
            raise InvalidParameterError(f"{name} cannot be granted on a {kind}; these can: {possible}.")
    return [known[name] for name in names]


def _answer(assignments: dict[str, list[str]]) -> Response:
    shown = [{"principal": name, "privileges": granted} for name, granted in assignments.items()]
    return JSONResponse({"privilege_assignments": shown})
