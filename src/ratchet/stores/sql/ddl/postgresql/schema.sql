-- The schema of Ratchet up to V008__key_limits, in one script.

CREATE TABLE ratchet_schema_version (
    script      text PRIMARY KEY,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL
);

-- Ratchet on PostgreSQL: the whole schema. Ids are UUIDv7 made by the client.

-- Cold: what a job is, and how it ended. Never read to find work.
-- No index covers a column that an ordinary success changes, so that its update stays a HOT update; and there is room for it
-- on the row's own page: jobs that were submitted together end together, and each row is written about twice.
CREATE TABLE scheduler_job (
    job_id              uuid PRIMARY KEY,
    root_id             uuid NOT NULL,
    target              varchar(512) NOT NULL,
    payload             text NOT NULL,
    params              text,
    job_type            varchar(16) NOT NULL,
    priority            smallint NOT NULL,
    stream_id           integer NOT NULL,
    status              varchar(16) NOT NULL,          -- meaningful while there is no queue row
    created_at          timestamptz NOT NULL,
    scheduled_at        timestamptz NOT NULL,          -- due time while there is no queue row
    expires_at          timestamptz,
    max_retries         integer NOT NULL DEFAULT 0,
    backoff             varchar(16) NOT NULL DEFAULT 'NONE',
    backoff_base_us     bigint NOT NULL DEFAULT 0,
    jitter              double precision NOT NULL DEFAULT 0,
    timeout_us          bigint,
    no_retry_for        text,                          -- JSON list of class names
    idempotency_key     varchar(255),
    business_key        varchar(255),
    on_success          varchar(512),
    on_failure          varchar(512),
    parent_id           uuid,
    batch_id            uuid,
    schedule            varchar(255),
    caller              varchar(255),
    needs               integer NOT NULL DEFAULT 0,
    has_dependants      boolean NOT NULL DEFAULT false,
    has_conditions      boolean NOT NULL DEFAULT false,
    signal_key          varchar(255),
    signal              text,                          -- the delivered signal, JSON
    attempts            integer NOT NULL DEFAULT 0,
    crashes             integer NOT NULL DEFAULT 0,
    started_at          timestamptz,
    finished_at         timestamptz,
    node_id             varchar(128),                  -- of the run that ended it
    error               text,
    error_type          varchar(512),
    result              text,
    result_truncated    boolean NOT NULL DEFAULT false,
    progress            double precision,
    progress_message    text,
    state               text,                          -- checkpoint, JSON
    paused_from         varchar(16),
    superseded_by       uuid,
    canceled_reason     text,
    canceled_by         uuid,                          -- the job whose end canceled this one
    dead_letter_reason  text,
    held_at             timestamptz,                   -- set while PAUSED or WAITING
    dead_lettered_at    timestamptz,                   -- set while FAILED
    expiry_due_at       timestamptz,                   -- set while it may still expire
    signal_due_at       timestamptz                    -- set while it waits for a signal
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.1);
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
    job_id          uuid PRIMARY KEY,
    stream_id       integer NOT NULL,
    priority        smallint NOT NULL,
    status          varchar(8) NOT NULL,               -- PENDING, RUNNING
    job_type        varchar(16) NOT NULL,
    attempts        integer NOT NULL DEFAULT 0,
    crashes         integer NOT NULL DEFAULT 0,
    max_retries     integer NOT NULL DEFAULT 0,
    timeout_us      bigint,
    scheduled_time  timestamptz NOT NULL,
    picked_by       varchar(128),
    picked_at       timestamptz,
    claim_id        uuid,
    held_claim_id   uuid                               -- a retry that waits for this earlier run's code to end
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX idx_claim_executable ON scheduler_job_queue (stream_id, priority, scheduled_time, job_id) WHERE status = 'PENDING';
CREATE INDEX idx_queue_orphan ON scheduler_job_queue (picked_by) WHERE picked_by IS NOT NULL;  -- RUNNING, or held back

CREATE TABLE scheduler_stream (
    stream_id       integer PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY,
    stream_key      char(64) NOT NULL UNIQUE,          -- SHA-256 of the columns below
    queue           varchar(255) NOT NULL,
    lane            varchar(16) NOT NULL,
    resource        varchar(255),
    breaker         varchar(255),
    limit_key       varchar(255),
    fairness_key    varchar(255),
    suspect         boolean NOT NULL DEFAULT false,
    parked_target   varchar(512),
    epoch           bigint NOT NULL DEFAULT 0,
    created_at      timestamptz NOT NULL
);

