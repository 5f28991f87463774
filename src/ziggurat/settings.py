"""Every setting with its meaning, default and bounds: models that refuse what they do not understand."""

import reprlib
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    field_validator,
    model_validator,
)

from ziggurat.errors import ConfigError
from ziggurat.text import parse_bytes, whole

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
    "Section",
    "ZarrConfig",
    "join",
    "refusal",
]

DEFAULT_WRITE_BLOCK_BYTES = 8 * 2**20


def _backoff(value: object) -> object:
    """Let a strategy's name stand for it with its defaults, and take parameters without a name as exponential's."""
    if isinstance(value, str):
        return {"strategy": value}
    return {"strategy": "exponential", **value} if isinstance(value, dict) else value


type Count = Annotated[int, Field(ge=1), BeforeValidator(whole)]
type Bytes = Annotated[
    int,
    Field(ge=0),
    BeforeValidator(parse_bytes, json_schema_input_type=Annotated[int, Field(ge=0)] | str),
]
type Marker = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """What every section shares: nothing is coerced, nothing unknown is accepted, a refusal changes nothing."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_assignment=True,
        # A model builds its validator when it first judges a value, and defaults are made without (`model_construct`):
        # where nothing is set, which is usual, pydantic builds none. That takes longer than planning a small image.
        defer_build=True,
        # Meanings are given as description=: finding docstrings parses this file once per model, four times that.
    )
    section: ClassVar[str] = ""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise refusal(error, self.section) from None

    # Sections inside sections are then validated by pydantic itself, whose errors know the whole key.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).model_fields and not name.startswith("_"):
            raise ConfigError(f"{join(self.section, name)} = {reprlib.repr(value)}: {_unknown(self.section)}")
        # Validators of the whole section run after pydantic has assigned, so undoing is ours.
        values, names = dict(self.__dict__), set(self.model_fields_set)
        try:
            super().__setattr__(name, value)
        except BaseException as error:
            object.__setattr__(self, "__dict__", values)
            object.__setattr__(self, "__pydantic_fields_set__", names)
            if isinstance(error, ValidationError):
                raise refusal(error, self.section) from None
            raise


class _Backoff(Section):
    section: ClassVar[str] = "io_retry.backoff"

    delay_s: float = Field(default=0.1, ge=0, description="Seconds before the first retry.")
    max_delay_s: float = Field(
        default=10.0, ge=0, description="Most seconds before any retry, before and after jitter."
    )
    jitter: bool = Field(default=True, description="Whether each delay is multiplied by a random factor in [0.5, 1.5].")


class ConstantBackoff(_Backoff):
    """Wait `delay_s` before every retry."""

    strategy: Literal["constant"] = "constant"


class LinearBackoff(_Backoff):
    """Wait ``delay_s * attempt``."""

    strategy: Literal["linear"] = "linear"


class ExponentialBackoff(_Backoff):
    """Wait ``delay_s * 2**(attempt - 1)``."""

    strategy: Literal["exponential"] = "exponential"


type _Strategy = Literal["constant", "linear", "exponential"]
type Backoff = Annotated[
    Annotated[ConstantBackoff | LinearBackoff | ExponentialBackoff, Field(discriminator="strategy")],
    BeforeValidator(
        _backoff,
        json_schema_input_type=ConstantBackoff | LinearBackoff | ExponentialBackoff | _Strategy,
    ),
]


class RetryConfig(Section):
    """When a failed operation on a store is tried again. The policy is copied into a store when that is opened."""

    section: ClassVar[str] = "io_retry"

    max_retries: Annotated[int, Field(ge=0), BeforeValidator(whole)] = Field(
        default=0, description="Retries of one failed operation."
    )
    backoff: Backoff = Field(
        default_factory=ExponentialBackoff.model_construct,
        description="How long to wait: a strategy with its parameters, or its bare name.",
    )
    retry_on: list[Marker] = Field(
        default_factory=list, description='Retry errors whose "ExceptionName: message" holds one of these.'
    )
    retry_all_errors: bool = Field(default=False, description="Retry every error; excludes retry_on.")

    @field_validator("retry_all_errors")
    @classmethod
    def _warn(cls, value: bool) -> bool:
        if value:
            message = "io_retry.retry_all_errors is on: errors that no retry can help are retried too. Prefer retry_on."
            warnings.warn(message, UserWarning, stacklevel=4)
        return value

    @model_validator(mode="after")
    def _exclude(self) -> Self:
        if self.retry_all_errors and self.retry_on:
            raise ValueError(
                f"retry_all_errors = true excludes retry_on = {self.retry_on}: set one of them to false or [] first"
            )
        return self


class S3fsConfig(Section):
    """What is handed to s3fs."""

    section: ClassVar[str] = "s3fs"

    custom_retry_markers: list[Marker] = Field(
        default_factory=list, description="Parts of error messages that s3fs's own error handler retries."
    )


class DaskConfig(Section):
    """How the work is cut into tasks."""

    section: ClassVar[str] = "dask"

    write_block_max_bytes: Bytes | None = Field(
        default=DEFAULT_WRITE_BLOCK_BYTES,
        description="Ceiling of a write block and of a source piece, never below one write unit. Null defers to dask's "
        "array.chunk-size, and a lower array.chunk-size wins; 0 is one unit.",
    )
    max_tasks: Count = Field(default=10_000, description="Most tasks in one graph, whatever the image's size.")


class ConsolidationConfig(Section):
    """When a rebuild runs in memory, and when it is a full one."""

    section: ClassVar[str] = "consolidation"

    numpy_max_bytes: Bytes = Field(
        default=256 * 2**20, description='mode="auto" builds in memory up to this many bytes to read; 0 never does.'
    )
    partial_max_coverage: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="When regions touch more than this fraction of level 0, the whole pyramid is rebuilt.",
    )


class ZarrConfig(Section):
    """Zarr's own settings; null leaves zarr as found."""

    section: ClassVar[str] = "zarr"

    async_concurrency: Count | None = Field(default=None, description="Requests in flight per operation.")
    threading_max_workers: Count | None = Field(
        default=None, description="Threads of zarr's executor; applied at import, as zarr reads it once."
    )
    codec_pipeline: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")] | None = Field(
        default=None,
        description="Import path of the codec pipeline of the arrays that we open; null calls codecs straight or by "
        "zarr's fused.",
    )
    codec_max_workers: Count | None = Field(
        default=None, description="Codec threads of the arrays that we open; null is one thread inside dask tasks."
    )
    sharding_coalesce_max_gap_bytes: Bytes | None = Field(
        default=None, description="Parts of a shard that lie no further apart are read in one request."
    )
    sharding_coalesce_max_bytes: Bytes | None = Field(default=None, description="Most bytes of one such request.")


