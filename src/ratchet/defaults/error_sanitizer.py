"""
Keeps secrets out of stored errors, tracebacks and log lines.

Every pattern is linear in the text it sees: repetitions are bounded or run over a class that their
successor does not share. A redaction leaves something behind that no pattern changes again. Where a
secret's end is doubtful, more is removed rather than less.
"""

from __future__ import annotations

import re
from collections.abc import Callable

REDACTED = "[REDACTED]"

MESSAGE_LIMIT = 2_000
TEXT_LIMIT = 16 * 1024

#: How much is searched for secrets to fill the limit after redaction has shortened the text.
_HEADROOM = 4
#: A secret that the first cut splits is at most this long, or has a blank in it.
_LONGEST_SECRET = 4_096

_Redaction = Callable[[str], str]


def _substitution(pattern: str, replacement: str, flags: re.RegexFlag = re.NOFLAG) -> _Redaction:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.sub(replacement, text)


# --- URLs ---------------------------------------------------------------------------------------

# Up to the next URL, so that one inside another's query is seen as well.
_AFTER_SCHEME = re.compile(r'(?<=://)(?:(?!://)[^\s"<>`])+')
_HEAD = re.compile(r"[^/?#']*")
_QUERY = re.compile(r"[?#']")
_PORT = re.compile(r"[^:]*:[0-9]{1,5}")
_ORACLE = re.compile(r"(jdbc:oracle:[a-z0-9]{1,8}:)[^\s@/]{1,128}/[^\s@]{1,256}@", re.IGNORECASE)


def _redact_urls(text: str) -> str:
    """``scheme://user:password@host`` becomes ``scheme://[REDACTED]@host``, for any scheme."""
    if "@" not in text:
        return text
    if "://" in text:
        text = _AFTER_SCHEME.sub(_redact_user_information, text)
    return _ORACLE.sub(rf"\1{REDACTED}@", text)


def _redact_user_information(match: re.Match[str]) -> str:
    rest = match.group()
    end = _end_of_user_information(rest, scheme_end=match.start() - 3, text=match.string)
    return rest if end < 0 else REDACTED + rest[end:]


def _end_of_user_information(rest: str, *, scheme_end: int, text: str) -> int:
    """The index of the "@" that ends the credentials in *rest*; -1 if it holds none."""
    if "@" not in rest:
        return -1
    head = _HEAD.match(rest)
    authority = head.group() if head else ""
    if "@" in authority:
        # A password may hold "@" and "/": the last "@" before the query ends it.
        query = _QUERY.search(rest, rest.index("@"))
        return rest.rfind("@", 0, query.start() if query else len(rest))
    if ":" not in authority:
        return -1
    if _PORT.fullmatch(authority) and text[max(0, scheme_end - 5) : scheme_end].lower().endswith(
        ("http", "https")
    ):
        return -1  # http://registry:4873/@scope/package
    return rest.rfind("@")  # "/", "?" or "#" stands inside the password


# --- names that announce a secret ---------------------------------------------------------------

_SECRET_NAME = r"""
    (?: pass(?:word|wd|phrase|code|wort) | (?<![a-z])pass | pwd | kennwort | secret | token | credentials?
      | api[_-]?key | (?:access|account|auth|encryption|master|private|shared|signing|subscription)[_-]?key
      | shared[_-]?access[_-]?signature | x-amz-signature | (?<=[?&])sig | session[_-]?id | jsessionid
      | (?<![a-z])(?:csrf|cvv|cvc|ssn|otp|conn(?:ection)?[_-]?str(?:ing)?) )
    (?: [_-][a-z0-9_]{1,24} | key | id | value | hash
      | s(?= ["'\]]{0,2} \s{0,4} [:=]{1,2}>? \s{0,12} [\[({"'] ) )?  # tokens=['a'], but not max_tokens=100
    [0-9]{0,3}
"""
_VALUE = r"""
    (?: [bru]{0,2} (?: "(?P<double>(?:[^"\\]|\\.){0,1000}(?=")|(?:[^"\\\n]|\\.)*)
                   | '(?P<single>(?:[^'\\]|\\.){0,1000}(?=')|(?:[^'\\\n]|\\.)*) )
      | \\{1,3}["'] (?P<escaped>[^"'\\\n]*)
      | (?! (?:none|null)(?:[\s,;)}\]]|$) | (?:yes|no)\) | ["'\\] ) (?P<bare>(?:[^\s&;,]|,(?=[^\s]))+) )
"""
_ASSIGNMENT = re.compile(
    rf"""
    {_SECRET_NAME}
    (?: \\{{0,3}}["'] \]? )? (?: \s{{0,4}} (?: => | :=? | = ) \s{{0,12}} | \s{{1,4}} (?=["']) )
    (?: (?P<open>(?:[a-z_][\w.]{{0,60}})?[(\[{{]) | (?P<block>[|>][-+]?[ \t]{{0,4}}\n(?:[ \t]+[^\n]*(?:\n|$))+) | {_VALUE} )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_BRACKET = re.compile(
    r"""(?P<opening>[(\[{]) | (?P<closing>[)\]}]) | "(?:[^"\\]|\\.){0,500}" | '(?:[^'\\]|\\.){0,500}'""",
    re.VERBOSE,
)
_IDENTIFIED_BY = re.compile(rf"identified\s{{1,4}}by\s{{1,4}}{_VALUE}", re.IGNORECASE | re.VERBOSE)


