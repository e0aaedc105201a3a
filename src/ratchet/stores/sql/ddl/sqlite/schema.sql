-- The schema of Ratchet up to V008__key_limits, in one script.

CREATE TABLE ratchet_schema_version (
    script      TEXT PRIMARY KEY,
    checksum    TEXT NOT NULL,
    applied_at  INTEGER NOT NULL
);

-- Ratchet on SQLite: the whole schema, table by table and column by column the one of PostgreSQL.
-- Ids are UUIDv7 made by the client, as text. Times are microseconds since 1970 in UTC, durations
-- (..._us) microseconds: datetime(created_at / 1000000, 'unixepoch') makes them readable. Flags are 0 or 1.
-- Declared types are INTEGER, REAL and TEXT only: on a connection with detect_types, a user's
-- converter for TIMESTAMP or BOOLEAN would otherwise be applied to our columns.

-- Cold: what a job is, and how it ended. Never read to find work.
CREATE TABLE scheduler_job (
    job_id              TEXT NOT NULL PRIMARY KEY,
    root_id             TEXT NOT NULL,
    target              TEXT NOT NULL,
    payload             TEXT NOT NULL,
    params              TEXT,
    job_type            TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    stream_id           INTEGER NOT NULL,
    status              TEXT NOT NULL,                 -- meaningful while there is no queue row
    created_at          INTEGER NOT NULL,
    scheduled_at        INTEGER NOT NULL,              -- due time while there is no queue row
    expires_at          INTEGER,
    max_retries         INTEGER NOT NULL DEFAULT 0,
    backoff             TEXT NOT NULL DEFAULT 'NONE',
    backoff_base_us     INTEGER NOT NULL DEFAULT 0,
    jitter              REAL NOT NULL DEFAULT 0,
    timeout_us          INTEGER,
    no_retry_for        TEXT,                          -- JSON list of class names
    idempotency_key     TEXT,
    business_key        TEXT,
    on_success          TEXT,
    on_failure          TEXT,
    parent_id           TEXT,
    batch_id            TEXT,
    schedule            TEXT,
    caller              TEXT,
    needs               INTEGER NOT NULL DEFAULT 0,
    has_dependants      INTEGER NOT NULL DEFAULT 0,
    has_conditions      INTEGER NOT NULL DEFAULT 0,
    signal_key          TEXT,
    signal              TEXT,                          -- the delivered signal, JSON
    attempts            INTEGER NOT NULL DEFAULT 0,
    crashes             INTEGER NOT NULL DEFAULT 0,
    started_at          INTEGER,
    finished_at         INTEGER,
    node_id             TEXT,                          -- of the run that ended it
    error               TEXT,
    error_type          TEXT,
    result              TEXT,
    result_truncated    INTEGER NOT NULL DEFAULT 0,
    progress            REAL,
    progress_message    TEXT,
    state               TEXT,                          -- checkpoint, JSON
    paused_from         TEXT,
    superseded_by       TEXT,
    canceled_reason     TEXT,
    canceled_by         TEXT,                          -- the job whose end canceled this one
    dead_letter_reason  TEXT,
    held_at             INTEGER,                       -- set while PAUSED or WAITING
    dead_lettered_at    INTEGER,                       -- set while FAILED
    expiry_due_at       INTEGER,                       -- set while it may still expire
    signal_due_at       INTEGER                        -- set while it waits for a signal
);
CREATE INDEX idx_job_root ON scheduler_job (root_id) WHERE root_id <> job_id;
CREATE INDEX idx_job_parent ON scheduler_job (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX idx_job_batch ON scheduler_job (batch_id) WHERE batch_id IS NOT NULL;
CREATE INDEX idx_job_business_key ON scheduler_job (business_key) WHERE business_key IS NOT NULL;
CREATE INDEX idx_job_schedule ON scheduler_job (schedule, job_id) WHERE schedule IS NOT NULL;
CREATE INDEX idx_job_held ON scheduler_job (held_at, job_id) WHERE held_at IS NOT NULL;
CREATE INDEX idx_job_dead_letter ON scheduler_job (dead_lettered_at, job_id) WHERE dead_lettered_at IS NOT NULL;
CREATE INDEX idx_job_expiry ON scheduler_job (expiry_due_at) WHERE expiry_due_at IS NOT NULL;
CREATE INDEX idx_job_signal_due ON scheduler_job (signal_due_at) WHERE signal_due_at IS NOT NULL;
CREATE INDEX idx_job_signal_key ON scheduler_job (signal_key, job_id) WHERE signal_key IS NOT NULL AND held_at IS NOT NULL;

-- Hot: one row per PENDING or RUNNING job, and nothing else.
CREATE TABLE scheduler_job_queue (
    job_id          TEXT NOT NULL PRIMARY KEY,
    stream_id       INTEGER NOT NULL,
    priority        INTEGER NOT NULL,
    status          TEXT NOT NULL,                     -- PENDING, RUNNING
    job_type        TEXT NOT NULL,
    attempts        INTEGER NOT NULL DEFAULT 0,
    crashes         INTEGER NOT NULL DEFAULT 0,
    max_retries     INTEGER NOT NULL DEFAULT 0,
    timeout_us      INTEGER,
    scheduled_time  INTEGER NOT NULL,
    picked_by       TEXT,
    picked_at       INTEGER,
    claim_id        TEXT,
    held_claim_id   TEXT                               -- a retry that waits for this earlier run's code to end
) WITHOUT ROWID;
-- the status at its end makes the claim's look into the queue an index-only one
CREATE INDEX idx_claim_executable ON scheduler_job_queue (stream_id, priority, scheduled_time, job_id, status) WHERE status = 'PENDING';
CREATE INDEX idx_queue_orphan ON scheduler_job_queue (picked_by) WHERE picked_by IS NOT NULL;  -- RUNNING, or held back

CREATE TABLE scheduler_stream (
    stream_id       INTEGER PRIMARY KEY,
    stream_key      TEXT NOT NULL UNIQUE,              -- SHA-256 of the columns below
    queue           TEXT NOT NULL,
    lane            TEXT NOT NULL,
    resource        TEXT,
    breaker         TEXT,
    limit_key       TEXT,
    fairness_key    TEXT,
    suspect         INTEGER NOT NULL DEFAULT 0,
    parked_target   TEXT,
    epoch           INTEGER NOT NULL DEFAULT 0,
    created_at      INTEGER NOT NULL
);

CREATE TABLE scheduler_queue (
    queue           TEXT NOT NULL PRIMARY KEY,
    paused          INTEGER NOT NULL DEFAULT 0,
    paused_at       INTEGER
) WITHOUT ROWID;

CREATE TABLE scheduler_business_key_reservation (
    business_key    TEXT NOT NULL PRIMARY KEY,
    job_id          TEXT NOT NULL,
    reserved_at     INTEGER NOT NULL,
    claim_id        TEXT,                              -- set: the job has ended, the code of this run has not
    node_id         TEXT
) WITHOUT ROWID;
CREATE INDEX idx_reservation_job ON scheduler_business_key_reservation (job_id);
CREATE INDEX idx_reservation_node ON scheduler_business_key_reservation (node_id) WHERE node_id IS NOT NULL;

CREATE TABLE scheduler_idempotency_key (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    job_id          TEXT NOT NULL,
    created_at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE scheduler_job_tag (
    tag             TEXT NOT NULL,
    job_id          TEXT NOT NULL,
    PRIMARY KEY (tag, job_id)
) WITHOUT ROWID;
CREATE INDEX idx_tag_job ON scheduler_job_tag (job_id);

CREATE TABLE scheduler_job_execution (
    job_id          TEXT NOT NULL,
    claim_id        TEXT NOT NULL,
    attempt         INTEGER NOT NULL,
    node_id         TEXT NOT NULL,
    scheduled_at    INTEGER NOT NULL,
    started_at      INTEGER,
    finished_at     INTEGER,
    status          TEXT NOT NULL,
    counted         INTEGER NOT NULL,
    error           TEXT,
    error_type      TEXT,
    traceback       TEXT,
    PRIMARY KEY (job_id, claim_id)
) WITHOUT ROWID;

CREATE TABLE scheduler_job_log (
    job_id          TEXT NOT NULL,
    claim_id        TEXT NOT NULL,
    sequence        INTEGER NOT NULL,
    attempt         INTEGER NOT NULL,
    logged_at       INTEGER NOT NULL,
    level           TEXT NOT NULL,
    logger          TEXT NOT NULL,
    message         TEXT NOT NULL,
    PRIMARY KEY (job_id, claim_id, sequence)
);
CREATE INDEX idx_log_logged_at ON scheduler_job_log (logged_at);

CREATE TABLE scheduler_batch (
    batch_id        TEXT NOT NULL PRIMARY KEY,
    name            TEXT NOT NULL,
    parent_id       TEXT NOT NULL,
    total           INTEGER NOT NULL,
    completed       INTEGER NOT NULL DEFAULT 0,
    failed          INTEGER NOT NULL DEFAULT 0,
    canceled        INTEGER NOT NULL DEFAULT 0,
    sealed          INTEGER NOT NULL,
    progress_target TEXT,
    created_at      INTEGER NOT NULL,
    finished_at     INTEGER
);
CREATE INDEX idx_batch_open ON scheduler_batch (batch_id) WHERE finished_at IS NULL;

CREATE TABLE scheduler_batch_metrics (
    batch_id        TEXT NOT NULL PRIMARY KEY,
    runs            INTEGER NOT NULL DEFAULT 0,
    run_time_us     INTEGER NOT NULL DEFAULT 0,
    started_at      INTEGER,
    finished_at     INTEGER
);

CREATE TABLE scheduler_dependency (
    parent_id       TEXT NOT NULL,
    child_id        TEXT NOT NULL,
    kind            TEXT NOT NULL,                     -- SUCCESS, FAILURE, CONDITION, END
    position        INTEGER NOT NULL,
    state           TEXT NOT NULL DEFAULT 'OPEN',
    PRIMARY KEY (parent_id, child_id)
) WITHOUT ROWID;
CREATE INDEX idx_dependency_child ON scheduler_dependency (child_id);

CREATE TABLE scheduler_workflow_condition (
    parent_id       TEXT NOT NULL,
    child_id        TEXT NOT NULL,
    kind            TEXT NOT NULL,
    predicate       TEXT,
    argument        TEXT,
    eval_order      INTEGER NOT NULL DEFAULT 0,
    description     TEXT,
    PRIMARY KEY (parent_id, child_id)
) WITHOUT ROWID;

CREATE TABLE scheduler_recurring_job (
    name            TEXT NOT NULL PRIMARY KEY,
    expression      TEXT NOT NULL,
    zone_id         TEXT NOT NULL,
    target          TEXT NOT NULL,
    template        TEXT NOT NULL,
    misfire         TEXT NOT NULL,
    overlap         TEXT NOT NULL,
    starts_at       INTEGER,
    ends_at         INTEGER,
    jitter_us       INTEGER NOT NULL DEFAULT 0,
    declared        INTEGER NOT NULL DEFAULT 0,
    paused          INTEGER NOT NULL DEFAULT 0,
    next_fire_at    INTEGER,
    last_fire_at    INTEGER,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
);
CREATE INDEX idx_recurring_due ON scheduler_recurring_job (next_fire_at) WHERE next_fire_at IS NOT NULL AND NOT paused;

CREATE TABLE scheduler_recurring_fire (
    name            TEXT NOT NULL,
    fire_at         INTEGER NOT NULL,
    outcome         TEXT NOT NULL,
    job_id          TEXT,
    reason          TEXT,
    recorded_at     INTEGER NOT NULL,
    PRIMARY KEY (name, fire_at)
) WITHOUT ROWID;

CREATE TABLE scheduler_signal (
    signal_id       TEXT NOT NULL PRIMARY KEY,
    signal_key      TEXT NOT NULL,
    job_id          TEXT,
    payload         TEXT,
    rejected        TEXT,
    sent_at         INTEGER NOT NULL,
    keep_until      INTEGER,
    consumed_by     TEXT
);
CREATE INDEX idx_signal_kept ON scheduler_signal (signal_key, signal_id) WHERE consumed_by IS NULL;

CREATE TABLE scheduler_lock (
    lock_name       TEXT NOT NULL PRIMARY KEY,
    locked_by       TEXT NOT NULL,
    token           TEXT NOT NULL,
    locked_at       INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE scheduler_node (
    node_id         TEXT NOT NULL PRIMARY KEY,
    name            TEXT NOT NULL,
    host            TEXT NOT NULL,
    pid             INTEGER NOT NULL,
    version         TEXT NOT NULL,
    state           TEXT NOT NULL,
    beat            INTEGER NOT NULL DEFAULT 0,
    beat_interval_us INTEGER NOT NULL,
    silence_us      INTEGER NOT NULL,
    started_at      INTEGER NOT NULL,
    last_beat_at    INTEGER NOT NULL,
    node_info       TEXT,
    rescued_at      INTEGER,
    rescued_by      TEXT
);

-- The cold table's columns, in its order, and the time of archiving; filled by INSERT ... SELECT.
CREATE TABLE scheduler_job_archive (
    job_id              TEXT NOT NULL PRIMARY KEY,
    root_id             TEXT NOT NULL,
    target              TEXT NOT NULL,
    payload             TEXT NOT NULL,
    params              TEXT,
    job_type            TEXT NOT NULL,
    priority            INTEGER NOT NULL,
    stream_id           INTEGER NOT NULL,
    status              TEXT NOT NULL,
    created_at          INTEGER NOT NULL,
    scheduled_at        INTEGER NOT NULL,
    expires_at          INTEGER,
    max_retries         INTEGER NOT NULL DEFAULT 0,
    backoff             TEXT NOT NULL DEFAULT 'NONE',
    backoff_base_us     INTEGER NOT NULL DEFAULT 0,
    jitter              REAL NOT NULL DEFAULT 0,
    timeout_us          INTEGER,
    no_retry_for        TEXT,
    idempotency_key     TEXT,
    business_key        TEXT,
    on_success          TEXT,
    on_failure          TEXT,
    parent_id           TEXT,
    batch_id            TEXT,
    schedule            TEXT,
    caller              TEXT,
    needs               INTEGER NOT NULL DEFAULT 0,
    has_dependants      INTEGER NOT NULL DEFAULT 0,
    has_conditions      INTEGER NOT NULL DEFAULT 0,
    signal_key          TEXT,
    signal              TEXT,
    attempts            INTEGER NOT NULL DEFAULT 0,
    crashes             INTEGER NOT NULL DEFAULT 0,
    started_at          INTEGER,
    finished_at         INTEGER,
    node_id             TEXT,
    error               TEXT,
    error_type          TEXT,
    result              TEXT,
    result_truncated    INTEGER NOT NULL DEFAULT 0,
    progress            REAL,
    progress_message    TEXT,
    state               TEXT,
    paused_from         TEXT,
    superseded_by       TEXT,
    canceled_reason     TEXT,
    canceled_by         TEXT,
    dead_letter_reason  TEXT,
    held_at             INTEGER,
    dead_lettered_at    INTEGER,
    expiry_due_at       INTEGER,
    signal_due_at       INTEGER,
    archived_at         INTEGER NOT NULL
);
CREATE INDEX idx_archive_archived_at ON scheduler_job_archive (archived_at);

CREATE TABLE scheduler_resource_limit (
    resource        TEXT NOT NULL PRIMARY KEY,
    max_concurrent  INTEGER,
    rate            INTEGER,
    period_us       INTEGER,
    tokens          REAL,
    refilled_at     INTEGER,
    updated_at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE scheduler_resource_permit (
    resource        TEXT NOT NULL,
    job_id          TEXT NOT NULL,
    claim_id        TEXT NOT NULL,
    node_id         TEXT NOT NULL,
    acquired_at     INTEGER NOT NULL,
    PRIMARY KEY (job_id, claim_id, resource)
) WITHOUT ROWID;
CREATE INDEX idx_permit_resource ON scheduler_resource_permit (resource);
CREATE INDEX idx_permit_node ON scheduler_resource_permit (node_id);

CREATE TABLE scheduler_circuit_breaker (
    service         TEXT NOT NULL PRIMARY KEY,
    state           TEXT NOT NULL,
    open_until      INTEGER,
    document        TEXT NOT NULL,
    version         INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
);

CREATE TABLE scheduler_dlq_alert (
    alert_id        TEXT NOT NULL PRIMARY KEY,
    job_id          TEXT NOT NULL,
    target          TEXT NOT NULL,
    error_hash      TEXT NOT NULL,
    error           TEXT,
    reason          TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    suppressed      INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX idx_alert_job ON scheduler_dlq_alert (job_id, error_hash, created_at);

-- serves: V001
-- Values that no version of Ratchet writes are refused where they are written, and the version table says which older code a
-- script serves. What code reads does not depend on the checks: it passes by whatever stands in a row.
--
-- SQLite adds a CHECK only by copying the table. These triggers need no copy, and ask only about values that change: a row that was
-- bad before can still be taken out of the queue, and mended column by column. In the tables of jobs and edges only
-- changes by hand are checked: a trigger on each INSERT would make a bulk submission take twice as long.
ALTER TABLE ratchet_schema_version ADD COLUMN serves INTEGER;

CREATE TRIGGER ck_queue_update BEFORE UPDATE OF job_type, priority, max_retries, timeout_us
ON scheduler_job_queue
WHEN NEW.job_type IS NOT OLD.job_type AND NEW.job_type NOT IN ('SINGLE', 'BATCH_PARENT', 'BATCH_CHILD', 'CHAIN_STEP', 'WORKFLOW_BRANCH',
      'WORKFLOW_JOIN', 'RECURRING_RUN', 'CALLBACK')
  OR NEW.priority IS NOT OLD.priority AND NEW.priority NOT IN (0, 1, 2, 3, 4)
  OR NEW.max_retries IS NOT OLD.max_retries AND typeof(NEW.max_retries) <> 'integer'
  OR NEW.timeout_us IS NOT OLD.timeout_us AND (typeof(NEW.timeout_us) NOT IN ('integer', 'null') OR NEW.timeout_us < 0)
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_queue'); END;

CREATE TRIGGER ck_job_update BEFORE UPDATE OF job_type, priority, backoff, created_at, max_retries, backoff_base_us, expires_at, timeout_us, jitter
ON scheduler_job
WHEN NEW.job_type IS NOT OLD.job_type AND NEW.job_type NOT IN ('SINGLE', 'BATCH_PARENT', 'BATCH_CHILD', 'CHAIN_STEP', 'WORKFLOW_BRANCH',
      'WORKFLOW_JOIN', 'RECURRING_RUN', 'CALLBACK')
  OR NEW.priority IS NOT OLD.priority AND NEW.priority NOT IN (0, 1, 2, 3, 4)
  OR NEW.backoff IS NOT OLD.backoff AND NEW.backoff NOT IN ('NONE', 'FIXED', 'EXPONENTIAL')
  OR NEW.created_at IS NOT OLD.created_at AND typeof(NEW.created_at) <> 'integer'
  OR NEW.max_retries IS NOT OLD.max_retries AND typeof(NEW.max_retries) <> 'integer'
  OR NEW.backoff_base_us IS NOT OLD.backoff_base_us AND (typeof(NEW.backoff_base_us) <> 'integer' OR NEW.backoff_base_us < 0)
  OR NEW.expires_at IS NOT OLD.expires_at AND typeof(NEW.expires_at) NOT IN ('integer', 'null')
  OR NEW.timeout_us IS NOT OLD.timeout_us AND (typeof(NEW.timeout_us) NOT IN ('integer', 'null') OR NEW.timeout_us < 0)
  OR NEW.jitter IS NOT OLD.jitter AND typeof(NEW.jitter) NOT IN ('real', 'null')
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_job'); END;

CREATE TRIGGER ck_dependency_update BEFORE UPDATE OF kind, state, position
ON scheduler_dependency
WHEN NEW.kind IS NOT OLD.kind AND NEW.kind NOT IN ('SUCCESS', 'FAILURE', 'CONDITION', 'END')
  OR NEW.state IS NOT OLD.state AND NEW.state NOT IN ('OPEN', 'SATISFIED', 'BROKEN')
  OR NEW.position IS NOT OLD.position AND typeof(NEW.position) <> 'integer'
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_dependency'); END;

CREATE TRIGGER ck_batch_insert BEFORE INSERT ON scheduler_batch
WHEN (typeof(NEW.total) <> 'integer' OR NEW.total < 0)
  OR (typeof(NEW.completed) <> 'integer' OR NEW.completed < 0)
  OR (typeof(NEW.failed) <> 'integer' OR NEW.failed < 0)
  OR (typeof(NEW.canceled) <> 'integer' OR NEW.canceled < 0)
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_batch'); END;

CREATE TRIGGER ck_batch_update BEFORE UPDATE OF total, completed, failed, canceled
ON scheduler_batch
WHEN NEW.total IS NOT OLD.total AND (typeof(NEW.total) <> 'integer' OR NEW.total < 0)
  OR NEW.completed IS NOT OLD.completed AND (typeof(NEW.completed) <> 'integer' OR NEW.completed < 0)
  OR NEW.failed IS NOT OLD.failed AND (typeof(NEW.failed) <> 'integer' OR NEW.failed < 0)
  OR NEW.canceled IS NOT OLD.canceled AND (typeof(NEW.canceled) <> 'integer' OR NEW.canceled < 0)
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_batch'); END;

CREATE TRIGGER ck_recurring_insert BEFORE INSERT ON scheduler_recurring_job
WHEN NEW.overlap NOT IN ('ALLOW', 'SKIP', 'QUEUE')
  OR (typeof(NEW.jitter_us) <> 'integer' OR NEW.jitter_us < 0)
  OR typeof(NEW.starts_at) NOT IN ('integer', 'null')
  OR typeof(NEW.ends_at) NOT IN ('integer', 'null')
  OR typeof(NEW.next_fire_at) NOT IN ('integer', 'null')
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_recurring'); END;

CREATE TRIGGER ck_recurring_update BEFORE UPDATE OF overlap, jitter_us, starts_at, ends_at, next_fire_at
ON scheduler_recurring_job
WHEN NEW.overlap IS NOT OLD.overlap AND NEW.overlap NOT IN ('ALLOW', 'SKIP', 'QUEUE')
  OR NEW.jitter_us IS NOT OLD.jitter_us AND (typeof(NEW.jitter_us) <> 'integer' OR NEW.jitter_us < 0)
  OR NEW.starts_at IS NOT OLD.starts_at AND typeof(NEW.starts_at) NOT IN ('integer', 'null')
  OR NEW.ends_at IS NOT OLD.ends_at AND typeof(NEW.ends_at) NOT IN ('integer', 'null')
  OR NEW.next_fire_at IS NOT OLD.next_fire_at AND typeof(NEW.next_fire_at) NOT IN ('integer', 'null')
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_recurring'); END;

CREATE TRIGGER ck_limit_insert BEFORE INSERT ON scheduler_resource_limit
WHEN (typeof(NEW.max_concurrent) NOT IN ('integer', 'null') OR NEW.max_concurrent < 0)
  OR (typeof(NEW.rate) NOT IN ('integer', 'null') OR NEW.rate < 0)
  OR (typeof(NEW.period_us) NOT IN ('integer', 'null') OR NEW.period_us < 0)
  OR typeof(NEW.refilled_at) NOT IN ('integer', 'null')
  OR typeof(NEW.tokens) NOT IN ('real', 'null')
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_limit'); END;

CREATE TRIGGER ck_limit_update BEFORE UPDATE OF max_concurrent, rate, period_us, refilled_at, tokens
ON scheduler_resource_limit
WHEN NEW.max_concurrent IS NOT OLD.max_concurrent AND (typeof(NEW.max_concurrent) NOT IN ('integer', 'null') OR NEW.max_concurrent < 0)
  OR NEW.rate IS NOT OLD.rate AND (typeof(NEW.rate) NOT IN ('integer', 'null') OR NEW.rate < 0)
  OR NEW.period_us IS NOT OLD.period_us AND (typeof(NEW.period_us) NOT IN ('integer', 'null') OR NEW.period_us < 0)
  OR NEW.refilled_at IS NOT OLD.refilled_at AND typeof(NEW.refilled_at) NOT IN ('integer', 'null')
  OR NEW.tokens IS NOT OLD.tokens AND typeof(NEW.tokens) NOT IN ('real', 'null')
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_limit'); END;

CREATE TRIGGER ck_breaker_insert BEFORE INSERT ON scheduler_circuit_breaker
WHEN NEW.state NOT IN ('CLOSED', 'OPEN', 'HALF_OPEN')
  OR typeof(NEW.open_until) NOT IN ('integer', 'null')
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_breaker'); END;

CREATE TRIGGER ck_breaker_update BEFORE UPDATE OF state, open_until
ON scheduler_circuit_breaker
WHEN NEW.state IS NOT OLD.state AND NEW.state NOT IN ('CLOSED', 'OPEN', 'HALF_OPEN')
  OR NEW.open_until IS NOT OLD.open_until AND typeof(NEW.open_until) NOT IN ('integer', 'null')
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_breaker'); END;

CREATE TRIGGER ck_node_insert BEFORE INSERT ON scheduler_node
WHEN NEW.state NOT IN ('ACTIVE', 'DRAINING', 'DEAD')
  OR (typeof(NEW.beat_interval_us) <> 'integer' OR NEW.beat_interval_us < 0)
  OR (typeof(NEW.silence_us) <> 'integer' OR NEW.silence_us < 0)
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_node'); END;

CREATE TRIGGER ck_node_update BEFORE UPDATE OF state, beat_interval_us, silence_us
ON scheduler_node
WHEN NEW.state IS NOT OLD.state AND NEW.state NOT IN ('ACTIVE', 'DRAINING', 'DEAD')
  OR NEW.beat_interval_us IS NOT OLD.beat_interval_us AND (typeof(NEW.beat_interval_us) <> 'integer' OR NEW.beat_interval_us < 0)
  OR NEW.silence_us IS NOT OLD.silence_us AND (typeof(NEW.silence_us) <> 'integer' OR NEW.silence_us < 0)
BEGIN SELECT RAISE(ABORT, 'CHECK constraint failed: ck_node'); END;

-- serves: V001
-- A queue can be paused until a time. The time counts only while paused_until_of is paused_at: code of an earlier version pauses and
-- resumes without these columns, and what it says must not be ended by the time of an earlier pause.
ALTER TABLE scheduler_queue ADD COLUMN paused_until INTEGER;
ALTER TABLE scheduler_queue ADD COLUMN paused_until_of INTEGER;

-- serves: V001
-- What a person asks of a node: DRAIN or STOP. The node learns it with its next beat; one of an earlier version never looks.
ALTER TABLE scheduler_node ADD COLUMN request TEXT;

-- serves: V001
-- What nodes have done in each minute, and how much waited: rates that survive restarts. Each node writes rows of its own, once a
-- minute while it works. Minutes that are some hours old are merged into ten. Code of an earlier version knows nothing of it.
CREATE TABLE scheduler_flow (
    seconds         INTEGER NOT NULL,                  -- how long the period is: 60, or 600 once it was merged
    begins_at       INTEGER NOT NULL,
    source          TEXT NOT NULL,                     -- a node; load: what waited; empty: merged
    document        TEXT NOT NULL,                     -- counts by queue, JSON
    PRIMARY KEY (seconds, begins_at, source)
) WITHOUT ROWID;

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

-- serves: V001
-- A move of all jobs to or from another store: which side this store is, how far it has come. Written by `ratchet db move` alone.
CREATE TABLE scheduler_move (
    move_id         TEXT NOT NULL PRIMARY KEY,
    document        TEXT NOT NULL                     -- JSON
);

-- serves: V001
-- When a submission last asked for a limit that was made for its key (`with_concurrency_key`, `with_rate_key`); NULL: a person has set it.
-- It counts only while it is updated_at: code of an earlier version sets limits without this column, and what it has set must stay.
ALTER TABLE scheduler_resource_limit ADD COLUMN asked_at INTEGER;
-- In which order keys take turns: where thousands have work, a claim looks only at those whose turn is next.
CREATE INDEX idx_stream_turns ON scheduler_stream (lane, suspect, fairness_key, stream_id);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V001__initial', '18c35f50467a467e3de2764fd9f5060113d711a72599a8153041512bca051dc1', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000), NULL);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V002__checks', '0963e9e801d4226c5543400fef35fe04d2b34c136fe3ebef57a3810acf462b1a', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V003__queue_pauses', '200e3dad8a8a686fa42d9af32b0454e0d96628fa4b34c0e3b81c3b457eb8196c', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V004__node_requests', '828ba96e6678566c53791c640e6a0444824fac249f857d8062c1f7edf9e220bf', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V005__flow', '62531f6bf62056e9a47bcc09c7284ab4713628c8f540081ae070a9c29fa14c7a', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V006__audit', 'bd6defe214bf7c5c9394d85a0a814eebb97f522308e20720bec627af5f3de34e', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V007__moves', '2c9d8404adfbe0868c0d4b2fb7ecffb03616d368b7410435282e47d3dc54fa4c', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V008__key_limits', '62715bac6c92765539cbbd26a8d4379ecc74fd551ca1aad1dfcf21ff50643c8d', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000), 1);
