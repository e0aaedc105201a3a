"""
What a document is: how values and records are stored (`values`), a job (`jobs`), the numbers of streams
(`stream_registry`), and a `JobFilter` as a query (`search`).

Every noun reads and writes its documents with these modules; they call nothing but the driver.
"""
