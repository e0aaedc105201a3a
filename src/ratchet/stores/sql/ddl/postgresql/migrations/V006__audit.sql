-- serves: V001
-- Who changed what, when, and with which outcome. A row is written by the transaction of the change, and never changed
-- but for its count, where a verb needs several transactions.
CREATE TABLE scheduler_audit (
    audit_id        uuid PRIMARY KEY,
    audited_at      timestamptz NOT NULL,
    principal       varchar(255),
    source          varchar(32) NOT NULL,
    verb            varchar(64) NOT NULL,
    job_id          uuid,
    object_name     varchar(512),
    criteria        text,
    affected        integer,
    reason          text,
    outcome         varchar(32) NOT NULL
);
CREATE INDEX idx_audit_at ON scheduler_audit (audited_at, audit_id);
CREATE INDEX idx_audit_job ON scheduler_audit (job_id, audited_at) WHERE job_id IS NOT NULL;
