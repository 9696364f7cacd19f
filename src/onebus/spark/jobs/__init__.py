"""The jobs of the data pipeline. Each is a function that takes a session, for notebooks, and a command.

They are loaded when they are first asked for: commands ask whether Spark is there before they load it.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onebus.spark.jobs.archiving import archive
    from onebus.spark.jobs.auditing import audit
    from onebus.spark.jobs.replaying import replay
    from onebus.spark.jobs.rolling import roll_up, rollup
    from onebus.spark.jobs.seam import history
    from onebus.spark.jobs.tables import table
    from onebus.spark.jobs.transforming import transform

__all__ = ["archive", "audit", "history", "replay", "roll_up", "rollup", "table", "transform"]

_MODULES = {
    "archive": "archiving",
    "audit": "auditing",
    "history": "seam",
    "replay": "replaying",
    "roll_up": "rolling",
    "rollup": "rolling",
    "table": "tables",
    "transform": "transforming",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
