-- The schema of Ratchet up to V008__key_limits, in one script.

CREATE TABLE ratchet_schema_version (
    script      VARCHAR(255) PRIMARY KEY,
    checksum    VARCHAR(255) NOT NULL,
    applied_at  DATETIME(6) NOT NULL
);

-- Ratchet on MySQL 8 and MariaDB 10.6: the whole schema. Ids are UUIDv7 made by the client, in their own byte order.
-- Times are UTC. Texts are compared exactly, byte by byte and with trailing spaces, which the two products spell
-- differently. JSON is kept as text, so that what is read is what was written.

-- Cold: what a job is, and how it ended. Never read to find work.
-- No index covers a column that an ordinary success changes.
CREATE TABLE scheduler_job (
    job_id              BINARY(16) PRIMARY KEY,
    root_id             BINARY(16) NOT NULL,
    target              VARCHAR(512) NOT NULL,
    payload             MEDIUMTEXT NOT NULL,
    params              MEDIUMTEXT,
    job_type            VARCHAR(16) NOT NULL,
    priority            SMALLINT NOT NULL,
    stream_id           INT NOT NULL,
    status              VARCHAR(16) NOT NULL,          -- meaningful while there is no queue row
    created_at          DATETIME(6) NOT NULL,
    scheduled_at        DATETIME(6) NOT NULL,          -- due time while there is no queue row
    expires_at          DATETIME(6),
    max_retries         INT NOT NULL DEFAULT 0,
    backoff             VARCHAR(16) NOT NULL DEFAULT 'NONE',
    backoff_base_us     BIGINT NOT NULL DEFAULT 0,
    jitter              DOUBLE NOT NULL DEFAULT 0,
    timeout_us          BIGINT,
    no_retry_for        MEDIUMTEXT,                    -- JSON list of class names
    idempotency_key     VARCHAR(255),
    business_key        VARCHAR(255),
    on_success          VARCHAR(512),
    on_failure          VARCHAR(512),
    parent_id           BINARY(16),
    batch_id            BINARY(16),
    schedule            VARCHAR(255),
    caller              VARCHAR(255),
    needs               INT NOT NULL DEFAULT 0,
    has_dependants      BOOLEAN NOT NULL DEFAULT false,
    has_conditions      BOOLEAN NOT NULL DEFAULT false,
    signal_key          VARCHAR(255),
    `signal`            MEDIUMTEXT,                    -- the delivered signal, JSON
    attempts            INT NOT NULL DEFAULT 0,
    crashes             INT NOT NULL DEFAULT 0,
    started_at          DATETIME(6),
    finished_at         DATETIME(6),
    node_id             VARCHAR(128),                  -- of the run that ended it
    error               MEDIUMTEXT,
    error_type          VARCHAR(512),
    result              MEDIUMTEXT,
    result_truncated    BOOLEAN NOT NULL DEFAULT false,
    progress            DOUBLE,
    progress_message    MEDIUMTEXT,
    state               MEDIUMTEXT,                    -- checkpoint, JSON
    paused_from         VARCHAR(16),
    superseded_by       BINARY(16),
    canceled_reason     MEDIUMTEXT,
    canceled_by         BINARY(16),                    -- the job whose end canceled this one
    dead_letter_reason  MEDIUMTEXT,
    held_at             DATETIME(6),                   -- set while PAUSED or WAITING
    dead_lettered_at    DATETIME(6),                   -- set while FAILED
    expiry_due_at       DATETIME(6),                   -- set while it may still expire
    signal_due_at       DATETIME(6),                   -- set while it waits for a signal
    INDEX idx_job_root (root_id),
    INDEX idx_job_parent (parent_id),
    INDEX idx_job_batch (batch_id),
    INDEX idx_job_business_key (business_key),
    INDEX idx_job_schedule (schedule, job_id),
    INDEX idx_job_held (held_at, job_id),
    INDEX idx_job_dead_letter (dead_lettered_at, job_id),
    INDEX idx_job_expiry (expiry_due_at),
    INDEX idx_job_signal_due (signal_due_at),
    INDEX idx_job_signal_key (signal_key, held_at, job_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

-- Hot: one row per PENDING or RUNNING job, and nothing else.
CREATE TABLE scheduler_job_queue (
    job_id              BINARY(16) PRIMARY KEY,
    stream_id           INT NOT NULL,
    priority            SMALLINT NOT NULL,
    status              VARCHAR(8) NOT NULL,           -- PENDING, RUNNING
    job_type            VARCHAR(16) NOT NULL,
    attempts            INT NOT NULL DEFAULT 0,
    crashes             INT NOT NULL DEFAULT 0,
    max_retries         INT NOT NULL DEFAULT 0,
    timeout_us          BIGINT,
    scheduled_time      DATETIME(6) NOT NULL,
    picked_by           VARCHAR(128),
    picked_at           DATETIME(6),
    claim_id            BINARY(16),
    held_claim_id       BINARY(16),                    -- a retry that waits for this earlier run's code to end
    INDEX idx_claim_executable (status, stream_id, priority, scheduled_time, job_id),
    INDEX idx_queue_orphan (picked_by)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_stream (
    stream_id           INT PRIMARY KEY AUTO_INCREMENT,
    stream_key          CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL UNIQUE, -- SHA-256 of the columns below
    queue               VARCHAR(255) NOT NULL,
    lane                VARCHAR(16) NOT NULL,
    resource            VARCHAR(255),
    breaker             VARCHAR(255),
    limit_key           VARCHAR(255),
    fairness_key        VARCHAR(255),
    suspect             BOOLEAN NOT NULL DEFAULT false,
    parked_target       VARCHAR(512),
    epoch               BIGINT NOT NULL DEFAULT 0,
    created_at          DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_queue (
    queue               VARCHAR(255) PRIMARY KEY,
    paused              BOOLEAN NOT NULL DEFAULT false,
    paused_at           DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_business_key_reservation (
    business_key        VARCHAR(255) PRIMARY KEY,
    job_id              BINARY(16) NOT NULL,
    reserved_at         DATETIME(6) NOT NULL,
    claim_id            BINARY(16),                    -- set: the job has ended, the code of this run has not
    node_id             VARCHAR(128),
    INDEX idx_reservation_job (job_id),
    INDEX idx_reservation_node (node_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_idempotency_key (
    idempotency_key     VARCHAR(255) PRIMARY KEY,
    job_id              BINARY(16) NOT NULL,
    created_at          DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_job_tag (
    tag                 VARCHAR(255) NOT NULL,
    job_id              BINARY(16) NOT NULL,
    PRIMARY KEY (tag, job_id),
    INDEX idx_tag_job (job_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_job_execution (
    job_id              BINARY(16) NOT NULL,
    claim_id            BINARY(16) NOT NULL,
    attempt             INT NOT NULL,
    node_id             VARCHAR(128) NOT NULL,
    scheduled_at        DATETIME(6) NOT NULL,
    started_at          DATETIME(6),
    finished_at         DATETIME(6),
    status              VARCHAR(16) NOT NULL,
    counted             BOOLEAN NOT NULL,
    error               MEDIUMTEXT,
    error_type          VARCHAR(512),
    traceback           MEDIUMTEXT,
    PRIMARY KEY (job_id, claim_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_job_log (
    job_id              BINARY(16) NOT NULL,
    claim_id            BINARY(16) NOT NULL,
    sequence            INT NOT NULL,
    attempt             INT NOT NULL,
    logged_at           DATETIME(6) NOT NULL,
    level               VARCHAR(16) NOT NULL,
    logger              VARCHAR(255) NOT NULL,
    message             MEDIUMTEXT NOT NULL,
    PRIMARY KEY (job_id, claim_id, sequence),
    INDEX idx_log_logged_at (logged_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_batch (
    batch_id            BINARY(16) PRIMARY KEY,
    name                VARCHAR(255) NOT NULL,
    parent_id           BINARY(16) NOT NULL,
    total               INT NOT NULL,
    completed           INT NOT NULL DEFAULT 0,
    failed              INT NOT NULL DEFAULT 0,
    canceled            INT NOT NULL DEFAULT 0,
    sealed              BOOLEAN NOT NULL,
    progress_target     VARCHAR(512),
    created_at          DATETIME(6) NOT NULL,
    finished_at         DATETIME(6),
    INDEX idx_batch_open (finished_at, batch_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_batch_metrics (
    batch_id            BINARY(16) PRIMARY KEY,
    runs                INT NOT NULL DEFAULT 0,
    run_time_us         BIGINT NOT NULL DEFAULT 0,
    started_at          DATETIME(6),
    finished_at         DATETIME(6)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_dependency (
    parent_id           BINARY(16) NOT NULL,
    child_id            BINARY(16) NOT NULL,
    kind                VARCHAR(16) NOT NULL,          -- SUCCESS, FAILURE, CONDITION, END
    position            INT NOT NULL,
    state               VARCHAR(16) NOT NULL DEFAULT 'OPEN',
    PRIMARY KEY (parent_id, child_id),
    INDEX idx_dependency_child (child_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_workflow_condition (
    parent_id           BINARY(16) NOT NULL,
    child_id            BINARY(16) NOT NULL,
    kind                VARCHAR(32) NOT NULL,
    predicate           VARCHAR(512),
    argument            MEDIUMTEXT,
    eval_order          INT NOT NULL DEFAULT 0,
    description         MEDIUMTEXT,
    PRIMARY KEY (parent_id, child_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_recurring_job (
    name                VARCHAR(255) PRIMARY KEY,
    expression          VARCHAR(255) NOT NULL,
    zone_id             VARCHAR(64) NOT NULL,
    target              VARCHAR(512) NOT NULL,
    template            MEDIUMTEXT NOT NULL,
    misfire             VARCHAR(32) NOT NULL,
    overlap             VARCHAR(16) NOT NULL,
    starts_at           DATETIME(6),
    ends_at             DATETIME(6),
    jitter_us           BIGINT NOT NULL DEFAULT 0,
    declared            BOOLEAN NOT NULL DEFAULT false,
    paused              BOOLEAN NOT NULL DEFAULT false,
    next_fire_at        DATETIME(6),
    last_fire_at        DATETIME(6),
    created_at          DATETIME(6) NOT NULL,
    updated_at          DATETIME(6) NOT NULL,
    INDEX idx_recurring_due (next_fire_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_recurring_fire (
    name                VARCHAR(255) NOT NULL,
    fire_at             DATETIME(6) NOT NULL,
    outcome             VARCHAR(16) NOT NULL,
    job_id              BINARY(16),
    reason              MEDIUMTEXT,
    recorded_at         DATETIME(6) NOT NULL,
    PRIMARY KEY (name, fire_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_signal (
    signal_id           BINARY(16) PRIMARY KEY,
    signal_key          VARCHAR(255) NOT NULL,
    job_id              BINARY(16),
    payload             MEDIUMTEXT,
    rejected            MEDIUMTEXT,
    sent_at             DATETIME(6) NOT NULL,
    keep_until          DATETIME(6),
    consumed_by         BINARY(16),
    INDEX idx_signal_kept (signal_key, consumed_by, signal_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_lock (
    lock_name           VARCHAR(255) PRIMARY KEY,
    locked_by           VARCHAR(128) NOT NULL,
    token               BINARY(16) NOT NULL,
    locked_at           DATETIME(6) NOT NULL,
    expires_at          DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_node (
    node_id             VARCHAR(128) PRIMARY KEY,
    name                VARCHAR(255) NOT NULL,
    host                VARCHAR(255) NOT NULL,
    pid                 INT NOT NULL,
    version             VARCHAR(64) NOT NULL,
    state               VARCHAR(16) NOT NULL,
    beat                BIGINT NOT NULL DEFAULT 0,
    beat_interval_us    BIGINT NOT NULL,
    silence_us          BIGINT NOT NULL,
    started_at          DATETIME(6) NOT NULL,
    last_beat_at        DATETIME(6) NOT NULL,
    node_info           MEDIUMTEXT,
    rescued_at          DATETIME(6),
    rescued_by          VARCHAR(128)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

-- The cold table's columns and the time of archiving; filled by INSERT ... SELECT.
CREATE TABLE scheduler_job_archive (
    job_id              BINARY(16) NOT NULL,
    root_id             BINARY(16) NOT NULL,
    target              VARCHAR(512) NOT NULL,
    payload             MEDIUMTEXT NOT NULL,
    params              MEDIUMTEXT,
    job_type            VARCHAR(16) NOT NULL,
    priority            SMALLINT NOT NULL,
    stream_id           INT NOT NULL,
    status              VARCHAR(16) NOT NULL,
    created_at          DATETIME(6) NOT NULL,
    scheduled_at        DATETIME(6) NOT NULL,
    expires_at          DATETIME(6),
    max_retries         INT NOT NULL DEFAULT 0,
    backoff             VARCHAR(16) NOT NULL DEFAULT 'NONE',
    backoff_base_us     BIGINT NOT NULL DEFAULT 0,
    jitter              DOUBLE NOT NULL DEFAULT 0,
    timeout_us          BIGINT,
    no_retry_for        MEDIUMTEXT,
    idempotency_key     VARCHAR(255),
    business_key        VARCHAR(255),
    on_success          VARCHAR(512),
    on_failure          VARCHAR(512),
    parent_id           BINARY(16),
    batch_id            BINARY(16),
    schedule            VARCHAR(255),
    caller              VARCHAR(255),
    needs               INT NOT NULL DEFAULT 0,
    has_dependants      BOOLEAN NOT NULL DEFAULT false,
    has_conditions      BOOLEAN NOT NULL DEFAULT false,
    signal_key          VARCHAR(255),
    `signal`            MEDIUMTEXT,
    attempts            INT NOT NULL DEFAULT 0,
    crashes             INT NOT NULL DEFAULT 0,
    started_at          DATETIME(6),
    finished_at         DATETIME(6),
    node_id             VARCHAR(128),
    error               MEDIUMTEXT,
    error_type          VARCHAR(512),
    result              MEDIUMTEXT,
    result_truncated    BOOLEAN NOT NULL DEFAULT false,
    progress            DOUBLE,
    progress_message    MEDIUMTEXT,
    state               MEDIUMTEXT,
    paused_from         VARCHAR(16),
    superseded_by       BINARY(16),
    canceled_reason     MEDIUMTEXT,
    canceled_by         BINARY(16),
    dead_letter_reason  MEDIUMTEXT,
    held_at             DATETIME(6),
    dead_lettered_at    DATETIME(6),
    expiry_due_at       DATETIME(6),
    signal_due_at       DATETIME(6),
    archived_at         DATETIME(6) NOT NULL,
    PRIMARY KEY (job_id),
    INDEX idx_archive_archived_at (archived_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_resource_limit (
    resource            VARCHAR(255) PRIMARY KEY,
    max_concurrent      INT,
    rate                INT,
    period_us           BIGINT,
    tokens              DOUBLE,
    refilled_at         DATETIME(6),
    updated_at          DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_resource_permit (
    resource            VARCHAR(255) NOT NULL,
    job_id              BINARY(16) NOT NULL,
    claim_id            BINARY(16) NOT NULL,
    node_id             VARCHAR(128) NOT NULL,
    acquired_at         DATETIME(6) NOT NULL,
    PRIMARY KEY (job_id, claim_id, resource),
    INDEX idx_permit_resource (resource),
    INDEX idx_permit_node (node_id)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_circuit_breaker (
    service             VARCHAR(255) PRIMARY KEY,
    state               VARCHAR(16) NOT NULL,
    open_until          DATETIME(6),
    document            MEDIUMTEXT NOT NULL,
    version             BIGINT NOT NULL,
    updated_at          DATETIME(6) NOT NULL
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

CREATE TABLE scheduler_dlq_alert (
    alert_id            BINARY(16) PRIMARY KEY,
    job_id              BINARY(16) NOT NULL,
    target              VARCHAR(512) NOT NULL,
    error_hash          CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    error               MEDIUMTEXT,
    reason              MEDIUMTEXT NOT NULL,
    created_at          DATETIME(6) NOT NULL,
    suppressed          INT NOT NULL DEFAULT 0,
    INDEX idx_alert_job (job_id, error_hash, created_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

-- serves: V001
-- Values that no version of Ratchet writes are refused where they are written, and the version table says which older code a
-- script serves. What code reads does not depend on the checks: it passes by whatever stands in a row.
--
-- A check that some row breaks today is left out, with a warning: it would also refuse each update of that row, and then a claim could
-- not even take it out of the queue. scheduler_job has none: MySQL copies a table to add one, and history is long.
ALTER TABLE ratchet_schema_version ADD COLUMN serves INT;
ALTER TABLE scheduler_job_queue ADD CONSTRAINT ck_queue_words CHECK (
    status IN ('PENDING', 'RUNNING') AND job_type IN ('SINGLE', 'BATCH_PARENT', 'BATCH_CHILD', 'CHAIN_STEP',
    'WORKFLOW_BRANCH', 'WORKFLOW_JOIN', 'RECURRING_RUN', 'CALLBACK'));
ALTER TABLE scheduler_job_queue ADD CONSTRAINT ck_queue_numbers CHECK (
    priority BETWEEN 0 AND 4 AND attempts >= 0 AND crashes >= 0 AND timeout_us >= 0);
ALTER TABLE scheduler_dependency ADD CONSTRAINT ck_dependency_words CHECK (
    kind IN ('SUCCESS', 'FAILURE', 'CONDITION', 'END') AND state IN ('OPEN', 'SATISFIED', 'BROKEN'));
ALTER TABLE scheduler_batch ADD CONSTRAINT ck_batch_numbers CHECK (
    total >= 0 AND completed >= 0 AND failed >= 0 AND canceled >= 0);
ALTER TABLE scheduler_recurring_job ADD CONSTRAINT ck_recurring_words CHECK (
    overlap IN ('ALLOW', 'SKIP', 'QUEUE') AND jitter_us >= 0);
ALTER TABLE scheduler_resource_limit ADD CONSTRAINT ck_limit_numbers CHECK (
    max_concurrent >= 0 AND rate >= 0 AND period_us >= 0);
ALTER TABLE scheduler_circuit_breaker ADD CONSTRAINT ck_breaker_words CHECK (state IN ('CLOSED', 'OPEN', 'HALF_OPEN'));
ALTER TABLE scheduler_node ADD CONSTRAINT ck_node_words CHECK (state IN ('ACTIVE', 'DRAINING', 'DEAD'));
ALTER TABLE scheduler_node ADD CONSTRAINT ck_node_numbers CHECK (beat_interval_us >= 0 AND silence_us >= 0);

-- serves: V001
-- A queue can be paused until a time. The time counts only while paused_until_of is paused_at: code of an earlier version pauses and
-- resumes without these columns, and what it says must not be ended by the time of an earlier pause.
ALTER TABLE scheduler_queue ADD COLUMN paused_until DATETIME(6);
ALTER TABLE scheduler_queue ADD COLUMN paused_until_of DATETIME(6);

-- serves: V001
-- What a person asks of a node: DRAIN or STOP. The node learns it with its next beat; one of an earlier version never looks.
ALTER TABLE scheduler_node ADD COLUMN request VARCHAR(16);

-- serves: V001
-- What nodes have done in each minute, and how much waited: rates that survive restarts. Each node writes rows of its own, once a
-- minute while it works. Minutes that are some hours old are merged into ten. Code of an earlier version knows nothing of it.
CREATE TABLE scheduler_flow (
    seconds             INT NOT NULL,                          -- how long the period is: 60, or 600 once it was merged
    begins_at           DATETIME(6) NOT NULL,
    source              VARCHAR(128) NOT NULL,                 -- a node; load: what waited; empty: merged
    document            MEDIUMTEXT NOT NULL,                   -- counts by queue, JSON
    PRIMARY KEY (seconds, begins_at, source)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

-- serves: V001
-- Who changed what, when, and with which outcome. A row is written by the transaction of the change, and never changed
-- but for its count, where a verb needs several transactions.
CREATE TABLE scheduler_audit (
    audit_id            BINARY(16) PRIMARY KEY,
    audited_at          DATETIME(6) NOT NULL,
    principal           VARCHAR(255),
    source              VARCHAR(32) NOT NULL,
    verb                VARCHAR(64) NOT NULL,
    job_id              BINARY(16),
    object_name         VARCHAR(512),
    criteria            MEDIUMTEXT,
    affected            INT,
    reason              MEDIUMTEXT,
    outcome             VARCHAR(32) NOT NULL,
    INDEX idx_audit_at (audited_at, audit_id),
    INDEX idx_audit_job (job_id, audited_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

-- serves: V001
-- A move of all jobs to or from another store: which side this store is, how far it has come. Written by `ratchet db move` alone.
CREATE TABLE scheduler_move (
    move_id         VARCHAR(64) PRIMARY KEY,
    document        MEDIUMTEXT NOT NULL                     -- JSON
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;

-- serves: V001
-- When a submission last asked for a limit that was made for its key (`with_concurrency_key`, `with_rate_key`); NULL: a person has set it.
-- It counts only while it is updated_at: code of an earlier version sets limits without this column, and what it has set must stay.
ALTER TABLE scheduler_resource_limit ADD COLUMN asked_at DATETIME(6);
-- In which order keys take turns: where thousands have work, a claim looks only at those whose turn is next.
CREATE INDEX idx_stream_turns ON scheduler_stream (lane, suspect, fairness_key, stream_id);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V001__initial', 'ccec5cdab0cda1f68cf60810b51e81ef959c5c5625299eb4b528cab7f0e4a34c', UTC_TIMESTAMP(6), NULL);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V002__checks', '05f2f98d2bdb109399fd14205ebf5cb7d6fbb28bb845d65bb26d2b6bd603d8bb', UTC_TIMESTAMP(6), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V003__queue_pauses', '8057bb6e35a6846e2014355f4927f889a97e6313663e19cbf8ea79b01b428fd8', UTC_TIMESTAMP(6), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V004__node_requests', '5f1385a8c8b73b950016e5baec106dbc8e698a31f8b812292e8abfb6acc6413f', UTC_TIMESTAMP(6), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V005__flow', '871c4cba030ed8c9b60ad16d6ca1779224844f7cc6a8407e125fe77cf0f1b7af', UTC_TIMESTAMP(6), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V006__audit', 'd02fff8c919c55d61ae5af1bec619d38ae637a116c2ca67c5a8c0b346f2d4c90', UTC_TIMESTAMP(6), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V007__moves', '491cb2f09899c210e79801844d65cdef0ecbf4c5d124a4a72822892d5a84cbbe', UTC_TIMESTAMP(6), 1);

INSERT INTO ratchet_schema_version (script, checksum, applied_at, serves)
VALUES ('V008__key_limits', '221f88fa869a005899db145512b57d70f3366094e9cac784b7b5a7bf4b6de211', UTC_TIMESTAMP(6), 1);
