"""
Dialects: what differs between the SQL products, one folder for each.

Every folder has the same files where it needs them: `dialect` (its words, its schema, its parts put together),
`session` (a transaction), `connections`, `values`, `errors`, `claims` (its claim plan), `wakeups`. `pool` is shared by
the products that have servers. Calls `claiming`, `rows` and `database`; nothing else in the house knows a product.
"""