def _redact_value(match: re.Match[str]) -> str:
    kind = match.lastgroup
    start, end = match.span(kind) if kind else match.span()
    whole = match.group()
    return whole[: start - match.start()] + REDACTED + whole[end - match.start() :]


def _redact_assignments(text: str) -> str:
    """``password=…``, ``"token": "…"``, ``api_key: …``, ``PASSWORD '…'``, ``secrets=[…]`` and their like."""
    return _IDENTIFIED_BY.sub(_redact_value, _redact_named(_ASSIGNMENT, text))


def _redact_named(pattern: re.Pattern[str], text: str) -> str:
    """*text* without the values that *pattern* finds; one that opens a bracket goes up to where that is closed."""
    kept: list[str] = []
    position = 0
    while match := pattern.search(text, position):
        if (bracket := match.start("open")) >= 0:
            kept += text[position:bracket], REDACTED
            position = _end_of_brackets(text, match.end() - 1)
        else:
            kept += text[position : match.start()], _redact_value(match)
            position = match.end()
    return "".join((*kept, text[position:])) if kept else text


def _end_of_brackets(text: str, start: int) -> int:
    """The index behind the bracket that closes the one at *start*; not found: as far as was searched."""
    depth = 0
    limit = min(len(text), start + _LONGEST_SECRET)
    for piece in _BRACKET.finditer(text, start, limit):
        if piece.lastgroup == "opening":
            depth += 1
        elif piece.lastgroup == "closing":
            depth -= 1
            if depth == 0:
                return piece.end()
    return limit


# --- other ways to name a secret ----------------------------------------------------------------

# ('password', 'hunter2'), --password hunter2, ["--token", "abc"], %22password%22%3A%22hunter2%22
_redact_pairs = _substitution(
    rf"""(\(\s{{0,4}}[bru]{{0,2}}["']{_SECRET_NAME}["'],\s{{0,4}}[bru]{{0,2}}["'])(?:[^"'\\]|\\.){{1,1000}}""",
    rf"\1{REDACTED}",
    re.IGNORECASE | re.VERBOSE,
)
_redact_options = _substitution(
    rf"""((?<![\w-])--?(?:[a-z0-9]{{1,20}}-){{0,3}}{_SECRET_NAME}(?:["'],\s{{0,4}}["']|[ ](?=[^\s-])))[^\s"',]+""",
    rf"\1{REDACTED}",
    re.IGNORECASE | re.VERBOSE,
)
_redact_encoded = _substitution(
    rf"""({_SECRET_NAME}(?:%22|%27)?(?:%3d|%3a)(?:%20|\+)?(?:%22|%27)?)(?:(?!%26|%22|%27|%2c)[^\s&"'])+""",
    rf"\1{REDACTED}",
    re.IGNORECASE | re.VERBOSE,
)
_redact_encoded_urls = _substitution(
    r"(%3a%2f%2f)(?:(?!%40|%2f)[^\s&\"'/]){1,300}(?=%40)", rf"\1{REDACTED}", re.IGNORECASE
)
# <password>hunter2</password>, and <add key="password" value="hunter2"/>
_redact_elements = _substitution(
    rf"""(<(?:[\w.-]{{1,40}}:)?[\w.-]{{0,40}}{_SECRET_NAME}(?:\s[^<>]{{0,200}})?>\s{{0,4}}(?:<!\[CDATA\[)?)(?:(?!\]\]>)[^<])+""",
    rf"\1{REDACTED}",
    re.IGNORECASE | re.VERBOSE,
)
_redact_attributes = _substitution(
    rf"""((?:key|name)\s?=\s?["'][\w.:-]{{0,40}}{_SECRET_NAME}["']\s{{1,4}}value\s?=\s?["'])[^"'<>]+""",
    rf"\1{REDACTED}",
    re.IGNORECASE | re.VERBOSE,
)
# bob:hunter2@db.internal, without a scheme
_redact_bare_logins = _substitution(
    r"(?<![\w/@:.-])[\w.+-]{1,64}:[^\s/@:'\"<>]{1,128}@(?=[\w-]{1,63}(?:[.:][\w-]{1,63}){0,8})",
    f"{REDACTED}@",
)
_redact_query_users = _substitution(
    rf"(?<=[?&])((?:user(?:name)?|uid|login)=)(?!{re.escape(REDACTED)})[^\s&#\"'<>]+",
    rf"\1{REDACTED}",
    re.IGNORECASE,
)