class Config(Section):
    """Every setting of Ziggurat.

    Raises
    ------
    ConfigError
        From the constructor and from every assignment that is refused; a refused assignment changes nothing.

    Examples
    --------
    >>> config = Config(dask={"write_block_max_bytes": "1 MiB"})
    >>> config.consolidation.partial_max_coverage = 0.25
    >>> config.dask.write_block_max_bytes
    1048576
    """

    io_retry: RetryConfig = Field(default_factory=RetryConfig.model_construct)
    s3fs: S3fsConfig = Field(default_factory=S3fsConfig.model_construct)
    dask: DaskConfig = Field(default_factory=DaskConfig.model_construct)
    consolidation: ConsolidationConfig = Field(default_factory=ConsolidationConfig.model_construct)
    zarr: ZarrConfig = Field(default_factory=ZarrConfig.model_construct)

    _file: Path | None = PrivateAttr(default=None)
    _in_file: dict[str, Any] = PrivateAttr(default_factory=dict)


def refusal(error: ValidationError, section: str, origin: str = "") -> ConfigError:
    """Turn pydantic's error about `section` into ours, which names each key, its value and what is allowed."""
    problems = (_problem(dict(detail), section) for detail in error.errors(include_url=False))
    return ConfigError(origin + "; ".join(problems))


def _problem(detail: dict[str, Any], section: str) -> str:
    # pydantic names the member of a union after the union's key; it is no key of ours.
    strategies = ("constant", "linear", "exponential")
    parts = pairwise(("", *detail["loc"]))
    names = [str(part) for before, part in parts if before != "backoff" or part not in strategies]
    key = join(section, *names)
    said = _unknown(key.rpartition(".")[0]) if detail["type"] == "extra_forbidden" else detail["msg"]
    return f"{key or 'configuration'} = {reprlib.repr(detail['input'])}: {said.removeprefix('Value error, ')}"


def _unknown(section: str) -> str:
    models = (Config, RetryConfig, ExponentialBackoff, S3fsConfig, DaskConfig, ConsolidationConfig, ZarrConfig)
    keys = next(model.model_fields for model in models if model.section == section)
    return f"unknown key; {section or 'the configuration'} knows {', '.join(keys)}"


def join(*names: str) -> str:
    """Join names to a dotted key."""
    return ".".join(name for name in names if name)
