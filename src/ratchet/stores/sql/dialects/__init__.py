"""
What differs between the SQL products, a folder for each; `stores.sql.urls` chooses by the URL.

Each has the same files where it needs them: dialect, connections, session, claims, wakeups, values, errors.
"""
