"""
What may run as a job, how it is named in the database, and how the name finds its function again.

A stored target is ``module:qualname``, or the stable name that ``@scheduler.job(name=…)`` gave it.
Whoever can write to the database can write any name there, so a name is worth nothing by itself:
the policy is asked before anything is imported, only classes are looked into, only at plain names
in their own ``__dict__``, and what is found must come from a module that the policy allows too.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from ratchet.api.capture import capture, is_lambda
from ratchet.model.errors import InvalidJob, InvalidTarget, TargetNotAllowed, TargetNotFound
from ratchet.model.payload import ParameterTypes
from ratchet.model.status import BackoffPolicy, Lane, Priority
from ratchet.spi.invocation_resolver import Invocation, StoredCall
from ratchet.spi.target_policy import TargetPolicy

#: Where ``@scheduler.job`` leaves its declaration on the function.
DECLARATION: Final = "__ratchet_job__"

#: The longest name a store keeps.
NAME_LIMIT: Final = 500

_MAIN: Final = "__main__"
_LOCALS: Final = "<locals>"
_NAME: Final = r"[^\W\d]\w*"
_STORED: Final = re.compile(rf"({_NAME}(?:\.{_NAME})*):({_NAME}(?:\.{_NAME})*)")
_BUILTINS: Final = (types.BuiltinFunctionType, types.BuiltinMethodType)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeclaration:
    """What ``@scheduler.job`` says about a function: its stable name and the defaults of its jobs."""

    name: str
    aliases: tuple[str, ...] = ()
    max_retries: int = 0
    backoff: BackoffPolicy = BackoffPolicy.NONE
    backoff_base: timedelta = timedelta(0)
    jitter: float = 0.0
    timeout: timedelta | None = None
    priority: Priority = Priority.NORMAL
    tags: tuple[str, ...] = ()
    resource: str | None = None
    no_retry_for: tuple[type[BaseException], ...] = ()
    lane: Lane | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        for name in (self.name, *self.aliases):
            if (
                not isinstance(name, str)
                or not name.strip()
                or len(name) > NAME_LIMIT
                or not name.isprintable()
            ):
                raise InvalidJob(
                    f"a job's name must be printable and have 1 to {NAME_LIMIT} characters, not {name!r}"
                )
        if self.max_retries < 0:
            raise InvalidJob(
                f"max_retries of {self.name!r} must not be negative, but is {self.max_retries!r}"
            )
        for error in self.no_retry_for:
            if not (isinstance(error, type) and issubclass(error, BaseException)):
                raise InvalidJob(f"no_retry_for of {self.name!r} takes exception classes, not {error!r}")


@dataclass(frozen=True, slots=True)
class TargetReference:
    """A target as the database will know it, beside the function it means in this process."""

    name: str
    function: Callable[..., Any]
    is_coroutine: bool
    lane: Lane
    #: The class whose instance the method needs, and the method's name; None for all else.
    owner: type | None = None
    method: str | None = None
    #: The target lives in ``__main__``: only nodes started from the same script can run it.
    in_main: bool = False
    declaration: JobDeclaration | None = None


def default_name(function: Callable[..., Any]) -> str:
    """The name under which *function* is stored unless it is declared with another."""
    return f"{function.__module__}:{function.__qualname__}"


def declaration_of(target: object) -> JobDeclaration | None:
    """What ``@scheduler.job`` said about *target*, a function or a method; None if nothing."""
    declaration = getattr(target, DECLARATION, None)
    return declaration if isinstance(declaration, JobDeclaration) else None


class TargetRegistry:
    """
    Names the targets of one scheduler and finds them again; the stock ``InvocationResolver``.

    Declared functions are found by name or alias without import and without asking the policy:
    their code has already run here. All others are imported when first needed, if the policy
    allows. Safe to use from several threads.
    """

    def __init__(self, policy: TargetPolicy) -> None:
        self._policy = policy
        self._declared: dict[str, tuple[Callable[..., Any], JobDeclaration]] = {}
        self._references: dict[object, TargetReference] = {}
        self._arguments: dict[object, _Arguments] = {}
        self._invocations: dict[str, Invocation] = {}

    # --- declaring ---

    def declare(self, function: Callable[..., Any], declaration: JobDeclaration) -> None:
        """
        Make *function* known under its declared name and aliases, and allow it.

        The same function declared again (a reloaded module, an application factory that ran twice)
        replaces the older one; a name that another function holds is refused.
        """
        for name in (declaration.name, *declaration.aliases):
            holder, _ = self._declared.get(name, (function, None))
            if default_name(holder) != default_name(function):
                raise InvalidJob(
                    f"the job name {name!r} is already taken by {default_name(holder)}; "
                    f"give {default_name(function)} another name or drop the alias"
                )
        setattr(function, DECLARATION, declaration)
        for name in (declaration.name, *declaration.aliases):
            self._declared[name] = (function, declaration)
            self._invocations.pop(name, None)
        self._references.pop(function, None)

    @property
    def declared_names(self) -> frozenset[str]:
        """Every name and alias that was declared here."""
        return frozenset(self._declared)

    # --- at submit ---

    def describe(
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> StoredCall:
        """
        The storable form of ``target(*args, **kwargs)``, or of the one call in a lambda.

        Arguments that do not fit the signature are refused here, where the mistake was made.
        """
        kwargs = dict(kwargs or {})
        if is_lambda(target):
            if args or kwargs:
                raise InvalidTarget(
                    "a lambda brings its own arguments; write enqueue(lambda: orders.process(order_id)) "
                    "or enqueue(orders.process, order_id)"
                )
            call = capture(target)
            target, args, kwargs = call.function, call.args, call.kwargs
        reference = self.reference(target)
        self._arguments_of(reference).require(args, kwargs)
        return StoredCall(reference.name, tuple(args), kwargs, reference.lane, reference.in_main)

    def reference(self, target: Callable[..., Any]) -> TargetReference:
        """
        How *target* is stored and run.

        A bound method is stored as class and method: its instance's state is not kept, and the
        worker gets an instance of that class from the ``InstanceResolver``. A method reached
        through a class is stored under the class that defines it.
        """
        key = _cache_key(target)
        try:
            known = self._references.get(key)
        except TypeError:  # unhashable: nothing that could be a function
            known, key = None, None
        if known is None:
            known = self._reference(target)
            if key is not None:
                self._references[key] = known
        return known

    def _reference(self, target: Any) -> TargetReference:
        declaration = declaration_of(target)
        if declaration is not None:
            # The decorator may belong to another scheduler of this process; its word counts here too.
            _, known = self._declared.get(declaration.name, (None, None))
            if known is not declaration:
                self.declare(getattr(target, "__func__", target), declaration)
            return _declared_reference(declaration.name, target, declaration)
        _require_storable(target)
        module, qualname = _address(target)
        name = f"{module}:{qualname}"
        _require_plain(name, target)
        self._require_allowed(name)
        found = _find_in_loaded(module, qualname)
        if found is None or not found.is_same(target):
            raise InvalidTarget(
                f"importing {name} does not give the object that was passed, so a worker would run something else; "
                f"pass the function that the module exports (and use functools.wraps in decorators)"
            )
        self._require_origin_allowed(name, found)
        return found.reference(name, None)

    def _require_allowed(self, name: str) -> None:
        if not self._policy.allows(name):
            raise TargetNotAllowed(f"the target policy does not allow {name}; {self._policy.hint(name)}")

    def _arguments_of(self, reference: TargetReference) -> _Arguments:
        known = self._arguments.get(reference.function)
        if known is None:
            known = self._arguments[reference.function] = _Arguments(reference)
        return known

    # --- on the worker ---

    def resolve(self, target: str) -> Invocation:
        """
        The invocation stored as *target*.

        Raises ``TargetNotAllowed`` before anything is imported, and again if what is found comes from
        elsewhere; ``TargetNotFound`` if this node lacks the module or the attribute.
        """
        known = self._invocations.get(target)
        if known is None:
            known = self._invocations[target] = _invocation(target, self._resolve(target))
        return known

    def _resolve(self, target: str) -> TargetReference:
        if target not in self._declared:
            module = self._import(target)
            if target not in self._declared:  # importing it may have declared it
                found = _find(target, module, target.partition(":")[2])
                self._require_origin_allowed(target, found)
                return found.reference(target, declaration_of(found.value))
        return _declared_reference(target, *self._declared[target])

    def _import(self, target: str) -> types.ModuleType:
        """The target's module, imported only if the policy allows the target."""
        if not _STORED.fullmatch(target):
            raise TargetNotFound(
                f"no job named {target!r} is declared on this node; import the module that declares it with "
                f"@scheduler.job(name={target!r}) before the node starts"
            )
        if _has_dunder(target):
            raise TargetNotAllowed(
                f"{target} reaches into Python's own attributes; no target policy allows that"
            )
        self._require_allowed(target)
        return _imported(target, target.partition(":")[0])

    def _require_origin_allowed(self, target: str, found: _Found) -> None:
        # `from os import system` in an allowed module must not make it a job.
        for origin in found.origins():
            if origin != target and not self._policy.allows(origin):
                raise TargetNotAllowed(
                    f"{target} is really {origin}, which the target policy does not allow; {self._policy.hint(origin)}"
                )


