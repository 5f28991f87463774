"""The errors that Ziggurat raises: one base, each also the builtin a caller would expect."""

__all__ = [
    "ConfigError",
    "DTypeError",
    "GeometryError",
    "LevelError",
    "LockError",
    "MemoryLimitError",
    "MetadataError",
    "MethodError",
    "ModeError",
    "PyramidNotFoundError",
    "ReadOnlyError",
    "RegionError",
    "StoppedError",
    "StoreError",
    "ViewError",
    "ZigguratError",
    "first_of",
]


class ZigguratError(Exception):
    """Base of every error that Ziggurat raises itself."""


class ConfigError(ZigguratError, ValueError):
    """A setting that cannot be accepted."""


class DTypeError(ZigguratError, TypeError):
    """A dtype that a method or a pyramid cannot have."""


class GeometryError(ZigguratError, ValueError):
    """Two levels whose shapes do not belong together."""


class LevelError(ZigguratError, ValueError):
    """A list of levels that is no pyramid."""


class LockError(ZigguratError, TimeoutError):
    """Another call holds the pyramid."""


class MemoryLimitError(ZigguratError, MemoryError):
    """Workers whose memory does not hold what the plan needs."""


class MetadataError(ZigguratError, ValueError):
    """Image metadata that cannot be read."""


class MethodError(ZigguratError, ValueError):
    """A method, or a parameter of one, that does not exist or does not fit."""


class ModeError(ZigguratError, ValueError):
    """A mode that does not exist or cannot be used here."""


class PyramidNotFoundError(ZigguratError, FileNotFoundError):
    """There is no pyramid at the place that was named."""


class ReadOnlyError(ZigguratError, PermissionError):
    """A store that must be written and cannot be."""


class RegionError(ZigguratError, IndexError):
    """A region that does not lie in the array."""


class StoppedError(ZigguratError, RuntimeError):
    """A task whose call was stopped meanwhile; callers see what stopped it instead."""


class StoreError(ZigguratError, OSError):
    """A store that the work cannot be done on."""


class ViewError(ZigguratError, RuntimeError):
    """A page that cannot be shown."""


def first_of(error: BaseException) -> BaseException:
    """Return the first error in a group of groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
