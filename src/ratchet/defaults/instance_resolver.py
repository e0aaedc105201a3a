from __future__ import annotations

import inspect
from threading import RLock
from typing import Any, TypeVar, cast

from ratchet.model.errors import ConfigurationError

T = TypeVar("T")


class DefaultInstanceResolver:
    """
    Makes one instance of a class per node, by calling it without arguments.

    The instance is shared by all worker threads. A constructor that raises is called again for the
    next run.
    """

    def __init__(self) -> None:
        self._instances: dict[type, Any] = {}
        # Reentrant: a constructor may itself ask for another instance.
        self._lock = RLock()

    def resolve(self, cls: type[T]) -> T:
        """The node's instance of *cls*, made at the first call, however many threads ask at once."""
        try:
            return cast(T, self._instances[cls])
        except KeyError:
            pass
        with self._lock:
            if cls not in self._instances:
                _require_no_arguments(cls)
                self._instances[cls] = cls()
            return cast(T, self._instances[cls])


def _require_no_arguments(cls: type) -> None:
    try:
        inspect.signature(cls).bind()
    except ValueError:
        return  # a class written in C may have no signature to look at
    except TypeError as error:
        raise ConfigurationError(
            f"{cls.__module__}.{cls.__qualname__} cannot be made without arguments ({error}); "
            f"give the scheduler an instance_resolver that knows how, or use a function as the target"
        ) from None
