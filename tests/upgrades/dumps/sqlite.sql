BEGIN TRANSACTION;
CREATE TABLE ratchet_schema_version (
        script      TEXT PRIMARY KEY,
        checksum    TEXT NOT NULL,
        applied_at  INTEGER NOT NULL
    );
INSERT INTO "ratchet_schema_version" VALUES('V001__initial','18c35f50467a467e3de2764fd9f5060113d711a72599a8153041512bca051dc1',1795005363739408);
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
INSERT INTO "scheduler_batch" VALUES('01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','parcels','01a1eea8-3a4a-7000-a9d6-f3e0e7c05604',3,0,0,0,1,NULL,1795005364810624,NULL);
CREATE TABLE scheduler_batch_metrics (
    batch_id        TEXT NOT NULL PRIMARY KEY,
    runs            INTEGER NOT NULL DEFAULT 0,
    run_time_us     INTEGER NOT NULL DEFAULT 0,
    started_at      INTEGER,
    finished_at     INTEGER
);
CREATE TABLE scheduler_business_key_reservation (
    business_key    TEXT NOT NULL PRIMARY KEY,
    job_id          TEXT NOT NULL,
    reserved_at     INTEGER NOT NULL,
    claim_id        TEXT,                              -- set: the job has ended, the code of this run has not
    node_id         TEXT
) WITHOUT ROWID;
INSERT INTO "scheduler_business_key_reservation" VALUES('customer-1','01a1eea8-3a1a-7000-b486-faf2d83cebe9',1795005364761836,NULL,NULL);
CREATE TABLE scheduler_circuit_breaker (
    service         TEXT NOT NULL PRIMARY KEY,
    state           TEXT NOT NULL,
    open_until      INTEGER,
    document        TEXT NOT NULL,
    version         INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
);
CREATE TABLE scheduler_dependency (
    parent_id       TEXT NOT NULL,
    child_id        TEXT NOT NULL,
    kind            TEXT NOT NULL,                     -- SUCCESS, FAILURE, CONDITION, END
    position        INTEGER NOT NULL,
    state           TEXT NOT NULL DEFAULT 'OPEN',
    PRIMARY KEY (parent_id, child_id)
) WITHOUT ROWID;
INSERT INTO "scheduler_dependency" VALUES('01a1eea8-3a42-7000-8de6-35746813530a','01a1eea8-3a42-7001-a7c0-c2ac07d9f21a','SUCCESS',0,'OPEN');
INSERT INTO "scheduler_dependency" VALUES('01a1eea8-3a42-7000-8de6-35746813530a','01a1eea8-3a45-7000-8e70-00591cb9ae65','SUCCESS',0,'OPEN');
INSERT INTO "scheduler_dependency" VALUES('01a1eea8-3a45-7001-b3e1-0ce41d3b7557','01a1eea8-3a45-7000-8e70-00591cb9ae65','SUCCESS',1,'OPEN');
INSERT INTO "scheduler_dependency" VALUES('01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','01a1eea8-3a4a-7001-909f-edf2885aa259','CONDITION',0,'OPEN');
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
INSERT INTO "scheduler_dlq_alert" VALUES('01a1eea8-39bb-7000-9dd8-221c31ef4b44','01a1eea8-3983-7000-9bca-30560ee7e5da','tests.upgrades.past:decline','3489fad452e98e1fd01ab1796cced28387a1bf1f80f0404303bebc3e029e886d','ValueError: 4242 was declined','no retries configured',1795005364665667,0);
CREATE TABLE scheduler_idempotency_key (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    job_id          TEXT NOT NULL,
    created_at      INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "scheduler_idempotency_key" VALUES('order-1','01a1eea8-3a16-7000-b8a7-f3e54144083b',1795005364758473);
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
INSERT INTO "scheduler_job" VALUES('01a1eea8-397f-7000-b6de-4ebf35b20498','01a1eea8-397f-7000-b6de-4ebf35b20498','tests.upgrades.past:greet','{"args":["ann"],"kwargs":{"polite":true}}','{"region":"eu"}','SINGLE',2,1,'SUCCEEDED',1795005364607151,1795005364607151,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795005364636677,1795005364636772,'host-1:26332-91ab41ea51e7',NULL,NULL,'"dear ann"',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3983-7000-9bca-30560ee7e5da','01a1eea8-3983-7000-9bca-30560ee7e5da','tests.upgrades.past:decline','{"args":["4242"],"kwargs":{}}',NULL,'SINGLE',2,1,'FAILED',1795005364610601,1795005364610601,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,'tests.upgrades.past:alarm',NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795005364664015,1795005364664060,'host-1:26332-91ab41ea51e7','ValueError: 4242 was declined','ValueError',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'no retries configured',NULL,1795005364665667,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3984-7000-bbba-1283a7ce5ffd','01a1eea8-3984-7000-bbba-1283a7ce5ffd','tests.upgrades.past:decline','{"args":["1111"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795005364611877,3523005364664320,NULL,2,'FIXED',1728000000000000,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795005364664309,NULL,'host-1:26332-91ab41ea51e7','ValueError: 1111 was declined','ValueError',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-39b9-7000-901b-a91da7003d38','01a1eea8-39b9-7000-901b-a91da7003d38','tests.upgrades.past:alarm','{"args":[{"message":"ValueError: 4242 was declined","type":"ValueError","reason":"no retries configured","attempts":1}],"kwargs":{}}',NULL,'CALLBACK',2,1,'SUCCEEDED',1795005364665667,1795005364664060,NULL,3,'EXPONENTIAL',5000000,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eea8-3983-7000-9bca-30560ee7e5da',NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795005364702625,1795005364702651,'host-1:26332-91ab41ea51e7',NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a04-7000-ac8f-9eac812154f0','01a1eea8-3a04-7000-ac8f-9eac812154f0','tests.upgrades.past:greet','{"args":["cid"],"kwargs":{}}',NULL,'SINGLE',2,1,'CANCELED',1795005364740377,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,1795005364741176,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,'requested',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a06-7000-ba22-960753230b5b','01a1eea8-3a06-7000-ba22-960753230b5b','tests.upgrades.past:greet','{"args":["old"],"kwargs":{}}',NULL,'SINGLE',2,1,'CANCELED',1795005364741904,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,1795005364744589,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'01a1eea8-3a09-7000-b8a4-0c777fb40eb1','superseded',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a09-7000-b8a4-0c777fb40eb1','01a1eea8-3a09-7000-b8a4-0c777fb40eb1','tests.upgrades.past:greet','{"args":["new"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795005364744589,1795005364744589,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a0a-7000-a7a1-5a32a34562b0','01a1eea8-3a0a-7000-a7a1-5a32a34562b0','tests.upgrades.past:greet','{"args":["dora"],"kwargs":{}}',NULL,'SINGLE',2,1,'PAUSED',1795005364746195,1795005364746195,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,'PENDING',NULL,NULL,NULL,NULL,1795005364750487,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a10-7000-9a4b-d90554fb999f','01a1eea8-3a10-7000-9a4b-d90554fb999f','tests.upgrades.past:greet','{"args":["eve"],"kwargs":{}}',NULL,'SINGLE',3,2,'PENDING',1795005364752433,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a16-7000-b8a7-f3e54144083b','01a1eea8-3a16-7000-b8a7-f3e54144083b','tests.upgrades.past:greet','{"args":["fay"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795005364758473,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,'order-1',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a1a-7000-b486-faf2d83cebe9','01a1eea8-3a1a-7000-b486-faf2d83cebe9','tests.upgrades.past:greet','{"args":["gus"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795005364761836,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,'customer-1',NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a23-7000-b005-7dc61c981e72','01a1eea8-3a23-7000-b005-7dc61c981e72','tests.upgrades.past:greet','{"args":["hal"],"kwargs":{}}',NULL,'SINGLE',2,3,'PENDING',1795005364770935,1795005364770935,NULL,0,'NONE',0,0.0,300000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a2f-7000-a852-cb2cadfecdf1','01a1eea8-3a2f-7000-a852-cb2cadfecdf1','tests.upgrades.past:greet','{"args":["ian"],"kwargs":{}}',NULL,'SINGLE',2,1,'WAITING',1795005364782835,1795005364782835,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,'order:1',NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795005364782835,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a37-7000-991f-9af53f6b069a','01a1eea8-3a37-7000-991f-9af53f6b069a','tests.upgrades.past:greet','{"args":["jo"],"kwargs":{}}',NULL,'SINGLE',2,4,'PENDING',1795005364791205,1795005364791205,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a42-7000-8de6-35746813530a','01a1eea8-3a42-7000-8de6-35746813530a','tests.upgrades.past:greet','{"args":["kim"],"kwargs":{}}',NULL,'CHAIN_STEP',2,1,'PENDING',1795005364802073,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a42-7001-a7c0-c2ac07d9f21a','01a1eea8-3a42-7000-8de6-35746813530a','tests.upgrades.past:greet','{"args":["lou"],"kwargs":{}}',NULL,'CHAIN_STEP',2,1,'WAITING',1795005364802073,1795005364802073,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eea8-3a42-7000-8de6-35746813530a',NULL,NULL,NULL,1,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795005364802073,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a45-7001-b3e1-0ce41d3b7557','01a1eea8-3a45-7000-8e70-00591cb9ae65','tests.upgrades.past:greet','{"args":["mia"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795005364804854,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a45-7000-8e70-00591cb9ae65','01a1eea8-3a45-7000-8e70-00591cb9ae65','tests.upgrades.past:greet','{"args":["joined"],"kwargs":{}}',NULL,'WORKFLOW_JOIN',2,1,'WAITING',1795005364804854,1795005364804854,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,2,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795005364804854,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a4a-7001-909f-edf2885aa259','01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','tests.upgrades.past:greet','{"args":["all"],"kwargs":{}}',NULL,'WORKFLOW_BRANCH',2,1,'WAITING',1795005364810624,1795005364810542,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eea8-3a4a-7000-a9d6-f3e0e7c05604',NULL,NULL,NULL,1,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795005364810624,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a4a-7002-9376-2669adbf5190','01a1eea8-3a4a-7002-9376-2669adbf5190','tests.upgrades.past:greet','{"args":["item-0"],"kwargs":{}}',NULL,'BATCH_CHILD',2,1,'PENDING',1795005364810624,1795005364810578,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','01a1eea8-3a4a-7000-a9d6-f3e0e7c05604',NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a4a-7003-9a79-08dee7551e64','01a1eea8-3a4a-7003-9a79-08dee7551e64','tests.upgrades.past:greet','{"args":["item-1"],"kwargs":{}}',NULL,'BATCH_CHILD',2,1,'PENDING',1795005364810624,1795005364810578,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','01a1eea8-3a4a-7000-a9d6-f3e0e7c05604',NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a4a-7004-84c7-3dc63de2ab54','01a1eea8-3a4a-7004-84c7-3dc63de2ab54','tests.upgrades.past:greet','{"args":["item-2"],"kwargs":{}}',NULL,'BATCH_CHILD',2,1,'PENDING',1795005364810624,1795005364810578,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','01a1eea8-3a4a-7000-a9d6-f3e0e7c05604',NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','ratchet:batch','{"args":[],"kwargs":{}}',NULL,'BATCH_PARENT',2,1,'WAITING',1795005364810624,1795005364810542,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,1,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795005364810624,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a53-7000-9065-47bd5688061e','01a1eea8-3a53-7000-9065-47bd5688061e','tests.upgrades.past:stall','{"args":["running"],"kwargs":{}}',NULL,'SINGLE',2,5,'PENDING',1795005364819157,1795005364819157,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,0.25,'a quarter','{"seen":3}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eea8-3a57-7000-93d3-2458a86d7b46','01a1eea8-3a57-7000-93d3-2458a86d7b46','tests.upgrades.past:greet','{"args":["ned"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795005364823275,1795005364823275,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "scheduler_job_archive" VALUES('01a1eea8-38cf-7000-a63a-13d12a78d8c8','01a1eea8-38cf-7000-a63a-13d12a78d8c8','tests.upgrades.past:greet','{"args":["archived"],"kwargs":{}}',NULL,'SINGLE',2,1,'SUCCEEDED',1795005364428803,1795005364428803,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795005364576090,1795005364576122,'host-1:26332-e66a29c46d50',NULL,NULL,'"hello archived"',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795005424602000);
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
INSERT INTO "scheduler_job_execution" VALUES('01a1eea8-38cf-7000-a63a-13d12a78d8c8','01a1eea8-3952-7000-a052-d05e35ddcf32',1,'host-1:26332-e66a29c46d50',1795005364428803,1795005364576090,1795005364576122,'SUCCEEDED',1,NULL,NULL,NULL);
INSERT INTO "scheduler_job_execution" VALUES('01a1eea8-397f-7000-b6de-4ebf35b20498','01a1eea8-3992-7000-b88f-1d169dbbb667',1,'host-1:26332-91ab41ea51e7',1795005364607151,1795005364636677,1795005364636772,'SUCCEEDED',1,NULL,NULL,NULL);
INSERT INTO "scheduler_job_execution" VALUES('01a1eea8-3983-7000-9bca-30560ee7e5da','01a1eea8-3992-7000-b88f-1d169dbbb667',1,'host-1:26332-91ab41ea51e7',1795005364610601,1795005364664015,1795005364664060,'FAILED',1,'ValueError: 4242 was declined','ValueError','Traceback (most recent call last):
  File "/srv/shop/ratchet/engine/task.py", line 188, in invoke
    value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)
                                                                       ^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/ratchet/engine/task.py", line 301, in _call
    return call.function(*call.args, **call.kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/tests/upgrades/past.py", line 38, in decline
    raise ValueError(f"{card} was declined")
ValueError: 4242 was declined
');
INSERT INTO "scheduler_job_execution" VALUES('01a1eea8-3984-7000-bbba-1283a7ce5ffd','01a1eea8-3992-7000-b88f-1d169dbbb667',1,'host-1:26332-91ab41ea51e7',1795005364611877,1795005364664309,1795005364664320,'FAILED',1,'ValueError: 1111 was declined','ValueError','Traceback (most recent call last):
  File "/srv/shop/ratchet/engine/task.py", line 188, in invoke
    value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)
                                                                       ^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/ratchet/engine/task.py", line 301, in _call
    return call.function(*call.args, **call.kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/tests/upgrades/past.py", line 38, in decline
    raise ValueError(f"{card} was declined")
ValueError: 1111 was declined
');
INSERT INTO "scheduler_job_execution" VALUES('01a1eea8-39b9-7000-901b-a91da7003d38','01a1eea8-39dc-7000-90e2-e900548cf867',1,'host-1:26332-91ab41ea51e7',1795005364664060,1795005364702625,1795005364702651,'SUCCEEDED',1,NULL,NULL,NULL);
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
INSERT INTO "scheduler_job_log" VALUES('01a1eea8-3a53-7000-9065-47bd5688061e','01a1eea8-3a66-7000-b391-23950e77495a',1,1,1795005364842449,'INFO','ratchet.job','stalling as running');
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
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3984-7000-bbba-1283a7ce5ffd',1,2,'PENDING','SINGLE',1,0,2,NULL,3523005364664320,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a09-7000-b8a4-0c777fb40eb1',1,2,'PENDING','SINGLE',0,0,0,NULL,1795005364744589,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a10-7000-9a4b-d90554fb999f',2,3,'PENDING','SINGLE',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a16-7000-b8a7-f3e54144083b',1,2,'PENDING','SINGLE',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a1a-7000-b486-faf2d83cebe9',1,2,'PENDING','SINGLE',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a23-7000-b005-7dc61c981e72',3,2,'PENDING','SINGLE',0,0,0,300000000,1795005364770935,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a37-7000-991f-9af53f6b069a',4,2,'PENDING','SINGLE',0,0,0,NULL,1795005364791205,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a42-7000-8de6-35746813530a',1,2,'PENDING','CHAIN_STEP',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a45-7001-b3e1-0ce41d3b7557',1,2,'PENDING','SINGLE',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a4a-7002-9376-2669adbf5190',1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,1795005364810578,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a4a-7003-9a79-08dee7551e64',1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,1795005364810578,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a4a-7004-84c7-3dc63de2ab54',1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,1795005364810578,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a53-7000-9065-47bd5688061e',5,2,'RUNNING','SINGLE',0,0,0,NULL,1795005364819157,'host-1:26332-30157dccfcf6',1795005364838375,'01a1eea8-3a66-7000-b391-23950e77495a',NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eea8-3a57-7000-93d3-2458a86d7b46',1,2,'PENDING','SINGLE',0,0,0,NULL,1795005364823275,NULL,NULL,NULL,NULL);
CREATE TABLE scheduler_job_tag (
    tag             TEXT NOT NULL,
    job_id          TEXT NOT NULL,
    PRIMARY KEY (tag, job_id)
) WITHOUT ROWID;
INSERT INTO "scheduler_job_tag" VALUES('eu','01a1eea8-397f-7000-b6de-4ebf35b20498');
INSERT INTO "scheduler_job_tag" VALUES('vip','01a1eea8-397f-7000-b6de-4ebf35b20498');
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
INSERT INTO "scheduler_node" VALUES('host-1:26332-30157dccfcf6','host-1:26332','host-1',26332,'0.1.0','ACTIVE',1,5000000,15000000,1795005364827871,1795005364835275,'{"lanes":{"thread":20,"async":200,"process":2},"queues":null,"targets":[],"rescues":0,"false_rescues":0,"replaces":null,"process":"host-1:26332:6ca88c72"}',NULL,NULL);
CREATE TABLE scheduler_queue (
    queue           TEXT NOT NULL PRIMARY KEY,
    paused          INTEGER NOT NULL DEFAULT 0,
    paused_at       INTEGER
) WITHOUT ROWID;
INSERT INTO "scheduler_queue" VALUES('closed',1,1795005364790450);
INSERT INTO "scheduler_queue" VALUES('default',1,1795005364811963);
CREATE TABLE scheduler_recurring_fire (
    name            TEXT NOT NULL,
    fire_at         INTEGER NOT NULL,
    outcome         TEXT NOT NULL,
    job_id          TEXT,
    reason          TEXT,
    recorded_at     INTEGER NOT NULL,
    PRIMARY KEY (name, fire_at)
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
INSERT INTO "scheduler_recurring_job" VALUES('nightly','0 2 * * *','Europe/Berlin','tests.upgrades.past:greet','{"job_id":"00000000-0000-0000-0000-000000000000","target":"tests.upgrades.past:greet","payload":"{\"args\":[\"nightly\"],\"kwargs\":{}}","scheduled_at":"1970-01-01T00:00:00Z","root_id":null,"status":"PENDING","type":"SINGLE","priority":2,"stream":{"queue":"default","lane":"thread","resource":null,"breaker":null,"limit_key":null,"fairness_key":null,"suspect":false,"parked_target":null},"expires_at":null,"max_retries":0,"backoff":"NONE","backoff_base":"P0D","jitter":0.0,"timeout":null,"no_retry_for":[],"params":null,"tags":[],"idempotency_key":null,"business_key":null,"busy":"RAISE","on_success":null,"on_failure":null,"parent_id":null,"batch_id":null,"schedule":null,"caller":null,"needs":0,"signal":null}','fire_once','SKIP',NULL,NULL,0,0,1,1795050000000000,NULL,1795005364794683,1795005364799168);
CREATE TABLE scheduler_resource_limit (
    resource        TEXT NOT NULL PRIMARY KEY,
    max_concurrent  INTEGER,
    rate            INTEGER,
    period_us       INTEGER,
    tokens          REAL,
    refilled_at     INTEGER,
    updated_at      INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "scheduler_resource_limit" VALUES('press',1,NULL,NULL,NULL,1795005364764568,1795005364764568);
CREATE TABLE scheduler_resource_permit (
    resource        TEXT NOT NULL,
    job_id          TEXT NOT NULL,
    claim_id        TEXT NOT NULL,
    node_id         TEXT NOT NULL,
    acquired_at     INTEGER NOT NULL,
    PRIMARY KEY (job_id, claim_id, resource)
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
INSERT INTO "scheduler_signal" VALUES('01a1eea8-3a33-7000-b868-2a67940895d9','order:2',NULL,'{"by":"ann"}',NULL,1795005364786789,1795008964786789,NULL);
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
INSERT INTO "scheduler_stream" VALUES(1,'a06bc5245bad95d55d4ddf1df5038197ea8335cd3883f27d64c8438f2f59b02e','default','thread',NULL,NULL,NULL,NULL,0,NULL,0,1795005364433123);
INSERT INTO "scheduler_stream" VALUES(2,'1155d4a028ed0efa4e469e6edb255688c19ad83c35dcce281c15cd96c3af0d30','mails','thread',NULL,NULL,NULL,NULL,0,NULL,0,1795005364752934);
INSERT INTO "scheduler_stream" VALUES(3,'14796c0ae225d0555a4c1fe5742742049377604b0ed0cac82097c36e4e6f3e18','default','thread','press',NULL,NULL,NULL,0,NULL,0,1795005364771386);
INSERT INTO "scheduler_stream" VALUES(4,'ee5218e40c132943c924374e3298a3e74f9a9782c856b44da73a907f51efafe6','closed','thread',NULL,NULL,NULL,NULL,0,NULL,0,1795005364791651);
INSERT INTO "scheduler_stream" VALUES(5,'05ac5098145f80e682062c07b0de82d49b5b68916dced213c4d5dcb23f725f1e','open','thread',NULL,NULL,NULL,NULL,0,NULL,0,1795005364819812);
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
INSERT INTO "scheduler_workflow_condition" VALUES('01a1eea8-3a4a-7000-a9d6-f3e0e7c05604','01a1eea8-3a4a-7001-909f-edf2885aa259','batch_success',NULL,NULL,0,NULL);
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
CREATE INDEX idx_claim_executable ON scheduler_job_queue (stream_id, priority, scheduled_time, job_id, status) WHERE status = 'PENDING';
CREATE INDEX idx_queue_orphan ON scheduler_job_queue (picked_by) WHERE picked_by IS NOT NULL;
CREATE INDEX idx_reservation_job ON scheduler_business_key_reservation (job_id);
CREATE INDEX idx_reservation_node ON scheduler_business_key_reservation (node_id) WHERE node_id IS NOT NULL;
CREATE INDEX idx_tag_job ON scheduler_job_tag (job_id);
CREATE INDEX idx_log_logged_at ON scheduler_job_log (logged_at);
CREATE INDEX idx_batch_open ON scheduler_batch (batch_id) WHERE finished_at IS NULL;
CREATE INDEX idx_dependency_child ON scheduler_dependency (child_id);
CREATE INDEX idx_recurring_due ON scheduler_recurring_job (next_fire_at) WHERE next_fire_at IS NOT NULL AND NOT paused;
CREATE INDEX idx_signal_kept ON scheduler_signal (signal_key, signal_id) WHERE consumed_by IS NULL;
CREATE INDEX idx_archive_archived_at ON scheduler_job_archive (archived_at);
CREATE INDEX idx_permit_resource ON scheduler_resource_permit (resource);
CREATE INDEX idx_permit_node ON scheduler_resource_permit (node_id);
CREATE INDEX idx_alert_job ON scheduler_dlq_alert (job_id, error_hash, created_at);
COMMIT;
