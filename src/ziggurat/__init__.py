"""Ziggurat: the coarser levels of multiscale zarr images, built from the finest and kept right.

The verbs are loaded when they are used, so that ``ziggurat --help`` and a first import stay light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ziggurat.config import get_config
from ziggurat.runtime import apply_at_import, refresh_s3fs_config

if TYPE_CHECKING:
    from ziggurat.api import consolidate, plan, verify
    from ziggurat.building import build
    from ziggurat.chunkgrid import ChunkGrid
    from ziggurat.complete import add_levels
    from ziggurat.mosaic import concatenate
    from ziggurat.opening import open_pyramid, open_pyramids
    from ziggurat.previewing import preview
    from ziggurat.pyramid import Pyramid
    from ziggurat.report import Report
    from ziggurat.streaming import read_chunks
    from ziggurat.tables import read_regions
    from ziggurat.trees import from_datatree
    from ziggurat.verification import Verification
    from ziggurat.viewing import view
    from ziggurat.virtual import overlapping, rechunked

__all__ = [
    "ChunkGrid",
    "Pyramid",
    "Report",
    "Verification",
    "add_levels",
    "build",
    "concatenate",
    "consolidate",
    "from_datatree",
    "get_config",
    "open_pyramid",
    "open_pyramids",
    "overlapping",
    "plan",
    "preview",
    "read_chunks",
    "read_regions",
    "rechunked",
    "refresh_s3fs_config",
    "verify",
    "view",
]

apply_at_import()

_HOMES = {
    "ChunkGrid": "chunkgrid",
    "Pyramid": "pyramid",
    "Report": "report",
    "Verification": "verification",
    "add_levels": "complete",
    "build": "building",
    "concatenate": "mosaic",
    "consolidate": "api",
    "from_datatree": "trees",
    "open_pyramid": "opening",
    "open_pyramids": "opening",
    "overlapping": "virtual",
    "plan": "api",
    "preview": "previewing",
    "read_chunks": "streaming",
    "read_regions": "tables",
    "rechunked": "virtual",
    "verify": "api",
    "view": "viewing",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ziggurat' has no attribute {name!r}")
    return getattr(import_module(f"ziggurat.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
