"""When a failed operation is tried again, and how long to wait before: the settings `io_retry`, applied by tenacity."""

import errno
import logging
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, NoReturn

from ziggurat.errors import ZigguratError
from ziggurat.settings import Backoff, ExponentialBackoff, RetryConfig

if TYPE_CHECKING:
    from tenacity import RetryCallState

__all__ = ["counted_retries", "delay_s", "is_sharing_conflict", "retry", "retry_async", "retrying"]

logger = logging.getLogger("ziggurat.retry")

IS_WINDOWS = os.name == "nt"


@cache  # making one at import would build its model there, a twentieth of the time of a first call
def _sharing_conflicts() -> RetryConfig:
    """Return the rule for files that another process, often a virus scanner, holds open for a moment."""
    return RetryConfig(max_retries=5, backoff=ExponentialBackoff(delay_s=0.05, max_delay_s=0.5))


# A context variable: zarr's event loop runs a thread's request in the context of that thread.
_retried: ContextVar[list[str] | None] = ContextVar("retried", default=None)


@contextmanager
def counted_retries() -> Iterator[list[str]]:
    """Yield a list that gets an entry, what is tried again, for each retry made on behalf of this thread meanwhile.

    Examples
    --------
    >>> attempts = iter([OSError("503 Slow Down"), None])
    >>> def probe():
    ...     if error := next(attempts):
    ...         raise error
    >>> with counted_retries() as retries:
    ...     retry(RetryConfig(max_retries=1, backoff={"delay_s": 0.0}, retry_on=["Slow"]), "probe", probe)
    >>> retries
    ['probe']
    """
    retries: list[str] = []
    token = _retried.set(retries)
    try:
        yield retries
    finally:
        _retried.reset(token)


def delay_s(backoff: Backoff, attempt: int, jitter: float = 1.0) -> float:
    """Return the seconds to wait after failed attempt number `attempt`, the first being 1.

    Parameters
    ----------
    jitter : float
        Factor of the delay; what comes of it is capped again.

    Examples
    --------
    >>> [delay_s(ExponentialBackoff(delay_s=0.1, max_delay_s=0.3), attempt) for attempt in (1, 2, 3)]
    [0.1, 0.2, 0.3]
    """
    # Beyond 2**60 any delay is capped; floats would overflow.
    factor = {"constant": 1, "linear": attempt, "exponential": 2.0 ** min(attempt - 1, 60)}[backoff.strategy]
    return min(min(backoff.delay_s * factor, backoff.max_delay_s) * jitter, backoff.max_delay_s)


def is_sharing_conflict(error: BaseException) -> bool:
    """Say whether Windows refused a file because another process has it open."""
    if not isinstance(error, OSError):
        return False
    code = getattr(error, "winerror", None)
    # C runtimes lose the code; elsewhere than on Windows EACCES is what it says.
    return code in (5, 32, 33) if code is not None else IS_WINDOWS and error.errno == errno.EACCES


def _rule(policy: RetryConfig, error: BaseException) -> RetryConfig | None:
    """Return the policy that `error` falls under, None where it is not to be retried."""
    # Groups (BaseExceptionGroup) hold errors that were retried one by one; the other BaseExceptions end the work.
    if not isinstance(error, Exception) or isinstance(error, (ZigguratError, CancelledError, ExceptionGroup)):
        return None
    text = f"{type(error).__name__}: {error}"
    if policy.max_retries and (policy.retry_all_errors or any(part in text for part in policy.retry_on)):
        return policy
    return _sharing_conflicts() if is_sharing_conflict(error) else None


class _Rules:
    """What tenacity asks about one operation; `what` names it, with its key."""

    def __init__(self, policy: RetryConfig, what: str) -> None:
        self.policy = policy
        self.what = what

    def options(self) -> dict[str, Any]:
        return {
            "retry": lambda state: state.outcome.failed and self._rule(state) is not None,
            "stop": lambda state: state.attempt_number > self._max_retries(state),
            "wait": self._wait,
            "before_sleep": self._log,
            "retry_error_callback": self._give_up,
        }

    def _rule(self, state: "RetryCallState") -> RetryConfig | None:
        return _rule(self.policy, _error(state))

    def _max_retries(self, state: "RetryCallState") -> int:
        rule = self._rule(state)
        return rule.max_retries if rule else 0

    def _wait(self, state: "RetryCallState") -> float:
        backoff = (self._rule(state) or self.policy).backoff
        return delay_s(backoff, state.attempt_number, random.uniform(0.5, 1.5) if backoff.jitter else 1.0)

    def _log(self, state: "RetryCallState") -> None:
        error = _error(state)
        if (retries := _retried.get()) is not None:
            retries.append(self.what)
        logger.warning(
            "%s failed, retry %d of %d in %.3g s: %s: %s",
            self.what,
            state.attempt_number,
            self._max_retries(state),
            state.upcoming_sleep,
            type(error).__name__,
            error,
        )

    def _give_up(self, state: "RetryCallState") -> NoReturn:
        error = _error(state)
        error.add_note(f"{self.what}: given up after {state.attempt_number} attempts")
        raise error


def _error(state: "RetryCallState") -> BaseException:
    error = state.outcome.exception() if state.outcome else None
    assert error is not None
    return error


def retry[R](policy: RetryConfig, what: str, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Call `function`, again where `policy` says so; `what` names the operation in the log and in the error."""
    if not _may_retry(policy):
        return function(*args, **kwargs)
    from tenacity import Retrying

    return Retrying(**_Rules(policy, what).options())(function, *args, **kwargs)


async def retry_async[R](
    policy: RetryConfig, what: str, function: Callable[..., Awaitable[R]], *args: Any, **kwargs: Any
) -> R:
    """Do as `retry` does, for a coroutine function."""
    if not _may_retry(policy):
        return await function(*args, **kwargs)
    from tenacity import AsyncRetrying

    result: R = await AsyncRetrying(**_Rules(policy, what).options())(function, *args, **kwargs)
    return result


def _may_retry(policy: RetryConfig) -> bool:
    """Say whether anything can be tried again: only then is tenacity worth its loading."""
    return bool(policy.max_retries) or IS_WINDOWS


def retrying[**P, R](policy: Callable[[], RetryConfig]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to be tried again as the `policy` of the moment says; it is read at each call.

    Examples
    --------
    >>> attempts = []
    >>> @retrying(lambda: RetryConfig(max_retries=2, backoff={"delay_s": 0.0}, retry_on=["Slow Down"]))
    ... def probe():
    ...     attempts.append(len(attempts))
    ...     if len(attempts) < 3:
    ...         raise OSError("503 Slow Down")
    >>> probe()
    >>> attempts
    [0, 1, 2]
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return retry(policy(), getattr(function, "__name__", repr(function)), function, *args, **kwargs)

        return call

    return decorate
