-- The schema of Ratchet up to V001__initial, in one script.

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

CREATE TABLE ratchet_schema_version (
    script      TEXT PRIMARY KEY,
    checksum    TEXT NOT NULL,
    applied_at  INTEGER NOT NULL
);

INSERT INTO ratchet_schema_version (script, checksum, applied_at)
VALUES ('V001__initial', '18c35f50467a467e3de2764fd9f5060113d711a72599a8153041512bca051dc1', (CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000));