CREATE TABLE scheduler_queue (
    queue           varchar(255) PRIMARY KEY,
    paused          boolean NOT NULL DEFAULT false,
    paused_at       timestamptz
);

CREATE TABLE scheduler_business_key_reservation (
    business_key    varchar(255) PRIMARY KEY,
    job_id          uuid NOT NULL,
    reserved_at     timestamptz NOT NULL,
    claim_id        uuid,                              -- set: the job has ended, the code of this run has not
    node_id         varchar(128)
);
CREATE INDEX idx_reservation_job ON scheduler_business_key_reservation (job_id);
CREATE INDEX idx_reservation_node ON scheduler_business_key_reservation (node_id) WHERE node_id IS NOT NULL;

CREATE TABLE scheduler_idempotency_key (
    idempotency_key varchar(255) PRIMARY KEY,
    job_id          uuid NOT NULL,
    created_at      timestamptz NOT NULL
);

CREATE TABLE scheduler_job_tag (
    tag             varchar(255) NOT NULL,
    job_id          uuid NOT NULL,
    PRIMARY KEY (tag, job_id)
);
CREATE INDEX idx_tag_job ON scheduler_job_tag (job_id);

CREATE TABLE scheduler_job_execution (
    job_id          uuid NOT NULL,
    claim_id        uuid NOT NULL,
    attempt         integer NOT NULL,
    node_id         varchar(128) NOT NULL,
    scheduled_at    timestamptz NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz,
    status          varchar(16) NOT NULL,
    counted         boolean NOT NULL,
    error           text,
    error_type      varchar(512),
    traceback       text,
    PRIMARY KEY (job_id, claim_id)
);

CREATE TABLE scheduler_job_log (
    job_id          uuid NOT NULL,
    claim_id        uuid NOT NULL,
    sequence        integer NOT NULL,
    attempt         integer NOT NULL,
    logged_at       timestamptz NOT NULL,
    level           varchar(16) NOT NULL,
    logger          varchar(255) NOT NULL,
    message         text NOT NULL,
    PRIMARY KEY (job_id, claim_id, sequence)
);
CREATE INDEX idx_log_logged_at ON scheduler_job_log USING brin (logged_at);

CREATE TABLE scheduler_batch (
    batch_id        uuid PRIMARY KEY,
    name            varchar(255) NOT NULL,
    parent_id       uuid NOT NULL,
    total           integer NOT NULL,
    completed       integer NOT NULL DEFAULT 0,
    failed          integer NOT NULL DEFAULT 0,
    canceled        integer NOT NULL DEFAULT 0,
    sealed          boolean NOT NULL,
    progress_target varchar(512),
    created_at      timestamptz NOT NULL,
    finished_at     timestamptz
) WITH (fillfactor = 50);
CREATE INDEX idx_batch_open ON scheduler_batch (batch_id) WHERE finished_at IS NULL;

CREATE TABLE scheduler_batch_metrics (
    batch_id        uuid PRIMARY KEY,
    runs            integer NOT NULL DEFAULT 0,
    run_time_us     bigint NOT NULL DEFAULT 0,
    started_at      timestamptz,
    finished_at     timestamptz
) WITH (fillfactor = 50);

CREATE TABLE scheduler_dependency (
    parent_id       uuid NOT NULL,
    child_id        uuid NOT NULL,
    kind            varchar(16) NOT NULL,              -- SUCCESS, FAILURE, CONDITION, END
    position        integer NOT NULL,
    state           varchar(16) NOT NULL DEFAULT 'OPEN',
    PRIMARY KEY (parent_id, child_id)
);
CREATE INDEX idx_dependency_child ON scheduler_dependency (child_id);

CREATE TABLE scheduler_workflow_condition (
    parent_id       uuid NOT NULL,
    child_id        uuid NOT NULL,
    kind            varchar(32) NOT NULL,
    predicate       varchar(512),
    argument        text,
    eval_order      integer NOT NULL DEFAULT 0,
    description     text,
    PRIMARY KEY (parent_id, child_id)
);

