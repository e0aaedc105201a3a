"""
Takes a lambda that is exactly one call apart into target and arguments, without running it.

``scheduler.enqueue(lambda: orders.process(order_id))`` must store ``orders.process`` and the value
of ``order_id``. The lambda's bytecode is read by a small symbolic evaluator: a stack of expressions
instead of values. The resulting plan is cached per code object; the values are taken from the
lambda's closure, globals and defaults each time.

Accepted as the function and as arguments: constants, closure variables, globals, parameters with a
default (``lambda i=i: f(i)``), attributes, subscripts, tuples, lists, sets and dicts of these,
``*`` and ``**`` of plain tuples, lists and dicts, and f-strings of plain values. Everything else
(another call, an operator, a comparison, a conditional, a comprehension, a slice) would have to be
computed now or on the worker, and which of the two is not visible in the code: it is refused.
Attributes and subscripts are the one thing that may run user code here, through a property or
``__getitem__``.
"""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Final, TypeGuard

from ratchet.model.errors import InvalidTarget

if TYPE_CHECKING:
    from ratchet.api.submit.capture.expressions import CapturedCall

__all__ = ["LAMBDA", "capture", "is_lambda"]

#: The name of every lambda.
LAMBDA: Final = "<lambda>"


def is_lambda(target: object) -> TypeGuard[FunctionType]:
    """True if *target* was written as a lambda expression."""
    return isinstance(target, FunctionType) and target.__name__ == LAMBDA


def capture(function: FunctionType) -> CapturedCall:
    """
    The call that *function*, a lambda, would make if it were called now; it is not called.

    Raises ``InvalidTarget``, which shows the form that works, for a lambda that is anything but one
    call of a function or method with plain arguments.
    """
    from ratchet.api.submit.capture.expressions import Refusal  # most programs pass functions
    from ratchet.api.submit.capture.reader import plan_of

    try:
        plan = plan_of(function.__code__)
        if _lacks_arguments(function):
            raise Refusal("it takes arguments")
        return plan.call(function)
    except Refusal as refusal:
        raise _refused(function, str(refusal)) from refusal.__cause__


def _refused(function: FunctionType, why: str) -> InvalidTarget:
    code = function.__code__
    return InvalidTarget(
        f"the lambda at {code.co_filename}:{code.co_firstlineno} cannot become a job: {why}. Write one call of an "
        f"importable function with plain arguments, as in `lambda: orders.process(order_id)`, compute everything "
        f"else before it, or pass function and arguments: enqueue(orders.process, order_id)"
    )


def _lacks_arguments(function: FunctionType) -> bool:
    code = function.__code__
    given = len(function.__defaults__ or ()) + len(function.__kwdefaults__ or ())
    return given < code.co_argcount + code.co_kwonlyargcount