# --- what libraries quote in their errors -------------------------------------------------------

# pydantic: input_value='hunter2', input_type=str; and 'input': 'hunter2' in its list of errors
_redact_inputs = _substitution(r"(\binput_value=)(?:(?!, input_type=)[^\n]){1,500}", rf"\1{REDACTED}")
_redact_error_inputs = _substitution(
    r"""('loc': \((?:[^()\n]|\n){0,200}\), 'msg': (?:'[^'\n]{0,300}'|"[^"\n]{0,300}"), 'input': )(?:(?!, '(?:ctx|url)': )[^\n}]){1,500}""",
    rf"\1{REDACTED}",
)
# subprocess: Command '['mysql', '-phunter2']' returned non-zero exit status 1
_COMMAND = re.compile(
    r"""\bCommand ['"](?:\[(?:'[^'\n]{0,300}'|"[^"\n]{0,300}")|[^\s'"\[\]]{1,300})(?=,?\s)"""
)
_COMMAND_END = re.compile(r"""\]?['"] (?:returned non-zero|timed out|died with)""")


def _redact_commands(text: str) -> str:
    """The program stays, its arguments go: nobody can tell which of them is a password."""
    kept: list[str] = []
    position = 0
    end: re.Match[str] | None = None
    for command in _COMMAND.finditer(text):
        if end is None or end.start() < command.end():
            end = _COMMAND_END.search(text, command.end())
        if end is None:
            break
        if command.start() >= position and end.start() - command.end() <= _LONGEST_SECRET:
            kept += text[position : command.end()], f" {REDACTED}"
            position = end.start()
    return "".join((*kept, text[position:])) if kept else text


# SQLAlchemy's parameters, PostgreSQL's rows, MySQL's duplicate entries
_redact_parameters = _substitution(r"(\[(?:generated in [^\]\n]{0,40})?parameters: )[^\n]+", rf"\1{REDACTED}")
_redact_rows = _substitution(r"(Failing row contains \()(?:(?!\)\.?(?:\n|$))[^\n])+", rf"\1{REDACTED}")
_redact_keys_of_rows = _substitution(
    rf"""(Key[ ]\([^()\n]{{0,200}}{_SECRET_NAME}[^()\n]{{0,200}}\)=\()"""
    r"""(?:(?!\)(?:\s(?:already|is|conflicts)\b|\.?(?:\n|$)))[^\n])+""",
    rf"\1{REDACTED}",
    re.IGNORECASE | re.VERBOSE,
)
_redact_duplicates = _substitution(
    rf"""(Duplicate[ ]entry[ ]')[^\n]{{1,1000}}?(?='[ ]for[ ]key[ ]'[^'\n]{{0,100}}{_SECRET_NAME})""",
    rf"\1{REDACTED}",
    re.IGNORECASE | re.VERBOSE,
)


# --- headers, keys, tokens ----------------------------------------------------------------------