CREATE TABLE scheduler_recurring_job (
    name            varchar(255) PRIMARY KEY,
    expression      varchar(255) NOT NULL,
    zone_id         varchar(64) NOT NULL,
    target          varchar(512) NOT NULL,
    template        text NOT NULL,
    misfire         varchar(32) NOT NULL,
    overlap         varchar(16) NOT NULL,
    starts_at       timestamptz,
    ends_at         timestamptz,
    jitter_us       bigint NOT NULL DEFAULT 0,
    declared        boolean NOT NULL DEFAULT false,
    paused          boolean NOT NULL DEFAULT false,
    next_fire_at    timestamptz,
    last_fire_at    timestamptz,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL
);
CREATE INDEX idx_recurring_due ON scheduler_recurring_job (next_fire_at) WHERE next_fire_at IS NOT NULL AND NOT paused;

CREATE TABLE scheduler_recurring_fire (
    name            varchar(255) NOT NULL,
    fire_at         timestamptz NOT NULL,
    outcome         varchar(16) NOT NULL,
    job_id          uuid,
    reason          text,
    recorded_at     timestamptz NOT NULL,
    PRIMARY KEY (name, fire_at)
);

CREATE TABLE scheduler_signal (
    signal_id       uuid PRIMARY KEY,
    signal_key      varchar(255) NOT NULL,
    job_id          uuid,
    payload         text,
    rejected        text,
    sent_at         timestamptz NOT NULL,
    keep_until      timestamptz,
    consumed_by     uuid
);
CREATE INDEX idx_signal_kept ON scheduler_signal (signal_key, signal_id) WHERE consumed_by IS NULL;

CREATE TABLE scheduler_lock (
    lock_name       varchar(255) PRIMARY KEY,
    locked_by       varchar(128) NOT NULL,
    token           uuid NOT NULL,
    locked_at       timestamptz NOT NULL,
    expires_at      timestamptz NOT NULL
);

CREATE TABLE scheduler_node (
    node_id         varchar(128) PRIMARY KEY,
    name            varchar(255) NOT NULL,
    host            varchar(255) NOT NULL,
    pid             integer NOT NULL,
    version         varchar(64) NOT NULL,
    state           varchar(16) NOT NULL,
    beat            bigint NOT NULL DEFAULT 0,
    beat_interval_us bigint NOT NULL,
    silence_us      bigint NOT NULL,
    started_at      timestamptz NOT NULL,
    last_beat_at    timestamptz NOT NULL,
    node_info       text,
    rescued_at      timestamptz,
    rescued_by      varchar(128)
) WITH (fillfactor = 50);

-- The cold table's columns and the time of archiving; filled by INSERT ... SELECT.
CREATE TABLE scheduler_job_archive (
    LIKE scheduler_job INCLUDING DEFAULTS,
    archived_at     timestamptz NOT NULL,
    PRIMARY KEY (job_id)
);
CREATE INDEX idx_archive_archived_at ON scheduler_job_archive (archived_at);

