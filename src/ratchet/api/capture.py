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

import builtins
import dis
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn, TypeGuard
from uuid import UUID

from ratchet.model.errors import InvalidTarget

#: The interpreters whose bytecode this module knows.
SUPPORTED: Final = ((3, 11), (3, 14))

#: What an f-string may hold: formatting these runs no user code.
_PLAIN: Final = (str, int, float, bool, type(None), Decimal, UUID, date, datetime, time, timedelta)

_GENERATOR: Final = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
_VARIADIC: Final = 0x04 | 0x08  # CO_VARARGS, CO_VARKEYWORDS


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """The one call a lambda consists of; *function* is whatever stood before the parentheses."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def is_lambda(target: object) -> TypeGuard[FunctionType]:
    """True if *target* was written as a lambda expression."""
    return isinstance(target, FunctionType) and target.__name__ == "<lambda>"


def capture(function: FunctionType) -> CapturedCall:
    """
    The call that *function*, a lambda, would make if it were called now; it is not called.

    Raises ``InvalidTarget``, which shows the form that works, for a lambda that is anything but one
    call of a function or method with plain arguments.
    """
    try:
        plan = _plan(function.__code__)
        _require_defaults(function)
        return plan.call(function)
    except _Refusal as refusal:
        raise _refused(function, str(refusal)) from refusal.__cause__


class _Refusal(Exception):
    """Why a lambda cannot be captured."""


def _refused(function: FunctionType, why: str) -> InvalidTarget:
    code = function.__code__
    return InvalidTarget(
        f"the lambda at {code.co_filename}:{code.co_firstlineno} cannot become a job: {why}. Write one call of an "
        f"importable function with plain arguments, as in `lambda: orders.process(order_id)`, compute everything "
        f"else before it, or pass function and arguments: enqueue(orders.process, order_id)"
    )


def _require_defaults(function: FunctionType) -> None:
    code = function.__code__
    given = len(function.__defaults__ or ()) + len(function.__kwdefaults__ or ())
    if given < code.co_argcount + code.co_kwonlyargcount:
        raise _Refusal("it takes arguments")


# --- expressions --------------------------------------------------------------------------------


class _Expression:
    """Something on the symbolic stack that has a value for a given lambda."""

    __slots__ = ()

    def value(self, function: FunctionType) -> Any:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Constant(_Expression):
    constant: Any

    def value(self, function: FunctionType) -> Any:
        return self.constant


@dataclass(frozen=True, slots=True)
class _Closure(_Expression):
    name: str
    index: int

    def value(self, function: FunctionType) -> Any:
        cells = function.__closure__ or ()
        try:
            return cells[self.index].cell_contents
        except ValueError:
            raise _Refusal(f"the variable {self.name!r} has no value yet") from None


@dataclass(frozen=True, slots=True)
class _Global(_Expression):
    name: str

    def value(self, function: FunctionType) -> Any:
        try:
            return function.__globals__[self.name]
        except KeyError:
            pass
        try:
            return getattr(builtins, self.name)
        except AttributeError:
            raise _Refusal(f"the name {self.name!r} is not defined") from None


@dataclass(frozen=True, slots=True)
class _Parameter(_Expression):
    """A parameter, which stands for its default: ``lambda i=i: f(i)`` is how loops bind a value."""

    name: str
    position: int
    keyword_only: bool

    def value(self, function: FunctionType) -> Any:
        if self.keyword_only:
            return (function.__kwdefaults__ or {})[self.name]
        return (function.__defaults__ or ())[self.position]


@dataclass(frozen=True, slots=True)
class _Attribute(_Expression):
    owner: _Expression
    name: str

    def value(self, function: FunctionType) -> Any:
        owner = self.owner.value(function)
        try:
            return getattr(owner, self.name)
        except Exception as error:
            raise _Refusal(f"reading .{self.name} raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Item(_Expression):
    owner: _Expression
    key: _Expression

    def value(self, function: FunctionType) -> Any:
        owner, key = self.owner.value(function), self.key.value(function)
        try:
            return owner[key]
        except Exception as error:
            raise _Refusal(f"reading [{key!r}] raised {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Spread(_Expression):
    """``*items`` inside a call or a display."""

    items: _Expression

    def value(self, function: FunctionType) -> Any:
        items = self.items.value(function)
        if type(items) not in (tuple, list, set, frozenset):
            raise _Refusal(f"* takes a tuple, list or set here, not {type(items).__name__}")
        return items


@dataclass(frozen=True, slots=True)
class _Sequence(_Expression):
    """A tuple, list or set display."""

    kind: Callable[[Iterable[Any]], Any]
    parts: tuple[_Expression, ...]

    def value(self, function: FunctionType) -> Any:
        items: list[Any] = []
        for part in self.parts:
            if isinstance(part, _Spread):
                items.extend(part.value(function))
            else:
                items.append(part.value(function))
        return _built(self.kind, items)


@dataclass(frozen=True, slots=True)
class _Mapping(_Expression):
    """A dict display; a part without a key is ``**mapping``."""

    parts: tuple[tuple[_Expression | None, _Expression], ...]
    #: The keywords of a call: names, each given once.
    keywords: bool = False

    def value(self, function: FunctionType) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, part in self.parts:
            value = part.value(function)
            if key is not None:
                value = _built(dict, [(key.value(function), value)])
            elif type(value) is not dict:
                raise _Refusal(f"** takes a dict here, not {type(value).__name__}")
            if self.keywords:
                _require_new_names(result, value)
            result.update(value)
        return result


@dataclass(frozen=True, slots=True)
class _Formatted(_Expression):
    """One ``{value!conversion:spec}`` of an f-string."""

    part: _Expression
    conversion: Callable[[object], str] | None
    spec: _Expression | None = None

    def value(self, function: FunctionType) -> str:
        value = self.part.value(function)
        if type(value) not in _PLAIN:
            raise _Refusal(f"an f-string here may hold plain values only, not {type(value).__name__}")
        if self.conversion is not None:
            value = self.conversion(value)
        spec = "" if self.spec is None else self.spec.value(function)
        try:
            return format(value, spec)
        except (ValueError, TypeError) as error:
            raise _Refusal(
                f"formatting {value!r} with {spec!r} raised {type(error).__name__}: {error}"
            ) from error


@dataclass(frozen=True, slots=True)
class _Text(_Expression):
    """An f-string."""

    parts: tuple[_Expression, ...]

    def value(self, function: FunctionType) -> str:
        return "".join(part.value(function) for part in self.parts)


@dataclass(frozen=True, slots=True)
class _Call(_Expression):
    """The call itself. It has parts but no value: nothing is called here."""

    function: _Expression
    args: _Expression
    kwargs: _Expression

    def call(self, function: FunctionType) -> CapturedCall:
        args = self.args.value(function)
        return CapturedCall(self.function.value(function), tuple(args), self.kwargs.value(function))


class _Null(_Expression):
    """The empty slot that the interpreter keeps beside a callable."""

    __slots__ = ()


_NULL: Final = _Null()
_NO_ARGUMENTS: Final = _Mapping((), keywords=True)


def _built(kind: Callable[[Any], Any], items: list[Any]) -> Any:
    try:
        return kind(items)
    except TypeError as error:  # an unhashable element or key
        raise _Refusal(str(error)) from error


def _require_new_names(present: dict[Any, Any], added: dict[Any, Any]) -> None:
    for name in added:
        if not isinstance(name, str):
            raise _Refusal(f"keywords must be strings, not {name!r}")
        if name in present:
            raise _Refusal(f"the keyword {name!r} is given twice")


# --- reading the bytecode -----------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _plan(code: CodeType) -> _Call:
    _require_known_interpreter(sys.version_info[:2], sys.implementation.name)
    if code.co_flags & _GENERATOR:
        raise _Refusal("it contains yield or await")
    if code.co_flags & _VARIADIC:
        raise _Refusal("it takes arguments")
    if code.co_exceptiontable:
        raise _Refusal("it contains a comprehension")
    return _Reader(code, sys.version_info[:2]).read(dis.get_instructions(code))


def _require_known_interpreter(version: tuple[int, ...], implementation: str) -> None:
    if implementation != "cpython" or not SUPPORTED[0] <= version <= SUPPORTED[1]:
        raise _Refusal(
            f"lambdas are understood on CPython {SUPPORTED[0][0]}.{SUPPORTED[0][1]} to "
            f"{SUPPORTED[1][0]}.{SUPPORTED[1][1]} only, and this is {implementation} "
            f"{'.'.join(map(str, version))}; use enqueue(function, *arguments) here"
        )


_IGNORED: Final = frozenset({"RESUME", "COPY_FREE_VARS", "NOP", "PRECALL", "CACHE", "EXTENDED_ARG"})

_WHY: Final = (
    ("COMPARE|IS_OP|CONTAINS", "it contains a comparison"),
    ("JUMP|TO_BOOL|NOT_TAKEN|COPY|SWAP", "it contains a condition or an assignment"),
    ("BINARY_SLICE|BUILD_SLICE", "it contains a slice"),
    ("BINARY|UNARY|CALL_INTRINSIC", "it contains an operator"),
    ("MAKE_FUNCTION|MAKE_CELL|LOAD_CLOSURE", "it contains a function or a comprehension of its own"),
    ("GET_ITER|FOR_ITER", "it contains a comprehension"),
    ("STORE", "it contains an assignment"),
    ("SUPER", "it uses super()"),
    ("TEMPLATE|INTERPOLATION", "it contains a template string"),
)

_CONVERSIONS: Final[dict[int, Callable[[object], str]]] = {1: str, 2: repr, 3: ascii}


class _Reader:
    """Runs the instructions of one lambda over a stack of expressions."""

    def __init__(self, code: CodeType, version: tuple[int, ...]) -> None:
        self._code = code
        self._version = version
        self._stack: list[_Expression] = []
        self._keyword_names: tuple[str, ...] = ()

    def read(self, instructions: Iterable[dis.Instruction]) -> _Call:
        """The plan of the one call that the lambda returns."""
        for instruction in instructions:
            name = instruction.opname
            if name in _IGNORED:
                continue
            if name == "RETURN_VALUE":
                # Whatever follows a return belongs to a branch, and then a jump was refused before.
                return self._returned()
            if name == "RETURN_CONST":
                raise _Refusal("it is not a call")
            step = getattr(self, "_on_" + name.lower(), None)
            if step is None:
                _refuse(name)
            step(instruction)
        raise _Refusal("it does not return")

    def _returned(self) -> _Call:
        if len(self._stack) != 1:
            raise _Refusal("it is more than one call")
        call = self._stack[0]
        if not isinstance(call, _Call):
            raise _Refusal("it is not a call (did you forget the parentheses?)")
        return call

    def _push(self, expression: _Expression) -> None:
        self._stack.append(expression)

    def _pop_any(self) -> _Expression:
        if not self._stack:
            raise _Refusal("its bytecode is not understood")
        return self._stack.pop()

    def _pop(self) -> _Expression:
        expression = self._pop_any()
        if isinstance(expression, _Call):
            raise _Refusal("it contains a second call")
        if isinstance(expression, _Null):
            raise _Refusal("its bytecode is not understood")
        return expression

    def _pop_many(self, count: int) -> tuple[_Expression, ...]:
        return tuple(self._pop() for _ in range(count))[::-1]

    # Loads. The flag that asks for an empty slot beside a callable is the lowest bit of the argument.

    def _on_load_const(self, instruction: dis.Instruction) -> None:
        self._push(_Constant(instruction.argval))

    _on_load_small_int = _on_load_const

    def _on_load_deref(self, instruction: dis.Instruction) -> None:
        if instruction.argval not in self._code.co_freevars:
            raise _Refusal("its bytecode is not understood")
        self._push(_Closure(instruction.argval, self._code.co_freevars.index(instruction.argval)))

    def _on_load_fast(self, instruction: dis.Instruction) -> None:
        self._push(self._parameter(instruction.arg or 0))

    _on_load_fast_check = _on_load_fast
    _on_load_fast_borrow = _on_load_fast

    def _on_load_fast_load_fast(self, instruction: dis.Instruction) -> None:
        self._push(self._parameter((instruction.arg or 0) >> 4))
        self._push(self._parameter((instruction.arg or 0) & 15))

    _on_load_fast_borrow_load_fast_borrow = _on_load_fast_load_fast

    def _parameter(self, index: int) -> _Parameter:
        positional = self._code.co_argcount
        if index >= positional + self._code.co_kwonlyargcount:
            raise _Refusal("it contains an assignment or a function of its own")
        name = self._code.co_varnames[index]
        return _Parameter(name, index - positional, keyword_only=index >= positional)

    def _on_load_global(self, instruction: dis.Instruction) -> None:
        self._push_loaded(_Global(instruction.argval), callee=bool((instruction.arg or 0) & 1))

    def _on_load_attr(self, instruction: dis.Instruction) -> None:
        callee = self._version >= (3, 12) and bool((instruction.arg or 0) & 1)
        self._push_loaded(_Attribute(self._pop(), instruction.argval), callee=callee)

    def _on_load_method(self, instruction: dis.Instruction) -> None:
        self._push_loaded(_Attribute(self._pop(), instruction.argval), callee=True)

    def _push_loaded(self, expression: _Expression, *, callee: bool) -> None:
        """A callable has an empty slot beside it: before it up to 3.12, behind it from 3.13."""
        slot = [_NULL] if callee else []
        self._stack.extend([expression, *slot] if self._version >= (3, 13) else [*slot, expression])

    def _on_push_null(self, instruction: dis.Instruction) -> None:
        self._push(_NULL)

    # Subscripts.

    def _on_binary_subscr(self, instruction: dis.Instruction) -> None:
        key = self._pop()
        if isinstance(key, _Constant) and isinstance(key.constant, slice):
            raise _Refusal("it contains a slice")
        self._push(_Item(self._pop(), key))

    def _on_binary_op(self, instruction: dis.Instruction) -> None:
        if instruction.argrepr != "[]":
            raise _Refusal(f"it contains the operator {instruction.argrepr}")
        self._on_binary_subscr(instruction)

    # Displays.

    def _on_build_tuple(self, instruction: dis.Instruction) -> None:
        self._push(_Sequence(tuple, self._pop_many(instruction.arg or 0)))

    def _on_build_list(self, instruction: dis.Instruction) -> None:
        self._push(_Sequence(list, self._pop_many(instruction.arg or 0)))

    def _on_build_set(self, instruction: dis.Instruction) -> None:
        self._push(_Sequence(set, self._pop_many(instruction.arg or 0)))

    def _on_list_append(self, instruction: dis.Instruction) -> None:
        self._append(instruction, self._pop())

    _on_set_add = _on_list_append

    def _on_list_extend(self, instruction: dis.Instruction) -> None:
        self._append(instruction, _Spread(self._pop()))

    _on_set_update = _on_list_extend

    def _append(self, instruction: dis.Instruction, part: _Expression) -> None:
        display = self._pop()
        if instruction.arg != 1 or not isinstance(display, _Sequence):
            raise _Refusal("it contains a comprehension")
        self._push(_Sequence(display.kind, (*display.parts, part)))

    def _on_list_to_tuple(self, instruction: dis.Instruction) -> None:
        display = self._pop()
        if not isinstance(display, _Sequence):
            raise _Refusal("its bytecode is not understood")
        self._push(_Sequence(tuple, display.parts))

    def _on_call_intrinsic_1(self, instruction: dis.Instruction) -> None:
        if instruction.argrepr != "INTRINSIC_LIST_TO_TUPLE":
            raise _Refusal("it contains an operator")
        self._on_list_to_tuple(instruction)

    def _on_build_map(self, instruction: dis.Instruction) -> None:
        flat = self._pop_many(2 * (instruction.arg or 0))
        self._push(_Mapping(tuple(zip(flat[::2], flat[1::2], strict=True))))

    def _on_build_const_key_map(self, instruction: dis.Instruction) -> None:
        keys = self._pop()
        values = self._pop_many(instruction.arg or 0)
        if not isinstance(keys, _Constant):
            raise _Refusal("its bytecode is not understood")
        self._push(_Mapping(tuple(zip(map(_Constant, keys.constant), values, strict=True))))

    def _on_map_add(self, instruction: dis.Instruction) -> None:
        value = self._pop()
        self._add_to_mapping(instruction, self._pop(), value)

    def _on_dict_update(self, instruction: dis.Instruction) -> None:
        self._add_to_mapping(instruction, None, self._pop())

    def _on_dict_merge(self, instruction: dis.Instruction) -> None:
        self._add_to_mapping(instruction, None, self._pop(), keywords=True)

    def _add_to_mapping(
        self,
        instruction: dis.Instruction,
        key: _Expression | None,
        value: _Expression,
        *,
        keywords: bool = False,
    ) -> None:
        display = self._pop()
        if instruction.arg != 1 or not isinstance(display, _Mapping):
            raise _Refusal("it contains a comprehension")
        self._push(_Mapping((*display.parts, (key, value)), keywords=keywords or display.keywords))

    # Texts. FORMAT_VALUE up to 3.12, the other three from 3.13.

    def _on_format_value(self, instruction: dis.Instruction) -> None:
        flags = instruction.arg or 0
        spec = self._pop() if flags & 4 else None
        self._push(_Formatted(self._pop(), _CONVERSIONS.get(flags & 3), spec))

    def _on_convert_value(self, instruction: dis.Instruction) -> None:
        self._push(_Formatted(self._pop(), _CONVERSIONS.get(instruction.arg or 0)))

    def _on_format_simple(self, instruction: dis.Instruction) -> None:
        part = self._pop()
        self._push(part if isinstance(part, _Formatted) else _Formatted(part, None))

    def _on_format_with_spec(self, instruction: dis.Instruction) -> None:
        spec, part = self._pop(), self._pop()
        if isinstance(part, _Formatted):
            self._push(_Formatted(part.part, part.conversion, spec))
        else:
            self._push(_Formatted(part, None, spec))

    def _on_build_string(self, instruction: dis.Instruction) -> None:
        self._push(_Text(self._pop_many(instruction.arg or 0)))

    # The call. Its keywords come before it up to 3.12 and on the stack from 3.13.

    def _on_kw_names(self, instruction: dis.Instruction) -> None:
        self._keyword_names = self._code.co_consts[instruction.arg or 0]

    def _on_call(self, instruction: dis.Instruction) -> None:
        self._push_call(instruction.arg or 0, self._keyword_names)
        self._keyword_names = ()

    def _on_call_kw(self, instruction: dis.Instruction) -> None:
        names = self._pop()
        if not isinstance(names, _Constant):
            raise _Refusal("its bytecode is not understood")
        self._push_call(instruction.arg or 0, names.constant)

    def _push_call(self, count: int, names: tuple[str, ...]) -> None:
        values = self._pop_many(count)
        positional = count - len(names)
        keywords = tuple(zip(map(_Constant, names), values[positional:], strict=True))
        self._push(
            _Call(
                self._pop_callable(), _Sequence(tuple, values[:positional]), _Mapping(keywords, keywords=True)
            )
        )

    def _on_call_function_ex(self, instruction: dis.Instruction) -> None:
        # 3.14's documentation keeps the flag of the older versions, its compiler is said to leave an
        # empty slot instead: both are read, since the stack itself tells them apart.
        kwargs: _Expression = _NO_ARGUMENTS
        top = self._stack[-1] if self._stack else _NULL
        if (instruction.arg or 0) & 1 or (self._version >= (3, 14) and isinstance(top, _Null | _Mapping)):
            kwargs = self._pop_any()
            if isinstance(kwargs, _Null):
                kwargs = _NO_ARGUMENTS
            elif isinstance(kwargs, _Mapping):
                kwargs = _Mapping(kwargs.parts, keywords=True)
            else:
                raise _Refusal("it contains a second call")
        args = self._pop()
        # f(*items) hands over the variable itself, f(1, *items) a tuple made of it.
        if not isinstance(args, _Sequence | _Constant):
            args = _Spread(args)
        self._push(_Call(self._pop_callable(), args, kwargs))

    def _pop_callable(self) -> _Expression:
        """The callable, without the empty slot beside it."""
        first, second = self._pop_any(), self._pop_any()
        function = second if isinstance(first, _Null) else first
        other = first if isinstance(first, _Null) else second
        if isinstance(function, _Call):
            raise _Refusal("it contains a second call")
        if isinstance(function, _Null) or not isinstance(other, _Null):
            raise _Refusal("its bytecode is not understood")
        return function


def _refuse(opname: str) -> NoReturn:
    for fragments, why in _WHY:
        if any(fragment in opname for fragment in fragments.split("|")):
            raise _Refusal(why)
    raise _Refusal(f"it contains something other than a call with plain arguments ({opname})")
