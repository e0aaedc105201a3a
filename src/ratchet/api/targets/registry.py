"""
`TargetRegistry`: names the targets of one scheduler and finds them again.

What the decorators left on a function is read here too (`declaration_of`, `protection_of`), as is what
follows from the function itself: its stored name and lane (`TargetReference`) and whether arguments fit
its signature (`Arguments`). `names` leads from an object to its name, `lookup` from a name to its object.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final
from weakref import WeakKeyDictionary

from ratchet.api.submit.capture import capture, is_lambda
from ratchet.api.targets.lookup import Found, find, find_in_loaded, imported
from ratchet.api.targets.names import (
    LOCALS,
    NAME_LIMIT,
    NamedTarget,
    address,
    cache_key,
    default_name,
    require_plain,
    require_storable,
)
from ratchet.model.breaker import Guard
from ratchet.model.errors import InvalidJob, InvalidTarget, TargetNotAllowed, TargetNotFound
from ratchet.model.payload import ParameterTypes
from ratchet.model.script import MAIN, importable_name
from ratchet.model.status import BackoffPolicy, Lane, Priority
from ratchet.model.stored_names import STORED, has_dunder
from ratchet.spi.invocation_resolver import Invocation, StoredCall
from ratchet.spi.target_policy import TargetPolicy

#: Where ``@scheduler.job`` leaves its declaration on the function, and whose it is: the first scheduler's.
DECLARATION: Final = "__ratchet_job__"
_OWNER: Final = "__ratchet_owner__"
#: The declarations of other schedulers, by their registry.
_OTHERS: Final = "__ratchet_other_jobs__"
_PROTECTION: Final = "__ratchet_breaker__"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


# --- what decorators left on a function -----------------------------------------------------------


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
    masked: tuple[str, ...] = ()

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


def declaration_of(target: Any, registry: object = None) -> JobDeclaration | None:
    """What ``@scheduler.job`` said about a function or method: to the scheduler of *registry*, or else to the first."""
    function = getattr(target, "__func__", target)
    if registry is not None and getattr(function, _OWNER, None) is registry:
        return _first_said(function)  # as for most: it was declared once
    return _said_to(registry, function) or _first_said(function)


def _first_said(function: Any) -> JobDeclaration | None:
    declaration = getattr(function, DECLARATION, None)
    return declaration if isinstance(declaration, JobDeclaration) else None


def _said_to(registry: object, function: Any) -> JobDeclaration | None:
    """What was declared on the scheduler of *registry* itself."""
    if getattr(function, _OWNER, None) is registry:
        return _first_said(function)
    others = getattr(function, _OTHERS, None)
    if not isinstance(others, WeakKeyDictionary) or not isinstance(registry, TargetRegistry):
        return None
    declaration: JobDeclaration | None = others.get(registry)
    return declaration


@dataclass(frozen=True, slots=True)
class Protection:
    """What `circuit_breaker` says about a function or class: the service, and how its calls are judged."""

    service: str
    guard: Guard


def protect(target: Any, protection: Protection) -> None:
    """Leave *protection* on a function or class."""
    setattr(target, _PROTECTION, protection)


def protection_of(target: Any) -> Protection | None:
    """What `circuit_breaker` said about a function or method, or else about its class."""
    function = getattr(target, "__func__", target)
    own = getattr(function, _PROTECTION, None)
    if isinstance(own, Protection):
        return own
    if type(target) is types.FunctionType and "." not in target.__qualname__:
        return None  # as most: it is of no class
    owner = _class_of(target)
    inherited = getattr(owner, _PROTECTION, None) if owner is not None else None
    return inherited if isinstance(inherited, Protection) else None


def breaker_of(target: Any) -> str | None:
    """The service that *target* depends on; None if none was named."""
    protection = protection_of(target)
    return None if protection is None else protection.service


def _class_of(target: Any) -> type | None:
    if inspect.ismethod(target):
        receiver = target.__self__
        return receiver if isinstance(receiver, type) else type(receiver)
    written = getattr(target, "__qualname__", "")
    if "." not in written or "<locals>" in written:
        return None
    path = written.split(".")[:-1]
    scope: Any = getattr(target, "__globals__", {})
    owner: type | None = None
    for name in path:
        inner = scope.get(name)
        if not isinstance(inner, type):
            return None
        owner, scope = inner, vars(inner)
    return owner


# --- what follows from the function itself ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetReference:
    """A target: its name in the database, and the function it means in this process."""

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

    @classmethod
    def to(
        cls,
        name: str,
        function: Callable[..., Any],
        *,
        owner: type | None = None,
        method: str | None = None,
        declaration: JobDeclaration | None = None,
    ) -> TargetReference:
        """The reference to *function*, which runs in its natural lane or in its declared one."""
        is_coroutine = inspect.iscoroutinefunction(function)
        return cls(
            name=name,
            function=function,
            is_coroutine=is_coroutine,
            lane=_lane(name, is_coroutine, declaration),
            owner=owner,
            method=method,
            in_main=name.startswith(f"{MAIN}:"),
            declaration=declaration,
        )

    @classmethod
    def found(cls, name: str, found: Found, declaration: JobDeclaration | None) -> TargetReference:
        """The reference to what a lookup of *name* has *found*."""
        owner = found.holder if found.is_instance_method else None
        method = found.attribute if owner else None
        return cls.to(name, found.value, owner=owner, method=method, declaration=declaration)

    def invocation(self) -> Invocation:
        """What a worker calls."""
        return Invocation(
            target=self.name,
            function=self.function,
            is_coroutine=self.is_coroutine,
            lane=self.lane,
            owner=self.owner,
            method=self.method,
            parameters=ParameterTypes.of(self.function, skip_first=self.owner is not None),
            no_retry_for=self.declaration.no_retry_for if self.declaration else (),
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


class Arguments:
    """
    Checks that arguments fit a target's signature; if all are positional, it only counts them.

    ``enqueue_now`` on SQLite takes 82 µs so, and 92 µs if every call is bound to the signature.
    """

    def __init__(self, reference: TargetReference) -> None:
        self._name = reference.name
        self._receiver = (None,) if reference.owner is not None else ()
        self._fewest, self._most = 1, 0  # no number fits, unless the signature says so
        try:
            self._signature: inspect.Signature | None = _signature(reference.function)
        except (TypeError, ValueError):  # some functions written in C have none
            self._signature = None
            return
        kinds = [(p.kind, p.default is p.empty) for p in self._signature.parameters.values()]
        if not any(required and kind is inspect.Parameter.KEYWORD_ONLY for kind, required in kinds):
            positional = [required for kind, required in kinds if kind in _POSITIONAL]
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


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    if sys.version_info >= (3, 14):
        import annotationlib

        # A name that exists for type checkers only must not hide the parameters.
        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF)
    else:
        return inspect.signature(function)


@lru_cache(maxsize=1024)
def _types_of(function: Callable[..., Any]) -> ParameterTypes:
    try:
        return ParameterTypes.of(function)
    except (TypeError, ValueError, NameError):
        return ParameterTypes()


def parameter_types(function: Any) -> ParameterTypes:
    """
    What *function*'s annotations mention.

    At submit only the classes that they name matter, so a method's ``self`` does no harm here.
    """
    return _types_of(getattr(function, "__func__", function))


# --- the registry ----------------------------------------------------------------------------------


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
        self._arguments: dict[object, Arguments] = {}
        self._functions: dict[types.FunctionType, tuple[TargetReference, Arguments]] = {}
        self._invocations: dict[str, Invocation] = {}
        #: True once its scheduler was closed, and until it is started: its functions may go to another.
        self.is_closed = False

    # --- declaring ---

    def declare(self, function: Callable[..., Any], declaration: JobDeclaration) -> bool:
        """
        Make *function* known under its declared name and aliases, and allow it; False if it belongs to another scheduler.

        A function belongs to the scheduler that declared it first, until that one is closed: an
        application factory that runs for every test makes a new scheduler each time. The same function
        declared again replaces the older one; a name that another function holds is refused.
        """
        for name in (declaration.name, *declaration.aliases):
            holder, _ = self._declared.get(name, (function, None))
            if default_name(holder) != default_name(function):
                raise InvalidJob(
                    f"the job name {name!r} is already taken by {default_name(holder)}; "
                    f"give {default_name(function)} another name or drop the alias"
                )
        before = _first_said(function)
        owner: TargetRegistry | None = None if before is None else getattr(function, _OWNER, None)
        belongs_here = owner is None or owner is self or owner.is_closed
        if before is not None and owner is not None and owner is not self:
            others = getattr(function, _OTHERS, None) or WeakKeyDictionary()
            setattr(function, _OTHERS, others)
            if belongs_here:
                others[owner] = before
                others.pop(self, None)
            else:
                others[self] = declaration
        if belongs_here:
            setattr(function, _OWNER, self)
            setattr(function, DECLARATION, declaration)
        self._know(function, declaration)
        return belongs_here

    def _know(self, function: Callable[..., Any], declaration: JobDeclaration) -> None:
        for name in (declaration.name, *declaration.aliases):
            self._declared[name] = (function, declaration)
            self._invocations.pop(name, None)
        self._references.pop(function, None)
        if isinstance(function, types.FunctionType):
            self._functions.pop(function, None)

    def declares(self, function: Callable[..., Any]) -> bool:
        """True if *function* was declared on this scheduler."""
        return _said_to(self, getattr(function, "__func__", function)) is not None

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
        kwargs = dict(kwargs) if kwargs else {}
        known = self._functions.get(target) if type(target) is types.FunctionType else None
        if known is None:
            if is_lambda(target):
                if args or kwargs:
                    raise InvalidTarget(
                        "a lambda brings its own arguments; write enqueue(lambda: orders.process(order_id)) "
                        "or enqueue(orders.process, order_id)"
                    )
                call = capture(target)
                target, args, kwargs = call.function, call.args, call.kwargs
            reference = self.reference(target)
            known = reference, self._arguments_of(reference)
            if type(target) is types.FunctionType:
                self._functions[target] = known
        reference, arguments = known
        arguments.require(args, kwargs)
        return StoredCall(reference.name, tuple(args), kwargs, reference.lane, reference.in_main)

    def reference(self, target: Callable[..., Any]) -> TargetReference:
        """
        How *target* is stored and run.

        A bound method is stored as class and method: its instance's state is not kept, and the
        worker gets an instance of that class from the ``InstanceResolver``. A method reached
        through a class is stored under the class that defines it.
        """
        key = cache_key(target)
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
        own = _said_to(self, getattr(target, "__func__", target))
        if own is not None:
            return self._declared_reference(own.name, target, own)
        require_storable(target)
        module, qualname = address(target)
        name = f"{importable_name(module)}:{qualname}"
        declaration = declaration_of(target)
        if declaration is not None:
            self._require_allowed_too(name)
            if LOCALS in qualname:  # made by an application factory: its declared name is the only one it has
                self._know(getattr(target, "__func__", target), declaration)
                return self._declared_reference(declaration.name, target, declaration)
        require_plain(name, target)
        self._require_allowed(name)
        found = find_in_loaded(module, qualname)
        if found is None or not found.is_same(target):
            raise InvalidTarget(
                f"importing {name} does not give the object that was passed, so a worker would run something else; "
                f"pass the function that the module exports (and use functools.wraps in decorators)"
            )
        self._require_origin_allowed(name, found)
        return TargetReference.found(name, found, declaration)

    def _allows(self, name: str) -> bool:
        """What the policy says; a script may be allowed under its own name or as ``__main__``."""
        if self._policy.allows(name):
            return True
        module, _, qualname = name.partition(":")
        return module == importable_name(MAIN) and self._policy.allows(f"{MAIN}:{qualname}")

    def _require_allowed(self, name: str) -> None:
        if not self._allows(name):
            raise TargetNotAllowed(f"the target policy does not allow {name}; {self._policy.hint(name)}")

    def _require_allowed_too(self, name: str) -> None:
        if not self._allows(name):
            raise TargetNotAllowed(
                f"{name} was declared on another scheduler, and this one does not allow it; submit it with the other "
                f"one, or {self._policy.hint(name)} of this scheduler"
            )

    def named(self, name: str) -> Callable[..., Any] | NamedTarget:
        """
        What a submission by *name* submits: the function, if it is declared here; else the name alone, if it is allowed.

        Nothing is imported. ``InvalidTarget`` for what can be no name, ``TargetNotAllowed`` where the policy refuses it.
        """
        known = self._declared.get(name) if isinstance(name, str) else None
        if known is not None:
            return known[0]
        target = NamedTarget.of(name)
        if not self._allows(name):
            raise TargetNotAllowed(
                f"no job {name} is declared here, and the target policy does not allow it; {self._policy.hint(name)}, "
                f"or import the module that declares it"
            )
        return target

    def _arguments_of(self, reference: TargetReference) -> Arguments:
        known = self._arguments.get(reference.function)
        if known is None:
            known = self._arguments[reference.function] = Arguments(reference)
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
            known = self._invocations[target] = self._resolve(target).invocation()
        return known

    def _resolve(self, target: str) -> TargetReference:
        known = self._declared_as(target)
        if known is None:
            module = self._import(target)
            known = self._declared_as(target)  # importing it may have declared it
            if known is None:
                found = find(target, module, target.partition(":")[2])
                self._require_origin_allowed(target, found)
                return TargetReference.found(target, found, declaration_of(found.value, self))
        return self._declared_reference(target, *known)

    def _declared_as(self, target: str) -> tuple[Callable[..., Any], JobDeclaration] | None:
        known = self._declared.get(target)
        if known is None and target.startswith(f"{MAIN}:"):
            # Version 0.1.0 stored the functions of a script as ``__main__:…``.
            known = self._declared.get(importable_name(MAIN) + target.removeprefix(MAIN))
        return known

    def lack(self, target: str) -> str | None:
        """What this process lacks to run *target*, as far as that can be said without an import; None if nothing."""
        if self._declared_as(target) is not None:
            return None
        if not STORED.fullmatch(target):
            return f"no job named {target!r} is declared here"
        if has_dunder(target) or not self._allows(target):
            module = target.partition(":")[0]
            return (
                f"the function is not declared here: import {module} (imports=[{module!r}], or --import {module}) if it "
                f"declares it; and the target policy does not allow it without: {self._policy.hint(target)}"
            )
        module, _, qualname = target.partition(":")
        if module in sys.modules and find_in_loaded(module, qualname) is None:
            return f"module {module!r} has no {qualname!r} here"
        return None

    def _import(self, target: str) -> types.ModuleType:
        """The target's module, imported only if the policy allows the target."""
        if not STORED.fullmatch(target):
            raise TargetNotFound(
                f"no job named {target!r} is declared on this node; import the module that declares it with "
                f"@scheduler.job(name={target!r}) before the node starts"
            )
        if has_dunder(target):
            raise TargetNotAllowed(
                f"{target} reaches into Python's own attributes; no target policy allows that"
            )
        if not self._allows(target):
            module = target.partition(":")[0]
            raise TargetNotAllowed(
                f"{target} is not declared on this node, and the target policy does not allow it; {self._policy.hint(target)}. "
                f"If {module!r} declares it, let the node import it: Scheduler(imports=[{module!r}]) or --import {module}"
            )
        return imported(target, target.partition(":")[0])

    def _require_origin_allowed(self, target: str, found: Found) -> None:
        # `from os import system` in an allowed module must not make it a job.
        for origin in found.origins():
            if origin != target and not self._allows(origin):
                raise TargetNotAllowed(
                    f"{target} is really {origin}, which the target policy does not allow; {self._policy.hint(origin)}"
                )

    def _declared_reference(self, name: str, target: Any, declaration: JobDeclaration) -> TargetReference:
        """
        The reference of a declared function.

        If its module exports it wrapped in another decorator, the wrapper runs. If the module does not
        export it at all (it was declared inside an application factory), it runs as it is.
        """
        if inspect.ismethod(target):
            module, qualname = address(target)
        else:
            module, qualname = target.__module__, target.__qualname__
        require_storable(target)
        found = None if LOCALS in qualname else find_in_loaded(module, qualname)
        if found is not None and declaration_of(found.value, self) is declaration:
            return TargetReference.found(name, found, declaration)
        if "." in qualname.rpartition(f"{LOCALS}.")[2]:
            raise InvalidTarget(
                f"{module}:{qualname} is a method of a class that no worker can find; move the class to module level"
            )
        return TargetReference.to(name, target, declaration=declaration)
