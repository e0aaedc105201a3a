"""
Jobs in a SQL database: SQLite, PostgreSQL, MySQL and MariaDB.

Enter by `store.open_store`. The `SqlStore` is made of one class for each of twelve nouns (jobs, claims, transitions,
batches, workflows, recurring, history, cluster, permits, dead_letters, signals, streams). A noun opens a transaction
with `database` and calls the steps of a job, each a folder: submit, claiming, finish, recover, dependants. These call
down to `rows`, which says what a row is. SQL is written once and translated (`statement`); what differs between
products is in `dialects`.
"""
