"""Values of every kind that a payload holds, and what comes back of them."""

from __future__ import annotations

import enum
import json
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
from hypothesis import strategies as st

from ratchet.model.payload import decode, encode


class Color(enum.Enum):
    RED = "r"
    GREEN = (0, 255, 0)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclass
class Item:
    sku: str
    price: Decimal
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Order:
    id: UUID
    items: tuple[Item, ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Doubling:
    amount: int
    factor: InitVar[int]
    total: int = field(init=False)

    def __post_init__(self, factor: int) -> None:
        self.amount *= factor
        self.total = self.amount + 1


@dataclass
class Node:
    name: str
    next: Node | None = None


@dataclass
class WithLock:
    lock: Any


class Point(NamedTuple):
    x: int
    y: int = 0


class Shape(msgspec.Struct):
    name: str
    corners: list[Point] = []


class User(pydantic.BaseModel):
    name: str
    born: date
    site: pydantic.HttpUrl | None = None
    address: Annotated[str, pydantic.Field(alias="addr")] = "here"


class Login(pydantic.BaseModel):
    password: pydantic.SecretStr


class Texty(str):
    __slots__ = ()


class Stamp(datetime):
    pass


class Numbers(TypedDict):
    order: Order


class AttrsLike:
    """Follows the protocol of an attrs class, without attrs."""

    class _Attribute(NamedTuple):
        name: str
        default: Any

    __attrs_attrs__ = (_Attribute("x", "NOTHING"), _Attribute("y", 5))

    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AttrsLike) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it is mutable


HERE = __name__


def allow_here(module: str, qualname: str) -> bool:
    return module == HERE


def through(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What comes back of these arguments, every class of this module being allowed."""
    text = encode(args, kwargs, limit=None)
    json.loads(text)
    return decode(text, allow_type=allow_here)


def one(value: Any) -> Any:
    return through(value)[0][0]


def alike(one: Any, other: Any) -> bool:
    """Equal, of the same type, all the way down; NaN is like NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, Decimal):
        return str(one) == str(other)
    if isinstance(one, dict):
        return len(one) == len(other) and all(
            alike(a, b) and alike(one[a], other[b]) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, Node):
        return alike(vars(one), vars(other))
    if isinstance(one, datetime | time):
        return bool(one == other and one.tzinfo == other.tzinfo and one.fold == other.fold)
    return bool(one == other)


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))

hashable = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    text,
    st.binary(max_size=20),
    st.uuids(),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.datetimes(timezones=st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=-3, minutes=30)))),
    st.decimals(allow_nan=False),
    st.sampled_from([*Color, *Level, Mode.READ | Mode.WRITE, Mode(0)]),
)

leaves = st.one_of(hashable, st.floats(), st.decimals(), st.binary().map(bytearray))

values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(text | st.just("$"), inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=4),
        st.sets(hashable, max_size=4),
        st.frozensets(hashable, max_size=4),
        st.builds(Node, name=text, next=inner),
    ),
    max_leaves=15,
)
