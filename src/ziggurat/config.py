"""The one configuration object: where its file is, how it is read, and where each setting came from."""

import copy
import json
import os
import reprlib
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from pydantic import ValidationError

from ziggurat.errors import ConfigError
from ziggurat.settings import (
    DEFAULT_WRITE_BLOCK_BYTES,
    Backoff,
    Config,
    ConsolidationConfig,
    ConstantBackoff,
    DaskConfig,
    ExponentialBackoff,
    LinearBackoff,
    RetryConfig,
    S3fsConfig,
    Section,
    ZarrConfig,
    join,
    refusal,
)
from ziggurat.text import parse_bytes

__all__ = [
    "Backoff",
    "Config",
    "ConsolidationConfig",
    "ConstantBackoff",
    "DaskConfig",
    "ExponentialBackoff",
    "LinearBackoff",
    "RetryConfig",
    "S3fsConfig",
    "ZarrConfig",
    "describe",
    "get_config",
    "parse_bytes",
    "read_config",
    "schema",
    "write_block_ceiling",
]

ENV_VAR = "ZIGGURAT_CONFIG_PATH"
DEFAULT_PATH = "~/.ziggurat/ziggurat_config.json"

# Both are read at import, so that a later chdir or setenv cannot change what the first call of get_config finds.
_named_by_env = os.environ.get(ENV_VAR, "")
_path = Path(os.path.abspath(os.path.expanduser(_named_by_env or DEFAULT_PATH)))
_lock = Lock()


def get_config() -> Config:
    """Return the one configuration object; the first call reads the file.

    The file is the one that the environment variable ``ZIGGURAT_CONFIG_PATH`` named when Ziggurat was imported, else
    ``~/.ziggurat/ziggurat_config.json``. Without a file everything is at its default.

    Raises
    ------
    ConfigError
        When the file cannot be accepted.

    Examples
    --------
    >>> get_config() is get_config()
    True
    """
    with _lock:
        return _load()


@cache
def _load() -> Config:
    try:
        return read_config(_path)
    except (FileNotFoundError, NotADirectoryError):
        if _named_by_env:
            warnings.warn(f"{ENV_VAR} names {_path}, which is not there: defaults are used", UserWarning, stacklevel=3)
        return Config.model_construct()


def read_config(path: Path) -> Config:
    """Read a configuration file.

    Raises
    ------
    ConfigError
        When it is no ``.json`` file that holds one object with known keys and accepted values.
    FileNotFoundError
        When there is no such file.
    """
    data = _read_json(path)
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        raise refusal(error, "", f"{path}: ") from None
    config._file = path
    config._in_file = {key: copy.copy(value) for key, value, was_set in _settings(config) if was_set}
    return config


def describe(config: Config) -> list[tuple[str, Any, str]]:
    """List the settings in effect as ``(key, value, origin)``.

    The origin is "default", "file PATH", or "set in code" where the value is not what the file or the default says.

    Examples
    --------
    >>> describe(Config())[0]
    ('io_retry.max_retries', 0, 'default')
    """
    defaults = {key: value for key, value, _ in _settings(Config())}

    def origin(key: str, value: Any) -> str:
        if value != config._in_file.get(key, defaults.get(key)):
            return "set in code"
        return f"file {config._file}" if key in config._in_file else "default"

    return [(key, value, origin(key, value)) for key, value, _ in _settings(config)]


def schema() -> dict[str, Any]:
    """Return the JSON schema of the configuration file."""
    return Config.model_json_schema()


def write_block_ceiling(write_block_max_bytes: int | None, dask_chunk_size_bytes: int | None) -> int:
    """Return the ceiling in bytes of a write block; 0 stands for one write unit.

    Parameters
    ----------
    write_block_max_bytes : int or None
        The setting ``dask.write_block_max_bytes``.
    dask_chunk_size_bytes : int or None
        dask's own ``array.chunk-size``, None where it says nothing.

    Examples
    --------
    >>> write_block_ceiling(8388608, 134217728), write_block_ceiling(None, 134217728)
    (8388608, 134217728)
    >>> write_block_ceiling(8388608, 1000), write_block_ceiling(0, 1000)
    (1000, 0)
    """
    said = [ceiling for ceiling in (write_block_max_bytes, dask_chunk_size_bytes) if ceiling is not None]
    return min(said, default=DEFAULT_WRITE_BLOCK_BYTES)


def _settings(section: Section) -> Iterator[tuple[str, Any, bool]]:
    """Yield key, value and whether it was given, for each setting below `section`."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _settings(value)
        else:
            yield join(section.section, name), value, name in section.model_fields_set


def _read_json(path: Path) -> object:
    if path.suffix.lower() != ".json":
        raise ConfigError(f"{path}: the configuration is a .json file, not {path.suffix or 'one without a suffix'}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        raise
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error})") from error
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty; write {{}} for the defaults, or remove it")
    try:
        data = json.loads(text, object_pairs_hook=_no_twins)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(data, dict):
        raise ConfigError(f'{path}: {reprlib.repr(data)} is no JSON object; write {{"section": {{"key": value}}}}')
    return data


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build one JSON object; of a key that is there twice, JSON readers would silently take the last."""
    names = [name for name, _ in pairs]
    if twins := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"key given twice: {', '.join(sorted(twins))}")
    return dict(pairs)