CREATE TABLE scheduler_resource_limit (
    resource        varchar(255) PRIMARY KEY,
    max_concurrent  integer,
    rate            integer,
    period_us       bigint,
    tokens          double precision,
    refilled_at     timestamptz,
    updated_at      timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE scheduler_resource_permit (
    resource        varchar(255) NOT NULL,
    job_id          uuid NOT NULL,
    claim_id        uuid NOT NULL,
    node_id         varchar(128) NOT NULL,
    acquired_at     timestamptz NOT NULL,
    PRIMARY KEY (job_id, claim_id, resource)
);
CREATE INDEX idx_permit_resource ON scheduler_resource_permit (resource);
CREATE INDEX idx_permit_node ON scheduler_resource_permit (node_id);

CREATE TABLE scheduler_circuit_breaker (
    service         varchar(255) PRIMARY KEY,
    state           varchar(16) NOT NULL,
    open_until      timestamptz,
    document        text NOT NULL,
    version         bigint NOT NULL,
    updated_at      timestamptz NOT NULL
);

CREATE TABLE scheduler_dlq_alert (
    alert_id        uuid PRIMARY KEY,
    job_id          uuid NOT NULL,
    target          varchar(512) NOT NULL,
    error_hash      char(64) NOT NULL,
    error           text,
    reason          text NOT NULL,
    created_at      timestamptz NOT NULL,
    suppressed      integer NOT NULL DEFAULT 0
);
CREATE INDEX idx_alert_job ON scheduler_dlq_alert (job_id, error_hash, created_at);

-- serves: V001
-- Values that no version of Ratchet writes are refused where they are written, and the version table says which older code a
-- script serves. What code reads does not depend on the checks: it passes by whatever stands in a row.
--
-- NOT VALID: nothing is scanned while the table is locked. But a check also refuses each update of a row that was bad before,
-- and then a claim could not even take it out of the queue. So a check that some row breaks today is left out, with a warning.
--
-- A check is read anew from its stored text by each statement, however often that was prepared: on the two tables that each
-- submission writes, checks took 35 of its 190 microseconds. There only changes by hand are looked at, by a trigger on columns that
-- no plain job's way updates.
--
-- The order matters: what has been locked stays locked until the end. So rows are read first, without a lock, and the tables that
-- everybody writes come last.
--
-- adds: ck_dependency_words of scheduler_dependency, ck_batch_numbers of scheduler_batch, ck_recurring_words of scheduler_recurring_job,
--       ck_recurring_times of scheduler_recurring_job, ck_limit_numbers of scheduler_resource_limit,
--       ck_breaker_words of scheduler_circuit_breaker, ck_node_words of scheduler_node, ck_node_numbers of scheduler_node
DO $checks$
DECLARE
    checks text[] := ARRAY[
        ['scheduler_dependency', 'ck_dependency_words',
         $$ kind IN ('SUCCESS', 'FAILURE', 'CONDITION', 'END') AND state IN ('OPEN', 'SATISFIED', 'BROKEN') $$],
        ['scheduler_batch', 'ck_batch_numbers',
         $$ total >= 0 AND completed >= 0 AND failed >= 0 AND canceled >= 0 $$],
        ['scheduler_recurring_job', 'ck_recurring_words',
         $$ overlap IN ('ALLOW', 'SKIP', 'QUEUE') AND jitter_us >= 0 $$],
        ['scheduler_recurring_job', 'ck_recurring_times',
         $$ next_fire_at >= '0001-01-01 00:00+00' AND next_fire_at < '10000-01-01 00:00+00'
            AND starts_at >= '0001-01-01 00:00+00' AND starts_at < '10000-01-01 00:00+00'
            AND ends_at >= '0001-01-01 00:00+00' AND ends_at < '10000-01-01 00:00+00' $$],
        ['scheduler_resource_limit', 'ck_limit_numbers',
         $$ max_concurrent >= 0 AND rate >= 0 AND period_us >= 0 AND tokens > '-Infinity' AND tokens < 'Infinity' $$],
        ['scheduler_circuit_breaker', 'ck_breaker_words', $$ state IN ('CLOSED', 'OPEN', 'HALF_OPEN') $$],
        ['scheduler_node', 'ck_node_words', $$ state IN ('ACTIVE', 'DRAINING', 'DEAD') $$],
        ['scheduler_node', 'ck_node_numbers', $$ beat_interval_us >= 0 AND silence_us >= 0 $$]
    ];
    one text[];
    is_broken boolean;
    wanted text[] := '{}';
BEGIN
    FOREACH one SLICE 1 IN ARRAY checks LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I WHERE NOT (%s))', one[1], one[3]) INTO is_broken;
        IF is_broken THEN
            RAISE WARNING 'ratchet: the check % of % is left out, because a row breaks it already', one[2], one[1];
        ELSE
            wanted := wanted || one[2];
        END IF;
    END LOOP;
    FOREACH one SLICE 1 IN ARRAY checks LOOP
        IF one[2] = ANY (wanted) THEN
            EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I CHECK (%s) NOT VALID', one[1], one[2], one[3]);
        END IF;
    END LOOP;
END
$checks$;

CREATE OR REPLACE FUNCTION ratchet_refuse() RETURNS trigger LANGUAGE plpgsql AS $refuse$
BEGIN
    RAISE EXCEPTION 'a row of % violates the check %', TG_TABLE_NAME, TG_NAME USING ERRCODE = 'check_violation';
END
$refuse$;

CREATE TRIGGER ck_queue_update BEFORE UPDATE OF job_type, priority, timeout_us
ON scheduler_job_queue FOR EACH ROW
WHEN (NEW.job_type IS DISTINCT FROM OLD.job_type
      AND NEW.job_type NOT IN ('SINGLE', 'BATCH_PARENT', 'BATCH_CHILD', 'CHAIN_STEP', 'WORKFLOW_BRANCH', 'WORKFLOW_JOIN', 'RECURRING_RUN',
                               'CALLBACK')
   OR NEW.priority IS DISTINCT FROM OLD.priority AND NEW.priority NOT BETWEEN 0 AND 4
   OR NEW.timeout_us IS DISTINCT FROM OLD.timeout_us AND NEW.timeout_us < 0)
EXECUTE FUNCTION ratchet_refuse();