# --- from object to name ------------------------------------------------------------------------


def _cache_key(target: Any) -> object:
    if inspect.ismethod(target):
        owner = target.__self__
        return (owner if isinstance(owner, type) else type(owner), target.__func__, isinstance(owner, type))
    return target


def _require_storable(target: Any) -> None:
    """Refuse everything but a function or method that has a name, showing the form that works."""
    if isinstance(target, functools.partial):
        inner = getattr(target.func, "__qualname__", "function")
        raise InvalidTarget(
            f"functools.partial cannot be stored; pass function and arguments: enqueue({inner}, …) "
            f"or enqueue(lambda: {inner}(…))"
        )
    if isinstance(target, type):
        raise InvalidTarget(
            f"{target.__qualname__} is a class; pass one of its methods, enqueue({target.__qualname__}.method, …), "
            f"or a function that makes the instance"
        )
    if inspect.iscoroutine(target):
        target.close()  # it will not run; say so once, not again as a "never awaited" warning
        raise InvalidTarget(
            f"{target.__qualname__}(…) was already called; pass the function and its arguments: "
            f"enqueue({target.__qualname__}, …)"
        )
    if is_lambda(target):
        raise InvalidTarget(
            "a lambda can be a target only as a direct argument and as one call, enqueue(lambda: orders.process(order_id)); "
            "write a function at module level here"
        )
    if not _is_function(target):
        kind = type(target).__qualname__
        hint = (
            f"it is an object of class {kind}; pass a function or a named method: enqueue({kind}.method, …)"
            if callable(target)
            else "it cannot be called; did you call the function? Write enqueue(function, argument)"
        )
        raise InvalidTarget(f"{_shown(target)} cannot become a job: {hint}")
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        raise InvalidTarget(
            f"{target.__qualname__} yields, so calling it runs nothing; write a function that consumes it"
        )


