"""Ziggurat: the coarser levels of multiscale zarr images, built from the finest and kept right.

The verbs are loaded when they are used, so that ``ziggurat --help`` and a first import stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ziggurat.config import get_config

if TYPE_CHECKING:
    from ziggurat.api import consolidate, plan
    from ziggurat.pyramid import Pyramid, open_pyramid
    from ziggurat.report import Report

__all__ = ["Pyramid", "Report", "consolidate", "get_config", "open_pyramid", "plan"]

_HOMES = {
    "Pyramid": "pyramid",
    "Report": "report",
    "consolidate": "api",
    "open_pyramid": "pyramid",
    "plan": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ziggurat' has no attribute {name!r}")
    return getattr(import_module(f"ziggurat.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