CREATE TRIGGER ck_job_update BEFORE UPDATE OF job_type, priority, backoff, backoff_base_us, timeout_us, jitter, created_at, expires_at
ON scheduler_job FOR EACH ROW
WHEN (NEW.job_type IS DISTINCT FROM OLD.job_type
      AND NEW.job_type NOT IN ('SINGLE', 'BATCH_PARENT', 'BATCH_CHILD', 'CHAIN_STEP', 'WORKFLOW_BRANCH', 'WORKFLOW_JOIN', 'RECURRING_RUN',
                               'CALLBACK')
   OR NEW.priority IS DISTINCT FROM OLD.priority AND NEW.priority NOT BETWEEN 0 AND 4
   OR NEW.backoff IS DISTINCT FROM OLD.backoff AND NEW.backoff NOT IN ('NONE', 'FIXED', 'EXPONENTIAL')
   OR NEW.backoff_base_us IS DISTINCT FROM OLD.backoff_base_us AND NEW.backoff_base_us < 0
   OR NEW.timeout_us IS DISTINCT FROM OLD.timeout_us AND NEW.timeout_us < 0
   OR NEW.jitter IS DISTINCT FROM OLD.jitter AND NOT (NEW.jitter >= 0 AND NEW.jitter < 'Infinity')
   OR NEW.created_at IS DISTINCT FROM OLD.created_at
      AND NOT (NEW.created_at >= '0001-01-01 00:00+00' AND NEW.created_at < '10000-01-01 00:00+00')
   OR NEW.expires_at IS DISTINCT FROM OLD.expires_at
      AND NOT (NEW.expires_at >= '0001-01-01 00:00+00' AND NEW.expires_at < '10000-01-01 00:00+00'))
EXECUTE FUNCTION ratchet_refuse();

-- last: what starts reads this table, and need not wait while the others are looked through
ALTER TABLE ratchet_schema_version ADD COLUMN serves integer;

-- serves: V001
-- A queue can be paused until a time. The time counts only while paused_until_of is paused_at: code of an earlier version pauses and
-- resumes without these columns, and what it says must not be ended by the time of an earlier pause.
ALTER TABLE scheduler_queue ADD COLUMN paused_until timestamptz;
ALTER TABLE scheduler_queue ADD COLUMN paused_until_of timestamptz;

-- serves: V001
-- What a person asks of a node: DRAIN or STOP. The node learns it with its next beat; one of an earlier version never looks.
ALTER TABLE scheduler_node ADD COLUMN request text;

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

-- serves: V001
-- A move of all jobs to or from another store: which side this store is, how far it has come. Written by `ratchet db move` alone.
CREATE TABLE scheduler_move (
    move_id         varchar(64) PRIMARY KEY,
    document        text NOT NULL                     -- JSON
);

-- serves: V001
-- When a submission last asked for a limit that was made for its key (`with_concurrency_key`, `with_rate_key`); NULL: a person has set it.
-- It counts only while it is updated_at: code of an earlier version sets limits without this column, and what it has set must stay.
ALTER TABLE scheduler_resource_limit ADD COLUMN asked_at timestamptz;
-- In which order keys take turns: where thousands have work, a claim looks only at those whose turn is next.
CREATE INDEX idx_stream_turns ON scheduler_stream (lane, suspect, fairness_key COLLATE "C", stream_id);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V001__initial', 'c2f37be7211524940678fb6e86204657f7f6e91cf11fa1c4caf8839cb6f5771e', clock_timestamp(), NULL);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V002__checks', '61bcd48f385624c8559e8d6252e1827fc44e19e3802cca830fbd945b9a83d243', clock_timestamp(), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V003__queue_pauses', '1f018e854290abfcb59a657dc0578b388a83ebb03d763751cc430830a9badc72', clock_timestamp(), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V004__node_requests', '6d0f1ebcc764cf973266f7761e758d0957f0468cef42483c7171e6522e7713cd', clock_timestamp(), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V005__flow', 'cf9ecbfd5e6b7a9622c6fb005eb2501cbd6e0110cd0f959365f14bca675dca32', clock_timestamp(), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V006__audit', '6f023511cbdc95a0167a12507f98abcfca259c1c670d8b9af3a5e70f19db12f7', clock_timestamp(), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V007__moves', 'cd9e7eea043ba60554ca687ca72fa0f75a953f74eb74dc6a0b0d57a8c25f6e17', clock_timestamp(), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V008__key_limits', 'f30284bafd1466796e72b590d665ccdeae86685e052a86b9db70e03a82d53eb9', clock_timestamp(), 1);
