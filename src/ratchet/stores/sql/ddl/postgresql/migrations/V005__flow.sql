-- serves: V001
-- What nodes have done in each minute, and how much waited: rates that survive restarts. Each node writes rows of its own, once a
-- minute while it works. Minutes that are some hours old are merged into ten. Code of an earlier version knows nothing of it.
CREATE TABLE scheduler_flow (
    seconds         integer NOT NULL,                  -- how long the period is: 60, or 600 once it was merged
    begins_at       timestamptz NOT NULL,
    source          varchar(128) NOT NULL,             -- a node; load: what waited; empty: merged
    document        text NOT NULL,                     -- counts by queue, JSON
    PRIMARY KEY (seconds, begins_at, source)
);
