"""What Ziggurat sets in zarr and s3fs: at import, and for as long as a task runs."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

from ziggurat import config
from ziggurat.errors import ConfigError
from ziggurat.settings import Config, ZarrConfig

if TYPE_CHECKING:
    import zarr
    from zarr.abc.store import Store

__all__ = [
    "FUSED",
    "apply_at_import",
    "check_pipeline",
    "codec_pipeline",
    "is_synchronous",
    "refresh_s3fs_config",
    "zarr_settings",
    "zarr_threads",
]

FUSED = "zarr.core.codec_pipeline.FusedCodecPipeline"


class _Scoped:
    """Scoped changes of one key of zarr's global configuration, safe with threads: the last one to leave restores."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lock = Lock()
        self.depth = 0
        self.found: Any = None

    @contextmanager
    def __call__(self, value: Any) -> Iterator[None]:
        import zarr

        with self.lock:
            if self.depth == 0:
                self.found = zarr.config.get(self.key, None)
                zarr.config.set({self.key: value})
            self.depth += 1
        try:
            yield
        finally:
            with self.lock:
                self.depth -= 1
                if self.depth == 0:
                    zarr.config.set({self.key: self.found})


codec_pipeline = _Scoped("codec_pipeline.path")
"""Context manager: import path of the codec pipeline of arrays that are opened meanwhile."""

_warned: set[str] = set()

_codec_threads = _Scoped("codec_pipeline.max_workers")
_async_concurrency = _Scoped("async.concurrency")


@contextmanager
def zarr_settings(settings: ZarrConfig, n_threads: int | None = 1) -> Iterator[None]:
    """Apply, for a while, what zarr reads from its global configuration alone.

    Parameters
    ----------
    n_threads : int or None
        Codec threads per call where the settings name no number: one where the work is spread over threads already,
        None for as many as zarr takes.
    """
    with ExitStack() as stack:
        if (found := settings.codec_max_workers or n_threads) is not None:
            stack.enter_context(_codec_threads(found))
        if settings.async_concurrency is not None:
            stack.enter_context(_async_concurrency(settings.async_concurrency))
        yield


def check_pipeline(settings: ZarrConfig, array: "zarr.Array[Any]") -> ZarrConfig:
    """Return the settings, without the codec pipeline where zarr would not use it for `array`; that is warned of.

    Raises
    ------
    ConfigError
        When there is no such pipeline.
    """
    path = settings.codec_pipeline
    if path is None or _is_used(path, array):
        return settings
    message = f"zarr.codec_pipeline = {path!r} cannot be used with {type(array.store).__name__}: zarr's own is used"
    if message not in _warned:
        _warned.add(message)
        warnings.warn(message, UserWarning, stacklevel=3)
    return settings.model_copy(update={"codec_pipeline": None})


def _is_used(path: str, array: "zarr.Array[Any]") -> bool:
    from zarr.registry import get_pipeline_class

    try:
        import_module(path.rpartition(".")[0])
        # zarrs warns for each array that it opens.
        with warnings.catch_warnings(action="ignore"), codec_pipeline(path):
            wanted, pipeline = get_pipeline_class(), array.with_config({}).async_array.codec_pipeline
    except (ImportError, ValueError) as e:
        raise ConfigError(f"zarr.codec_pipeline = {path!r}: {e}; install it, or set it to null") from e
    if not isinstance(pipeline, wanted) or getattr(pipeline, "impl", pipeline) is None:
        return False
    # The fused pipeline falls back without a word.
    if not hasattr(pipeline, "sync_transform"):
        return True
    return is_synchronous(array.store) and pipeline.sync_transform is not None


def is_synchronous(store: "Store") -> bool:
    """Say whether zarr can call `store` without its event loop; wrappers can where what they wrap can."""
    from zarr.abc.store import SupportsSyncStore

    return isinstance(store, SupportsSyncStore) and bool(getattr(store, "_supports_sync_io", True))


def apply_at_import() -> None:
    """Apply the settings of zarr and s3fs that count for the whole process, as the configuration file has them.

    Nothing is loaded for it that is not needed, and a bad file is for the first call of `get_config` to refuse.
    """
    with warnings.catch_warnings(action="ignore"):
        try:
            found = config.read_config(config._path)
        except (ConfigError, OSError):
            return
    _limit_threads(found.zarr.threading_max_workers)
    _set_retry_markers(found)


def _limit_threads(max_workers: int | None) -> None:
    if max_workers is None:
        return
    if "zarr" in sys.modules:
        sys.modules["zarr"].config.set({"threading.max_workers": max_workers})
    else:
        # zarr reads the environment when it is imported; importing it here would slow down every `import ziggurat`.
        os.environ["ZARR_THREADING__MAX_WORKERS"] = str(max_workers)


def zarr_threads() -> int | None:
    """Return how many threads zarr's executor was given in this process, None where zarr was left to itself.

    The number caps the calls of all tasks together.
    """
    import zarr

    found = zarr.config.get("threading.max_workers", None)
    return None if found is None else int(found)


class _Markers:
    """An error handler for s3fs: retries what holds a marker, and what the handler before it would."""

    def __init__(self, markers: list[str], before: Any) -> None:
        self.markers = markers
        self.before = before

    def __call__(self, error: BaseException) -> bool:
        text = f"{type(error).__name__}: {error}"
        return any(marker in text for marker in self.markers) or bool(self.before(error))


def refresh_s3fs_config() -> None:
    """Hand ``s3fs.custom_retry_markers`` to s3fs, as they are now; done at import, and harmless without s3fs.

    s3fs then retries errors whose "ExceptionName: message" holds one of them, as often as it retries others.

    Examples
    --------
    >>> from ziggurat import get_config
    >>> get_config().s3fs.custom_retry_markers = ["XMinioServerNotInitialized"]
    >>> refresh_s3fs_config()
    >>> get_config().s3fs.custom_retry_markers = []
    >>> refresh_s3fs_config()
    """
    _set_retry_markers(config.get_config())


def _set_retry_markers(found: Config) -> None:
    markers = list(found.s3fs.custom_retry_markers)
    if (not markers and "s3fs" not in sys.modules) or find_spec("s3fs") is None:
        return
    core = import_module("s3fs.core")
    if not hasattr(core, "set_custom_error_handler"):
        warnings.warn("s3fs.custom_retry_markers need s3fs 2026.2 or newer", UserWarning, stacklevel=3)
        return
    handler = core.CUSTOM_ERROR_HANDLER
    before = handler.before if isinstance(handler, _Markers) else handler
    core.set_custom_error_handler(_Markers(markers, before) if markers else before)
