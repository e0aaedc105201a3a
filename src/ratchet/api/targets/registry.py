"""`TargetRegistry`: names the targets of one scheduler and finds them again."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

from ratchet.api.submit.capture import capture, is_lambda
from ratchet.api.targets.arguments import Arguments
from ratchet.api.targets.declaration import DECLARATION, JobDeclaration, declaration_of, default_name
from ratchet.api.targets.lookup import Found, find, find_in_loaded, imported
from ratchet.api.targets.names import (
    LOCALS,
    STORED,
    address,
    cache_key,
    has_dunder,
    require_plain,
    require_storable,
)
from ratchet.api.targets.reference import TargetReference
from ratchet.model.errors import InvalidJob, InvalidTarget, TargetNotAllowed, TargetNotFound
from ratchet.spi.invocation_resolver import Invocation, StoredCall
from ratchet.spi.target_policy import TargetPolicy


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
        if isinstance(function, types.FunctionType):
            self._functions.pop(function, None)

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
        declaration = declaration_of(target)
        if declaration is not None:
            # The decorator may belong to another scheduler of this process; its word counts here too.
            _, known = self._declared.get(declaration.name, (None, None))
            if known is not declaration:
                self.declare(getattr(target, "__func__", target), declaration)
            return _declared_reference(declaration.name, target, declaration)
        require_storable(target)
        module, qualname = address(target)
        name = f"{module}:{qualname}"
        require_plain(name, target)
        self._require_allowed(name)
        found = find_in_loaded(module, qualname)
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
        if target not in self._declared:
            module = self._import(target)
            if target not in self._declared:  # importing it may have declared it
                found = find(target, module, target.partition(":")[2])
                self._require_origin_allowed(target, found)
                return found.reference(target, declaration_of(found.value))
        return _declared_reference(target, *self._declared[target])

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
        self._require_allowed(target)
        return imported(target, target.partition(":")[0])

    def _require_origin_allowed(self, target: str, found: Found) -> None:
        # `from os import system` in an allowed module must not make it a job.
        for origin in found.origins():
            if origin != target and not self._policy.allows(origin):
                raise TargetNotAllowed(
                    f"{target} is really {origin}, which the target policy does not allow; {self._policy.hint(origin)}"
                )


def _declared_reference(name: str, target: Any, declaration: JobDeclaration) -> TargetReference:
    """
    The reference of a declared function.

    Where its module exports it wrapped in a further decorator, the outermost one runs; where the
    module does not export it at all (declared inside an application factory), it runs as it is.
    """
    if inspect.ismethod(target):
        module, qualname = address(target)
    else:
        module, qualname = target.__module__, target.__qualname__
    require_storable(target)
    found = None if LOCALS in qualname else find_in_loaded(module, qualname)
    if found is not None and declaration_of(found.value) is declaration:
        return found.reference(name, declaration)
    if "." in qualname.rpartition(f"{LOCALS}.")[2]:
        raise InvalidTarget(
            f"{module}:{qualname} is a method of a class that no worker can find; move the class to module level"
        )
    return TargetReference.to(name, target, declaration=declaration)
