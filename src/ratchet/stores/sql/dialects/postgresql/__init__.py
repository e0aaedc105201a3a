"""
PostgreSQL: `dialect.PostgresqlDialect` is the entry.

A submission of one job goes through `autocommit`, a claim through `claims` (where to start: `scan_start`; many streams:
`many_streams`; keys that take turns: `fairness`), everything else through a transaction in `session`. All of them use
`connections` and `values`.
"""
