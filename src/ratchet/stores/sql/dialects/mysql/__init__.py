"""
MySQL and MariaDB: `dialect.MysqlDialect` is the entry.

`shapes` rewrites our statements into what both products can say, `session` sends them with their `values` written into
the text, `claims` is the claim plan, and `scripts` runs migrations, which these products cannot roll back.
"""
