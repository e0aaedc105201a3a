"""
SQLite: a file that many processes share, one of them writing at a time.

Enter by `dialect.SqliteDialect`. `connections` is the way to the file, `session` a transaction on it, `claims` how
jobs are claimed, `wakeups` how one process notices the commits of another, `errors` what SQLite's errors mean.
"""
