"""Forms in which errors quote secrets. The secret is ``hunter2`` unless a form brings its own."""

from __future__ import annotations

import json
import subprocess
from urllib.parse import quote

SECRET = "hunter2"

#: What stands between a name and its secret, in the notations of languages and files.
_ASSIGNMENTS = [
    "password=hunter2",
    "password = hunter2",
    "password: hunter2",
    "password:hunter2",
    "password => 'hunter2'",
    "password := 'hunter2'",
    "PASSWORD='hunter2'",
    "password 'hunter2'",
    "'password': 'hunter2'",
    '"password": "hunter2"',
    "b'password': b'hunter2'",
    "['password'] = 'hunter2'",
    '{"user": {"password": "hunter2"}}',
    r"{\"password\": \"hunter2\"}",
    r"{\\\"password\\\": \\\"hunter2\\\"}",
    "Config(user='bob', password='hunter2')",
    "export DB_PASSWORD=hunter2",
    "db.password=hunter2",
    "spring.datasource.password=hunter2",
    "Server=x;Uid=a;Pwd=hunter2;",
    "AccountKey=hunter2;EndpointSuffix=core",
    "SharedAccessSignature=hunter2",
    "client-secret: hunter2",
    "clientSecret: hunter2",
    "X-Api-Key: hunter2",
    "x-auth-token: hunter2",
    "refresh_token=hunter2&grant_type=refresh",
    "access_token hash: token=hunter2",
    "passphrase for key: passphrase=hunter2",
    "PGPASSWORD=hunter2 psql",
    "AWS_SECRET_ACCESS_KEY=hunter2",
    "encryption_key=hunter2",
    "kennwort: hunter2",
    "cvv=hunter2",
    "jsessionid=hunter2",
    "csrf_token: hunter2",
]

_STRUCTURES = [
    "passwords=['hunter2', 'b']",
    "tokens=('a', 'hunter2')",
    "secrets={'db': 'hunter2'}",
    "{'credentials': {'user': 'bob', 'key': {'value': 'hunter2'}}}",
    '{"token": ["a", {"b": "hunter2"}]}',
    "[('user', 'bob'), ('password', 'hunter2')]",
    "(b'api_key', b'hunter2')",
    "password=(\n    'hunter2'\n)",
    "secrets = [\n  'hunter2',\n]",
    "credentials=Credentials(user='bob', key=['hunter2'])",
    "token={'x': 'a)b', 'y': 'hunter2'}",
]

_LINES = [
    "password:\n  hunter2",
    "password: |\n  hunter2\n  more\nuser: bob",
    "password: >-\n  first\n  hunter2\nuser: bob",
    'password="first\nhunter2"',
    "password='first\nhunter2\nthird'",
    "private_key: |\n    line\n    hunter2\n",
    "token =\n    hunter2",
    '"secret": "a\\nhunter2"',
]

_URLS = [
    "postgresql://bob:hunter2@db/shop",
    "postgresql://bob:a/hunter2@db/shop",
    "postgresql://bob:a@hunter2@db/shop",
    "mysql://bob:p[hunter2]y@h/db",
    "https://hunter2@github.com/x",
    "jdbc:oracle:thin:scott/hunter2@//h:1521/x",
    "jdbc:postgresql://h/db?user=hunter2&ssl=true",
    "https://h/cb?username=hunter2",
    "https://h/cb?token=hunter2#x",
    "https://h/file?sig=hunter2&se=2026",
    "https://s3/b?X-Amz-Signature=hunter2",
    "https://h/?next=https://u:hunter2@other/x",
    "bob:hunter2@db.internal:5432/shop",
    "https://hooks.slack.com/services/T0/B0/hunter2",
    "https://discord.com/api/webhooks/1/hunter2",
    "amqps://bob:hunter2@mq:5671/vhost",
    "connect('redis://:hunter2@cache:6379/0') failed",
]

_ENCODED = [
    quote("password=hunter2&user=bob", safe=""),
    quote('{"password": "hunter2"}', safe=""),
    quote("postgresql://bob:hunter2@db/shop", safe=""),
    "next=%2Fcb%3Ftoken%3Dhunter2%26x%3D1",
    "<password>hunter2</password>",
    '<ns:Password type="text">hunter2</ns:Password>',
    "<password><![CDATA[hunter2]]></password>",
    '<add key="DbPassword" value="hunter2"/>',
    "<property name='api.token' value='hunter2'/>",
    '<connection password="hunter2"/>',
    "<wsse:Password>\n  hunter2</wsse:Password>",
]