_redact_private_keys = _substitution(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    REDACTED,
    re.DOTALL,
)
_redact_quoted_headers = _substitution(
    r"""(\b(?:proxy-)?authorization\\{0,3}["']\s{0,4}[:=,]\s{0,4}[bru]{0,2}\\{0,3}["'])[^"'\\\n]*""",
    rf"\1{REDACTED}",
    re.IGNORECASE,
)
_redact_headers = _substitution(
    r"(\b(?:proxy-)?authorization\s{0,4}[:=]\s{0,4})(?![\s\"'])"
    r"(?:(?:digest|aws4-hmac-sha256)\s[^\n]*|(?:[a-z][a-z0-9-]{0,30}[ \t]{1,4})?[^\s\"',;]+)",
    rf"\1{REDACTED}",
    re.IGNORECASE,
)
_redact_cookies = _substitution(
    r"""(\b(?:set-)?cookie["']?\s{0,4}:\s{0,4}["']?)(?![\s"'])[^"'\n]+""", rf"\1{REDACTED}", re.IGNORECASE
)
# "basic authentication failed" is prose: a credential has a digit, a capital or a sign in it.
_redact_schemes = _substitution(
    r"\b((?i:bearer|basic)\s{1,4})(?=[a-z]{0,200}[A-Z0-9+/=_])[A-Za-z0-9._~+/=-]{8,}", rf"\1{REDACTED}"
)
_redact_known_keys = _substitution(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:AKIA|ASIA|AGPA|AIDA|AROA|ANPA|ANVA|AIPA)[A-Z0-9]{16}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|[sr]k_(?:live|test)_[A-Za-z0-9]{10,}|sk-[A-Za-z0-9_-]{20,}"
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}"
    r"|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,}|dop_v1_[a-f0-9]{32,}|shp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|hv[bsr]\.[A-Za-z0-9_-]{20,}|s\.[A-Za-z0-9]{24}(?![A-Za-z0-9])"
    r"|whsec_[A-Za-z0-9+/=]{16,}|gl(?:rt|ptt|dt|cbt)-[A-Za-z0-9_-]{20,}|xapp-[A-Za-z0-9-]{10,}|dapi[a-f0-9]{32}"
    r"|lin_api_[A-Za-z0-9]{20,}|AGE-SECRET-KEY-1[A-Z0-9]{50,}|sq0(?:atp|csp)-[A-Za-z0-9_-]{20,}|SK[a-f0-9]{32}"
    r"|[0-9]{8,10}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])|sbp_[a-f0-9]{40}|figd_[A-Za-z0-9_-]{20,}"
    r")",
    REDACTED,
)
_redact_webhooks = _substitution(
    r"(\b(?:hooks\.slack\.com/(?:services|workflows)|discord(?:app)?\.com/api/webhooks)/)[^\s\"'<>]+",
    rf"\1{REDACTED}",
    re.IGNORECASE,
)
_redact_web_tokens = _substitution(
    r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)*", REDACTED
)
_substitute_addresses = _substitution(
    r"[\w.%+-]{1,64}@(?:[\w-]{1,63}\.){1,8}(?:xn--[a-z0-9-]{2,59}|[^\W\d_]{2,24})(?![\w-])", REDACTED
)


def _redact_addresses(text: str) -> str:
    return _substitute_addresses(text) if "@" in text else text


# --- card numbers -------------------------------------------------------------------------------

_DIGIT_GROUPS = re.compile(r"(?<![A-Za-z0-9_])[0-9]+(?:[ -][0-9]+)*(?![A-Za-z0-9_])")
_CARD_SHAPE = re.compile(
    r"4(?:[0-9]{12}|[0-9]{15}|[0-9]{18})|(?:5[1-5]|2[2-7])[0-9]{14}|6[0-9]{15,18}|3[0-9]{13,15}"
)


def _redact_cards(text: str) -> str:
    return _DIGIT_GROUPS.sub(_redact_card_groups, text)


def _redact_card_groups(match: re.Match[str]) -> str:
    """A card may stand among other numbers: try each run of neighboring groups."""
    run = match.group()
    if len(run) < 13:
        return run
    parts = re.split(r"([ -])", run)
    kept: list[str] = []
    position = 0
    while position < len(parts):
        length = _card_at(parts, position)
        kept.append(REDACTED if length else parts[position])
        kept.extend(parts[position + max(1, length) : position + max(1, length) + 1])
        position += max(1, length) + 1
    return "".join(kept)


def _card_at(parts: list[str], position: int) -> int:
    """How many parts (groups and separators) from *position* form a card number; 0 if none."""
    digits = ""
    found = 0
    for length in range(1, len(parts) - position + 1, 2):
        group = parts[position + length - 1]
        digits += group
        if len(group) < 2 or len(digits) > 19:
            break
        if _CARD_SHAPE.fullmatch(digits) and _passes_luhn(digits):
            found = length
    return found


def _passes_luhn(digits: str) -> bool:
    total = 0
    for index, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + index % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


