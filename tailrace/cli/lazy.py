"""Modules of the command line, loaded when they are first used: a command starts without what only others need."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType


def load_when_used(name: str) -> ModuleType:
    """tailrace.cli's module `name`, loaded at the first look at anything in it. Raises ImportError if there is none."""
    name = f"{__package__}.{name}"
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(f"no module named {name}")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