def _is_function(target: object) -> bool:
    return inspect.isfunction(target) or inspect.ismethod(target) or isinstance(target, _BUILTINS)


def _address(target: Any) -> tuple[str, str]:
    """Module and qualified name of a function or method."""
    if inspect.ismethod(target):
        owner = target.__self__ if isinstance(target.__self__, type) else type(target.__self__)
        return owner.__module__, f"{owner.__qualname__}.{target.__name__}"
    module = getattr(target, "__module__", None)
    receiver = getattr(target, "__self__", None)
    if not isinstance(module, str) or (receiver is not None and not isinstance(receiver, types.ModuleType)):
        raise InvalidTarget(
            f"{_shown(target)} is a method of a built-in object; write a function at module level that calls it"
        )
    return module, target.__qualname__


def _require_plain(name: str, target: Any) -> None:
    if _LOCALS in name:
        raise InvalidTarget(
            f"{name} is defined inside a function, where no worker can find it; move it to module level, "
            f"pass what it needs as arguments: enqueue({target.__name__}, …), or declare it with @scheduler.job"
        )
    if not _STORED.fullmatch(name) or _has_dunder(name):
        raise InvalidTarget(
            f"{name} is not a plain name that a worker could import; write a function around it"
        )
    if len(name) > NAME_LIMIT:
        raise InvalidTarget(
            f"{name[:60]}… is longer than {NAME_LIMIT} characters; declare it with @scheduler.job(name=…)"
        )


