"""The reader: runs a lambda's bytecode over a stack of expressions."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from types import CodeType
from typing import Final, NoReturn

from ratchet.api.submit.capture.expressions import (
    NO_ARGUMENTS,
    NULL,
    Attribute,
    Call,
    Closure,
    Constant,
    Expression,
    Formatted,
    Global,
    Item,
    Mapping,
    Null,
    Parameter,
    Refusal,
    Sequence,
    Spread,
    Text,
)  # fmt: skip

#: The interpreters whose bytecode this module knows.
SUPPORTED: Final = ((3, 11), (3, 14))

_GENERATOR: Final = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
_VARIADIC: Final = 0x04 | 0x08  # CO_VARARGS, CO_VARKEYWORDS


@lru_cache(maxsize=4096)
def plan_of(code: CodeType) -> Call:
    """The one call of a lambda, as an expression; raises ``Refusal`` if it is anything else."""
    _require_known_interpreter(sys.version_info[:2], sys.implementation.name)
    if code.co_flags & _GENERATOR:
        raise Refusal("it contains yield or await")
    if code.co_flags & _VARIADIC:
        raise Refusal("it takes arguments")
    if code.co_exceptiontable:
        raise Refusal("it contains a comprehension")
    return Reader(code, sys.version_info[:2]).read(dis.get_instructions(code))


def _require_known_interpreter(version: tuple[int, ...], implementation: str) -> None:
    if implementation != "cpython" or not SUPPORTED[0] <= version <= SUPPORTED[1]:
        raise Refusal(
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


class Reader:
    """Runs the instructions of one lambda over a stack of expressions."""

    def __init__(self, code: CodeType, version: tuple[int, ...]) -> None:
        self._code = code
        self._version = version
        self._stack: list[Expression] = []
        self._keyword_names: tuple[str, ...] = ()

    def read(self, instructions: Iterable[dis.Instruction]) -> Call:
        """The plan of the one call that the lambda returns."""
        for instruction in instructions:
            name = instruction.opname
            if name in _IGNORED:
                continue
            if name == "RETURN_VALUE":
                # Whatever follows a return belongs to a branch, and then a jump was refused before.
                return self._returned()
            if name == "RETURN_CONST":
                raise Refusal("it is not a call")
            step = getattr(self, "_on_" + name.lower(), None)
            if step is None:
                _refuse(name)
            step(instruction)
        raise Refusal("it does not return")

    def _returned(self) -> Call:
        if len(self._stack) != 1:
            raise Refusal("it is more than one call")
        call = self._stack[0]
        if not isinstance(call, Call):
            raise Refusal("it is not a call (did you forget the parentheses?)")
        return call

    def _push(self, expression: Expression) -> None:
        self._stack.append(expression)

    def _pop_any(self) -> Expression:
        if not self._stack:
            raise Refusal("its bytecode is not understood")
        return self._stack.pop()

    def _pop(self) -> Expression:
        expression = self._pop_any()
        if isinstance(expression, Call):
            raise Refusal("it contains a second call")
        if isinstance(expression, Null):
            raise Refusal("its bytecode is not understood")
        return expression

    def _pop_many(self, count: int) -> tuple[Expression, ...]:
        return tuple(self._pop() for _ in range(count))[::-1]

    # Loads. The flag that asks for an empty slot beside a callable is the lowest bit of the argument.

    def _on_load_const(self, instruction: dis.Instruction) -> None:
        self._push(Constant(instruction.argval))

    _on_load_small_int = _on_load_const

    def _on_load_deref(self, instruction: dis.Instruction) -> None:
        if instruction.argval not in self._code.co_freevars:
            raise Refusal("its bytecode is not understood")
        self._push(Closure(instruction.argval, self._code.co_freevars.index(instruction.argval)))

    def _on_load_fast(self, instruction: dis.Instruction) -> None:
        self._push(self._parameter(instruction.arg or 0))

    _on_load_fast_check = _on_load_fast
    _on_load_fast_borrow = _on_load_fast

    def _on_load_fast_load_fast(self, instruction: dis.Instruction) -> None:
        self._push(self._parameter((instruction.arg or 0) >> 4))
        self._push(self._parameter((instruction.arg or 0) & 15))

    _on_load_fast_borrow_load_fast_borrow = _on_load_fast_load_fast

    def _parameter(self, index: int) -> Parameter:
        positional = self._code.co_argcount
        if index >= positional + self._code.co_kwonlyargcount:
            raise Refusal("it contains an assignment or a function of its own")
        name = self._code.co_varnames[index]
        return Parameter(name, index - positional, keyword_only=index >= positional)

    def _on_load_global(self, instruction: dis.Instruction) -> None:
        self._push_loaded(Global(instruction.argval), callee=bool((instruction.arg or 0) & 1))

    def _on_load_attr(self, instruction: dis.Instruction) -> None:
        callee = self._version >= (3, 12) and bool((instruction.arg or 0) & 1)
        self._push_loaded(Attribute(self._pop(), instruction.argval), callee=callee)

    def _on_load_method(self, instruction: dis.Instruction) -> None:
        self._push_loaded(Attribute(self._pop(), instruction.argval), callee=True)

    def _push_loaded(self, expression: Expression, *, callee: bool) -> None:
        """A callable has an empty slot beside it: before it up to 3.12, behind it from 3.13."""
        slot = [NULL] if callee else []
        self._stack.extend([expression, *slot] if self._version >= (3, 13) else [*slot, expression])

    def _on_push_null(self, instruction: dis.Instruction) -> None:
        self._push(NULL)

    # Subscripts.

    def _on_binary_subscr(self, instruction: dis.Instruction) -> None:
        key = self._pop()
        if isinstance(key, Constant) and isinstance(key.constant, slice):
            raise Refusal("it contains a slice")
        self._push(Item(self._pop(), key))

    def _on_binary_op(self, instruction: dis.Instruction) -> None:
        if instruction.argrepr != "[]":
            raise Refusal(f"it contains the operator {instruction.argrepr}")
        self._on_binary_subscr(instruction)

    # Displays.

    def _on_build_tuple(self, instruction: dis.Instruction) -> None:
        self._push(Sequence(tuple, self._pop_many(instruction.arg or 0)))

    def _on_build_list(self, instruction: dis.Instruction) -> None:
        self._push(Sequence(list, self._pop_many(instruction.arg or 0)))

    def _on_build_set(self, instruction: dis.Instruction) -> None:
        self._push(Sequence(set, self._pop_many(instruction.arg or 0)))

    def _on_list_append(self, instruction: dis.Instruction) -> None:
        self._append(instruction, self._pop())

    _on_set_add = _on_list_append

    def _on_list_extend(self, instruction: dis.Instruction) -> None:
        self._append(instruction, Spread(self._pop()))

    _on_set_update = _on_list_extend

    def _append(self, instruction: dis.Instruction, part: Expression) -> None:
        display = self._pop()
        if instruction.arg != 1 or not isinstance(display, Sequence):
            raise Refusal("it contains a comprehension")
        self._push(Sequence(display.kind, (*display.parts, part)))

    def _on_list_to_tuple(self, instruction: dis.Instruction) -> None:
        display = self._pop()
        if not isinstance(display, Sequence):
            raise Refusal("its bytecode is not understood")
        self._push(Sequence(tuple, display.parts))

    def _on_call_intrinsic_1(self, instruction: dis.Instruction) -> None:
        if instruction.argrepr != "INTRINSIC_LIST_TO_TUPLE":
            raise Refusal("it contains an operator")
        self._on_list_to_tuple(instruction)

    def _on_build_map(self, instruction: dis.Instruction) -> None:
        flat = self._pop_many(2 * (instruction.arg or 0))
        self._push(Mapping(tuple(zip(flat[::2], flat[1::2], strict=True))))

    def _on_build_const_key_map(self, instruction: dis.Instruction) -> None:
        keys = self._pop()
        values = self._pop_many(instruction.arg or 0)
        if not isinstance(keys, Constant):
            raise Refusal("its bytecode is not understood")
        self._push(Mapping(tuple(zip(map(Constant, keys.constant), values, strict=True))))

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
        key: Expression | None,
        value: Expression,
        *,
        keywords: bool = False,
    ) -> None:
        display = self._pop()
        if instruction.arg != 1 or not isinstance(display, Mapping):
            raise Refusal("it contains a comprehension")
        self._push(Mapping((*display.parts, (key, value)), keywords=keywords or display.keywords))

    # Texts. FORMAT_VALUE up to 3.12, the other three from 3.13.

    def _on_format_value(self, instruction: dis.Instruction) -> None:
        flags = instruction.arg or 0
        spec = self._pop() if flags & 4 else None
        self._push(Formatted(self._pop(), _CONVERSIONS.get(flags & 3), spec))

    def _on_convert_value(self, instruction: dis.Instruction) -> None:
        self._push(Formatted(self._pop(), _CONVERSIONS.get(instruction.arg or 0)))

    def _on_format_simple(self, instruction: dis.Instruction) -> None:
        part = self._pop()
        self._push(part if isinstance(part, Formatted) else Formatted(part, None))

    def _on_format_with_spec(self, instruction: dis.Instruction) -> None:
        spec, part = self._pop(), self._pop()
        if isinstance(part, Formatted):
            self._push(Formatted(part.part, part.conversion, spec))
        else:
            self._push(Formatted(part, None, spec))

    def _on_build_string(self, instruction: dis.Instruction) -> None:
        self._push(Text(self._pop_many(instruction.arg or 0)))

    # The call. Its keywords come before it up to 3.12 and on the stack from 3.13.

    def _on_kw_names(self, instruction: dis.Instruction) -> None:
        self._keyword_names = self._code.co_consts[instruction.arg or 0]

    def _on_call(self, instruction: dis.Instruction) -> None:
        self._push_call(instruction.arg or 0, self._keyword_names)
        self._keyword_names = ()

    def _on_call_kw(self, instruction: dis.Instruction) -> None:
        names = self._pop()
        if not isinstance(names, Constant):
            raise Refusal("its bytecode is not understood")
        self._push_call(instruction.arg or 0, names.constant)

    def _push_call(self, count: int, names: tuple[str, ...]) -> None:
        values = self._pop_many(count)
        positional = count - len(names)
        keywords = tuple(zip(map(Constant, names), values[positional:], strict=True))
        self._push(
            Call(self._pop_callable(), Sequence(tuple, values[:positional]), Mapping(keywords, keywords=True))
        )

    def _on_call_function_ex(self, instruction: dis.Instruction) -> None:
        # 3.14's documentation keeps the flag of the older versions, its compiler is said to leave an
        # empty slot instead: both are read, since the stack itself tells them apart.
        kwargs: Expression = NO_ARGUMENTS
        top = self._stack[-1] if self._stack else NULL
        if (instruction.arg or 0) & 1 or (self._version >= (3, 14) and isinstance(top, Null | Mapping)):
            kwargs = self._pop_any()
            if isinstance(kwargs, Null):
                kwargs = NO_ARGUMENTS
            elif isinstance(kwargs, Mapping):
                kwargs = Mapping(kwargs.parts, keywords=True)
            else:
                raise Refusal("it contains a second call")
        args = self._pop()
        # f(*items) hands over the variable itself, f(1, *items) a tuple made of it.
        if not isinstance(args, Sequence | Constant):
            args = Spread(args)
        self._push(Call(self._pop_callable(), args, kwargs))

    def _pop_callable(self) -> Expression:
        """The callable, without the empty slot beside it."""
        first, second = self._pop_any(), self._pop_any()
        function = second if isinstance(first, Null) else first
        other = first if isinstance(first, Null) else second
        if isinstance(function, Call):
            raise Refusal("it contains a second call")
        if isinstance(function, Null) or not isinstance(other, Null):
            raise Refusal("its bytecode is not understood")
        return function


def _refuse(opname: str) -> NoReturn:
    for fragments, why in _WHY:
        if any(fragment in opname for fragment in fragments.split("|")):
            raise Refusal(why)
    raise Refusal(f"it contains something other than a call with plain arguments ({opname})")