_HEADERS = [
    "Authorization: Bearer hunter2",
    "authorization=Basic hunter2",
    "{'Authorization': 'Token hunter2'}",
    "[(b'authorization', b'Bearer hunter2')]",
    'Authorization: Digest username="bob", response="hunter2"',
    "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/2026/eu/s3, SignedHeaders=host, Signature=hunter2",
    "Proxy-Authorization: Basic hunter2",
    "Cookie: theme=dark; session=hunter2",
    "Set-Cookie: sid=hunter2; HttpOnly",
    "{'cookie': 'sid=hunter2'}",
]

_LIBRARIES = [
    "1 validation error for Login\npin\n  Input should be a valid string [type=string_type, input_value='hunter2', input_type=str]",
    "[type=missing, input_value={'pin': 'hunter2'}, input_type=dict]",
    "[{'type': 'int', 'loc': ('pin',), 'msg': 'not an int', 'input': 'hunter2'}]",
    str(subprocess.CalledProcessError(1, ["mysql", "-phunter2", "shop"])),
    str(subprocess.CalledProcessError(1, "mysql -phunter2 shop")),
    str(subprocess.TimeoutExpired(["curl", "-u", "bob:hunter2", "x"], 5)),
    str(subprocess.CalledProcessError(-9, ["psql", "--password", "hunter2"])),
    "usage: tool --password hunter2 --verbose",
    "argv: ['tool', '--api-token', 'hunter2']",
    "duplicate key value violates unique constraint\nDETAIL:  Key (token)=(hunter2) already exists.",
    "DETAIL:  Key (user_id, api_key)=(7, hunter2) already exists.",
    "DETAIL:  Failing row contains (7, bob, hunter2).",
    "(1062, \"Duplicate entry 'hunter2' for key 'users.token'\")",
    'E11000 duplicate key error dup key: { token: "hunter2" }',
    "[SQL: INSERT INTO users VALUES (?, ?)]\n[parameters: ('bob', 'hunter2')]",
    "[SQL: INSERT]\n[parameters: {'pin': 'hunter2'}]\n(Background on this error)",
    "CREATE USER bob IDENTIFIED BY 'hunter2'",
    "ALTER ROLE bob PASSWORD 'hunter2'",
    json.dumps({"a": json.dumps({"password": "hunter2"})}),
]

#: Keys that are known by their shape, with no name beside them.
_SHAPES = [
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuv",
    "glpat-abcdefghij0123456789",
    "xoxb-123456789012-abcdefghijkl",
    "sk_live_abcdefghij0123456789",
    "sk-proj-abcdefghij0123456789abcdefghij",
    "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "npm_0123456789abcdefghijABCDEFGHIJ012345",
    "pypi-AgEIcHlwaS5vcmcCJDAxMjM0NTY3",
    "SG.abcdefghijklmnopqrstuv.ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789abcdefg",
    "hf_abcdefghijABCDEFGHIJ0123456789abcd",
    "hvs.CAESIJabcdefghij0123456789ABCDEFGHIJ",
    "ya29.a0AfH6SMBabcdefghijklmnop",
    "GOCSPX-abcdefghijklmnopqrstuvwx",
    "dop_v1_0123456789abcdef0123456789abcdef",
    "shpat_0123456789abcdef0123456789abcdef",
    "whsec_abcdefghijklmnop0123",
    "123456789:AAabcdefghijABCDEFGHIJ0123456789-_a",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
    "4111 1111 1111 1111",
    "ann.lee@example.com",
]

FORMS: list[tuple[str, str]] = [
    (text, SECRET)
    for text in (*_ASSIGNMENTS, *_STRUCTURES, *_LINES, *_URLS, *_ENCODED, *_HEADERS, *_LIBRARIES)
    if SECRET in text
] + [(f"rejected {shape} by the server", shape) for shape in _SHAPES]

#: What nobody can tell from ordinary text; the documentation says so.
OUT_OF_REACH = [
    "the code word is hunter2",
    "aHVudGVyMg==",  # base64 of the secret, without a name
    "pin 2718",
    "hunter" + "2"[::-1] + " was typed by bob",
]