def _has_dunder(name: str) -> bool:
    module, _, qualname = name.partition(":")
    parts = qualname.split(".") + ([] if module == _MAIN else module.split("."))
    return any(part.startswith("__") for part in parts)


def _shown(target: object) -> str:
    try:
        text = repr(target)
    except Exception:  # a user's __repr__ may raise; the refusal matters more
        text = f"an object of class {type(target).__qualname__}"
    return text if len(text) <= 120 else text[:119] + "…"


# --- from name to object ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """What a plain name leads to: the entry in the ``__dict__`` of a module or class."""

    entry: Any
    #: The class on which the name was looked up, if any, and the name there.
    holder: type | None
    attribute: str

    @property
    def is_instance_method(self) -> bool:
        return self.holder is not None and inspect.isfunction(self.entry)

    @property
    def value(self) -> Any:
        """The function to call; a class method comes bound to the class it was looked up on."""
        if isinstance(self.entry, staticmethod):
            return self.entry.__func__
        if isinstance(self.entry, classmethod):
            return self.entry.__get__(None, self.holder)
        return self.entry

    def is_same(self, target: Any) -> bool:
        return getattr(self.value, "__func__", self.value) is getattr(target, "__func__", target)

    def origins(self) -> tuple[str, ...]:
        """Where the function and the class around it were really defined."""
        function = getattr(self.value, "__func__", self.value)
        origins = [
            f"{getattr(function, '__module__', None)}:{getattr(function, '__qualname__', self.attribute)}"
        ]
        code = getattr(inspect.unwrap(function), "__globals__", {}).get("__name__")
        if isinstance(code, str) and code != getattr(function, "__module__", None):
            origins.append(f"{code}:{self.attribute}")  # a rewritten __module__ deceives nobody
        if self.holder is not None:
            origins.append(f"{self.holder.__module__}:{self.holder.__qualname__}")
        return tuple(origins)

    def reference(self, name: str, declaration: JobDeclaration | None) -> TargetReference:
        owner = self.holder if self.is_instance_method else None
        return _reference_to(name, self.value, owner, self.attribute if owner else None, declaration)


def _imported(target: str, module: str) -> types.ModuleType:
    try:
        # Also for a loaded module: another thread may be in the middle of importing it.
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(error.name + ".")):
            raise TargetNotFound(
                f"{target} cannot run here: there is no module {error.name!r} on this node; "
                f"deploy it, or declare the job's new place with @scheduler.job(aliases=[{target!r}])"
            ) from error
        raise _import_failed(target, module, error) from error
    except (Exception, SystemExit) as error:
        raise _import_failed(target, module, error) from error


def _import_failed(target: str, module: str, error: BaseException) -> TargetNotFound:
    return TargetNotFound(
        f"{target} cannot run here: importing {module!r} raised {type(error).__name__}: {error}; "
        f"see that `python -c 'import {module}'` works on this node"
    )


def _find(target: str, module: types.ModuleType, qualname: str) -> _Found:
    found = _find_in(module, qualname)
    if found is None or not _is_function(found.value):
        where = (
            "the script this node was started from"
            if module.__name__ == _MAIN
            else f"module {module.__name__!r}"
        )
        raise TargetNotFound(
            f"{target} cannot run here: {where} has no function or method {qualname!r}; "
            f"deploy the version that has it, or declare its new name with @scheduler.job(aliases=[{target!r}])"
        )
    return found


def _find_in_loaded(module: str, qualname: str) -> _Found | None:
    loaded = sys.modules.get(module)
    return None if loaded is None else _find_in(loaded, qualname)


