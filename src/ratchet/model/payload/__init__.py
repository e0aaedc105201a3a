"""
What jobs carry: arguments, results, parameters and state, as JSON text.

The rule: what comes out equals what went in, type included, or storing it is refused with the
path of the value that JSON cannot carry. Plain JSON values are written as they are; everything
else travels under the tag key ``"$"``. Nothing is pickled or evaluated, and a class named in
stored text is imported only if the target's annotations mention it or a policy allows it: who can
write to the database cannot choose which code runs.
"""

from __future__ import annotations

from .annotations import ParameterTypes
from .bounds import READ_LIMIT
from .class_lookup import AllowType
from .classes import StoredObject
from .decoding import decode, decode_result, decode_value, read_json, truncation
from .encoding import (
    PAYLOAD_LIMIT,
    RESULT_LIMIT,
    EncodedResult,
    encode,
    encode_many,
    encode_result,
    encode_value,
)
from .envelope import is_sealed, refuse_sealed, sealing_key
from .placeholders import RESULT, RESULTS, Placeholder, placeholders_in, substitute

__all__ = [
    "PAYLOAD_LIMIT",
    "READ_LIMIT",
    "RESULT",
    "RESULTS",
    "RESULT_LIMIT",
    "AllowType",
    "EncodedResult",
    "ParameterTypes",
    "Placeholder",
    "StoredObject",
    "decode",
    "decode_result",
    "decode_value",
    "encode",
    "encode_many",
    "encode_result",
    "encode_value",
    "is_sealed",
    "placeholders_in",
    "read_json",
    "refuse_sealed",
    "sealing_key",
    "substitute",
    "truncation",
]
