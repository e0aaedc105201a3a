"""Jobs in a SQL database: one set of statements, and a dialect per product."""
