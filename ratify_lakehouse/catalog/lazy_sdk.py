"""databricks-sdk without what nobody asks for.

Its package imports the clients of all services of a workspace, ten thousand classes, which takes a second of CPU time in
each process; here most need only the core and the errors. So the package is registered, and its own code runs when one
of its names is asked for, such as `WorkspaceClient`. Its modules can be imported before that.
"""

import importlib
import sys
from importlib.util import find_spec, module_from_spec
from threading import RLock
from typing import Any

_SDK = "databricks.sdk"
_registering = RLock()


def register_lazy_sdk() -> None:
    """Let later imports of databricks-sdk's modules do without the package's own code, unless that has run."""
    if _SDK in sys.modules:
        return
    parent = importlib.import_module("databricks")
    with _registering:
        spec = find_spec(_SDK)
        if _SDK in sys.modules or spec is None or spec.loader is None:
            return
        package, run = module_from_spec(spec), spec.loader.exec_module

        def attribute(name: str) -> Any:
            # The import system asks for a name before it imports the module of that name.
            if name.startswith("__") or find_spec(f"{_SDK}.{name}"):
                raise AttributeError(f"module {_SDK!r} has no attribute {name!r}")
            with _registering:
                if vars(package).get("__getattr__") is attribute:
                    run(package)
                    vars(package).pop("__getattr__", None)
            return getattr(package, name)

        vars(package)["__getattr__"] = attribute
        sys.modules[_SDK] = package
        vars(parent)["sdk"] = package
