"""A Python function that a declaration names, from a file beside it or from a package that is installed."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from onebus.spark.jobs.declaration import Declaration


def function_of(declared: Declaration) -> Callable[..., Any]:
    """Return the function of a declaration, which takes its streams by their names.

    Raises:
        InvalidTransform: there is no such function, or it takes something else.
    """
    place, _, name = (declared.python or "").rpartition(":")
    if not place:
        raise declared.wrong("python", f'It is such as "sessions.py:sessions", and not {declared.python!r}.')
    try:
        module = _load(declared.file.parent / place) if place.endswith(".py") else importlib.import_module(place)
    except Exception as error:
        raise declared.wrong("python", f"{place} cannot be loaded: {type(error).__name__}: {error}.") from error
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise declared.wrong("python", f"There is no function {name!r} in {place}.")
    parameters = inspect.signature(function).parameters
    if set(parameters) != set(declared.sources):
        streams = ", ".join(declared.sources)
        raise declared.wrong("python", f"{name}({', '.join(parameters)}) must take the streams by name: {streams}.")
    return function


def _load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"onebus_transform_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    # Executors do not have this file: what it defines is sent to them.
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return module