def _find_in(module: types.ModuleType, qualname: str) -> _Found | None:
    """
    Follow *qualname* through classes only, reading ``__dict__``.

    ``getattr`` would run descriptors, and passing through an imported module would reach anything.
    """
    *classes, attribute = qualname.split(".")
    holder: type | None = None
    for name in classes:
        inner = vars(module).get(name) if holder is None else vars(holder).get(name)
        if not isinstance(inner, type):
            return None
        holder = inner
    if holder is None:
        if attribute not in vars(module):
            return None
        return _Found(vars(module)[attribute], None, attribute)
    for base in holder.__mro__:
        if attribute in vars(base):
            return _Found(vars(base)[attribute], holder, attribute)
    return None


def _declared_reference(name: str, target: Any, declaration: JobDeclaration) -> TargetReference:
    """
    The reference of a declared function.

    Where its module exports it wrapped in a further decorator, the outermost one runs; where the
    module does not export it at all (declared inside an application factory), it runs as it is.
    """
    if inspect.ismethod(target):
        module, qualname = _address(target)
    else:
        module, qualname = target.__module__, target.__qualname__
    _require_storable(target)
    found = None if _LOCALS in qualname else _find_in_loaded(module, qualname)
    if found is not None and declaration_of(found.value) is declaration:
        return found.reference(name, declaration)
    if "." in qualname.rpartition(f"{_LOCALS}.")[2]:
        raise InvalidTarget(
            f"{module}:{qualname} is a method of a class that no worker can find; move the class to module level"
        )
    return _reference_to(name, target, None, None, declaration)


def _reference_to(
    name: str,
    function: Callable[..., Any],
    owner: type | None,
    method: str | None,
    declaration: JobDeclaration | None,
) -> TargetReference:
    is_coroutine = inspect.iscoroutinefunction(function)
    return TargetReference(
        name=name,
        function=function,
        is_coroutine=is_coroutine,
        lane=_lane(name, is_coroutine, declaration),
        owner=owner,
        method=method,
        in_main=name.startswith(f"{_MAIN}:"),
        declaration=declaration,
    )


def _lane(name: str, is_coroutine: bool, declaration: JobDeclaration | None) -> Lane:
    natural = Lane.ASYNC if is_coroutine else Lane.THREAD
    if declaration is None or declaration.lane is None:
        return natural
    if declaration.lane not in (natural, Lane.PROCESS):
        kind = "async def" if is_coroutine else "a plain function"
        raise InvalidJob(
            f"{name} is {kind} and cannot run in the {declaration.lane} lane; leave lane out, or use lane='process'"
        )
    return Lane(declaration.lane)


def _invocation(target: str, reference: TargetReference) -> Invocation:
    return Invocation(
        target=target,
        function=reference.function,
        is_coroutine=reference.is_coroutine,
        lane=reference.lane,
        owner=reference.owner,
        method=reference.method,
        parameters=ParameterTypes.of(reference.function, skip_first=reference.owner is not None),
        no_retry_for=reference.declaration.no_retry_for if reference.declaration else (),
    )


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib

        # A name that exists for type checkers only must not hide the parameters.
        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    else:
        return inspect.signature(function)


class _Arguments:
    """Checks that arguments fit a target's signature; positional ones by counting alone."""

    def __init__(self, reference: TargetReference) -> None:
        self._name = reference.name
        self._receiver = (None,) if reference.owner is not None else ()
        self._fewest, self._most = 1, 0  # nothing passes by counting unless shown otherwise
        try:
            self._signature: inspect.Signature | None = _signature(reference.function)
        except (TypeError, ValueError):  # some functions written in C do not tell
            self._signature = None
            return
        kinds = [(p.kind, p.default is p.empty) for p in self._signature.parameters.values()]
        if not any(required and kind is inspect.Parameter.KEYWORD_ONLY for kind, required in kinds):
            positional = [r for kind, r in kinds if kind in _POSITIONAL]
            self._fewest = sum(positional) - len(self._receiver)
            self._most = len(positional) - len(self._receiver)

    def require(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Raise ``InvalidJob`` where calling the target with these arguments would be a TypeError."""
        if self._signature is None or (not kwargs and self._fewest <= len(args) <= self._most):
            return
        try:
            self._signature.bind(*self._receiver, *args, **kwargs)
        except TypeError as error:
            raise InvalidJob(f"the arguments do not fit {self._name}{self._signature}: {error}") from None


_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
