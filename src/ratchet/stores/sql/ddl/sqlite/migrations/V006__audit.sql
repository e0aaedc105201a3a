-- serves: V001
-- Who changed what, when, and with which outcome. A row is written by the transaction of the change, and never changed
-- but for its count, where a verb needs several transactions.
CREATE TABLE scheduler_audit (
    audit_id        TEXT NOT NULL PRIMARY KEY,
    audited_at      INTEGER NOT NULL,
    principal       TEXT,
    source          TEXT NOT NULL,
    verb            TEXT NOT NULL,
    job_id          TEXT,
    object_name     TEXT,
    criteria        TEXT,
    affected        INTEGER,
    reason          TEXT,
    outcome         TEXT NOT NULL
);
CREATE INDEX idx_audit_at ON scheduler_audit (audited_at, audit_id);
CREATE INDEX idx_audit_job ON scheduler_audit (job_id, audited_at) WHERE job_id IS NOT NULL;