_REDACTIONS: tuple[_Redaction, ...] = (
    _redact_private_keys,
    _redact_commands,
    _redact_parameters,
    _redact_rows,
    _redact_keys_of_rows,
    _redact_duplicates,
    _redact_inputs,
    _redact_error_inputs,
    _redact_urls,
    _redact_webhooks,
    _redact_query_users,
    _redact_encoded_urls,
    _redact_quoted_headers,
    _redact_headers,
    _redact_cookies,
    _redact_schemes,
    _redact_pairs,
    _redact_elements,
    _redact_attributes,
    _redact_encoded,
    _redact_options,
    _redact_assignments,
    _redact_known_keys,
    _redact_web_tokens,
    _redact_bare_logins,
    _redact_addresses,
    _redact_cards,
)


class DefaultErrorSanitizer:
    """
    Keeps the exception's class name and what it said, without credentials and personal data.

    Removed are user information in URLs of any scheme, email addresses, authorization headers and
    cookies, values whose name says that they are secret, private keys, well-known API keys, web
    tokens and card numbers. A message is cut at its end; a text is cut in its middle, since a
    traceback says most at its two ends. It is a net, not a proof: a secret in free prose passes.
    """

    def __init__(self, message_limit: int = MESSAGE_LIMIT, text_limit: int = TEXT_LIMIT) -> None:
        self._message_limit = message_limit
        self._text_limit = text_limit

    def sanitize(self, error: BaseException) -> str:
        """``ClassName: message``, at most ``message_limit`` characters."""
        name = _class_name(error)
        message = _message(error)
        return self._clean(f"{name}: {message}" if message else name, self._message_limit, _cut_end)

    def sanitize_text(self, text: str) -> str:
        """*text* without secrets, at most ``text_limit`` characters."""
        return self._clean(text, self._text_limit, _cut_middle)

    def _clean(self, text: str, limit: int, cut: Callable[[str, int], str]) -> str:
        try:
            return _redacted(text, limit, cut)
        except Exception as failure:  # storing the failure of a job must not fail
            return f"(withheld: sanitizing it raised {type(failure).__name__})"[:limit]


def _redacted(text: str, limit: int, cut: Callable[[str, int], str]) -> str:
    text = _storable(_first_cut(text, limit * _HEADROOM, cut))
    # Cutting may leave a number that now looks like a card, and redacting may lengthen the text.
    for _ in range(8):
        before = text
        for redact in _REDACTIONS:
            text = redact(text)
        text = cut(text, limit)
        if text == before:
            break
    return text


def _storable(text: str) -> str:
    """*text* with U+0000 and lone surrogates spelled out: no database keeps them."""
    if text.isascii():
        return text.replace("\0", "\\x00")
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def _class_name(error: BaseException) -> str:
    try:
        return str(type(error).__name__)
    except Exception:  # a metaclass may answer with anything
        return "Exception"


def _message(error: BaseException) -> str:
    try:
        return "".join(str(error))
    except BaseException as failure:  # whatever a user's __str__ raises, the job has already failed
        return f"(no message: str() raised {_class_name(failure)})"


# --- cutting ------------------------------------------------------------------------------------

_ELLIPSIS = "…"
_GAP = "\n… cut …\n"
_KEY_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")


def _cut_end(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - len(_ELLIPSIS))] + _ELLIPSIS[:limit]


def _cut_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    room = limit - len(_GAP)
    if room < 2:
        return _cut_end(text, limit)
    head = room // 4
    return text[:head] + _GAP + text[len(text) - (room - head) :]


def _first_cut(text: str, size: int, cut: Callable[[str, int], str]) -> str:
    """
    The part of *text* that is worth searching, without a secret that the cut has split.

    Half a secret may no longer look like one, so whatever touches the cut goes as well.
    """
    if len(text) <= size:
        return text
    if cut is _cut_end:
        return _whole_words(text[:size]) + _ELLIPSIS
    head, tail = text[: size // 4], text[len(text) - size * 3 // 4 :]
    return _whole_words(head) + _GAP + _after_first_word(tail)


def _whole_words(head: str) -> str:
    last = max(head.rfind(" "), head.rfind("\n"), head.rfind("\t"))
    return head[: max(last, len(head) - _LONGEST_SECRET, 0)]


def _after_first_word(tail: str) -> str:
    line = tail.find("\n", 0, _LONGEST_SECRET)
    tail = tail[line + 1 :] if line >= 0 else tail[_LONGEST_SECRET:]
    key_end = _KEY_END.search(tail)
    if key_end and "-----BEGIN" not in tail[: key_end.start()]:
        tail = REDACTED + tail[key_end.end() :]
    return tail
