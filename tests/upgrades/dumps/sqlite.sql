BEGIN TRANSACTION;
CREATE TABLE ratchet_schema_version (
        script      TEXT PRIMARY KEY,
        checksum    TEXT NOT NULL,
        applied_at  INTEGER NOT NULL
    );
INSERT INTO "ratchet_schema_version" VALUES('V001__initial','18c35f50467a467e3de2764fd9f5060113d711a72599a8153041512bca051dc1',1795006428575998);
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
INSERT INTO "scheduler_batch" VALUES('01a1eeb8-79bc-7000-a6fc-0c750aced5f3','parcels','01a1eeb8-79bc-7000-a6fc-0c750aced5f3',3,0,0,0,1,NULL,1795006429627649,NULL);
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
INSERT INTO "scheduler_business_key_reservation" VALUES('customer-1','01a1eeb8-7997-7000-81d8-054d3ab9aace',1795006429590912,NULL,NULL);
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
INSERT INTO "scheduler_dependency" VALUES('01a1eeb8-79b3-7000-b1da-1f442bc4f041','01a1eeb8-79b3-7001-9462-1ff5687019ba','SUCCESS',0,'OPEN');
INSERT INTO "scheduler_dependency" VALUES('01a1eeb8-79b3-7000-b1da-1f442bc4f041','01a1eeb8-79b6-7000-a146-f1acef055796','SUCCESS',0,'OPEN');
INSERT INTO "scheduler_dependency" VALUES('01a1eeb8-79b6-7001-acfa-4b4de8e1fa9a','01a1eeb8-79b6-7000-a146-f1acef055796','SUCCESS',1,'OPEN');
INSERT INTO "scheduler_dependency" VALUES('01a1eeb8-79bc-7000-a6fc-0c750aced5f3','01a1eeb8-79bc-7001-96ce-8d44a917b060','CONDITION',0,'OPEN');
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
INSERT INTO "scheduler_dlq_alert" VALUES('01a1eeb8-7966-7000-be70-cecc5cd23df3','01a1eeb8-7953-7000-9847-bf7b3b0e244e','tests.upgrades.past:decline','3489fad452e98e1fd01ab1796cced28387a1bf1f80f0404303bebc3e029e886d','ValueError: 4242 was declined','no retries configured',1795006429540388,0);
CREATE TABLE scheduler_idempotency_key (
    idempotency_key TEXT NOT NULL PRIMARY KEY,
    job_id          TEXT NOT NULL,
    created_at      INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "scheduler_idempotency_key" VALUES('order-1','01a1eeb8-7996-7000-a655-b46d22a6531c',1795006429590235);
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
INSERT INTO "scheduler_job" VALUES('01a1eeb8-794d-7000-8bc0-e85bf780fb1e','01a1eeb8-794d-7000-8bc0-e85bf780fb1e','tests.upgrades.past:greet','{"args":["ann"],"kwargs":{"polite":true}}','{"region":"eu"}','SINGLE',2,1,'SUCCEEDED',1795006429516809,1795006429516809,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795006429538005,1795006429538025,'host-1:23951-4049654d522f',NULL,NULL,'"dear ann"',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-7953-7000-9847-bf7b3b0e244e','01a1eeb8-7953-7000-9847-bf7b3b0e244e','tests.upgrades.past:decline','{"args":["4242"],"kwargs":{}}',NULL,'SINGLE',2,1,'FAILED',1795006429522186,1795006429522186,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,'tests.upgrades.past:alarm',NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795006429538137,1795006429538150,'host-1:23951-4049654d522f','ValueError: 4242 was declined','ValueError',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'no retries configured',NULL,1795006429540388,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-7953-7001-b7b3-c238f1c5b96d','01a1eeb8-7953-7001-b7b3-c238f1c5b96d','tests.upgrades.past:decline','{"args":["1111"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795006429523041,3523006429538902,NULL,2,'FIXED',1728000000000000,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795006429538889,NULL,'host-1:23951-4049654d522f','ValueError: 1111 was declined','ValueError',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-7963-7000-967f-e624c124c342','01a1eeb8-7963-7000-967f-e624c124c342','tests.upgrades.past:alarm','{"args":[{"message":"ValueError: 4242 was declined","type":"ValueError","reason":"no retries configured","attempts":1}],"kwargs":{}}',NULL,'CALLBACK',2,1,'SUCCEEDED',1795006429540388,1795006429538150,NULL,3,'EXPONENTIAL',5000000,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eeb8-7953-7000-9847-bf7b3b0e244e',NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795006429543952,1795006429543965,'host-1:23951-4049654d522f',NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-7984-7000-8f20-ec4d34bbf6e9','01a1eeb8-7984-7000-8f20-ec4d34bbf6e9','tests.upgrades.past:greet','{"args":["cid"],"kwargs":{}}',NULL,'SINGLE',2,1,'CANCELED',1795006429568811,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,1795006429576310,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,'requested',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-798b-7000-a7dc-e03a27a74fb2','01a1eeb8-798b-7000-a7dc-e03a27a74fb2','tests.upgrades.past:greet','{"args":["old"],"kwargs":{}}',NULL,'SINGLE',2,1,'CANCELED',1795006429579285,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,1795006429580558,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,'01a1eeb8-798d-7000-a4f2-3a26fa6d7ae2','superseded',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-798d-7000-a4f2-3a26fa6d7ae2','01a1eeb8-798d-7000-a4f2-3a26fa6d7ae2','tests.upgrades.past:greet','{"args":["new"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795006429580558,1795006429580558,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-798e-7000-b122-e3f98d768bf9','01a1eeb8-798e-7000-b122-e3f98d768bf9','tests.upgrades.past:greet','{"args":["dora"],"kwargs":{}}',NULL,'SINGLE',2,1,'PAUSED',1795006429581415,1795006429581415,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,'PENDING',NULL,NULL,NULL,NULL,1795006429583069,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-7990-7000-acea-586ee7e9bf5f','01a1eeb8-7990-7000-acea-586ee7e9bf5f','tests.upgrades.past:greet','{"args":["eve"],"kwargs":{}}',NULL,'SINGLE',3,2,'PENDING',1795006429583927,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-7996-7000-a655-b46d22a6531c','01a1eeb8-7996-7000-a655-b46d22a6531c','tests.upgrades.past:greet','{"args":["fay"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795006429590235,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,'order-1',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-7997-7000-81d8-054d3ab9aace','01a1eeb8-7997-7000-81d8-054d3ab9aace','tests.upgrades.past:greet','{"args":["gus"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795006429590912,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,'customer-1',NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-799b-7000-a0e8-fa573d29ed1b','01a1eeb8-799b-7000-a0e8-fa573d29ed1b','tests.upgrades.past:greet','{"args":["hal"],"kwargs":{}}',NULL,'SINGLE',2,3,'PENDING',1795006429594461,1795006429594461,NULL,0,'NONE',0,0.0,300000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79a5-7000-88a9-b5fb375395cb','01a1eeb8-79a5-7000-88a9-b5fb375395cb','tests.upgrades.past:greet','{"args":["ian"],"kwargs":{}}',NULL,'SINGLE',2,1,'WAITING',1795006429604722,1795006429604722,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,'order:1',NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795006429604722,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79a8-7000-82f3-ea4c8db9b493','01a1eeb8-79a8-7000-82f3-ea4c8db9b493','tests.upgrades.past:greet','{"args":["jo"],"kwargs":{}}',NULL,'SINGLE',2,4,'PENDING',1795006429607992,1795006429607992,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79b3-7000-b1da-1f442bc4f041','01a1eeb8-79b3-7000-b1da-1f442bc4f041','tests.upgrades.past:greet','{"args":["kim"],"kwargs":{}}',NULL,'CHAIN_STEP',2,1,'PENDING',1795006429618957,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79b3-7001-9462-1ff5687019ba','01a1eeb8-79b3-7000-b1da-1f442bc4f041','tests.upgrades.past:greet','{"args":["lou"],"kwargs":{}}',NULL,'CHAIN_STEP',2,1,'WAITING',1795006429618957,1795006429618957,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eeb8-79b3-7000-b1da-1f442bc4f041',NULL,NULL,NULL,1,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795006429618957,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79b6-7001-acfa-4b4de8e1fa9a','01a1eeb8-79b6-7000-a146-f1acef055796','tests.upgrades.past:greet','{"args":["mia"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795006429622178,4070908800000000,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79b6-7000-a146-f1acef055796','01a1eeb8-79b6-7000-a146-f1acef055796','tests.upgrades.past:greet','{"args":["joined"],"kwargs":{}}',NULL,'WORKFLOW_JOIN',2,1,'WAITING',1795006429622178,1795006429622178,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,2,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795006429622178,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79bc-7001-96ce-8d44a917b060','01a1eeb8-79bc-7000-a6fc-0c750aced5f3','tests.upgrades.past:greet','{"args":["all"],"kwargs":{}}',NULL,'WORKFLOW_BRANCH',2,1,'WAITING',1795006429627649,1795006429627567,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eeb8-79bc-7000-a6fc-0c750aced5f3',NULL,NULL,NULL,1,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795006429627649,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79bc-7002-918e-ba6494264f47','01a1eeb8-79bc-7002-918e-ba6494264f47','tests.upgrades.past:greet','{"args":["item-0"],"kwargs":{}}',NULL,'BATCH_CHILD',2,1,'PENDING',1795006429627649,1795006429627604,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eeb8-79bc-7000-a6fc-0c750aced5f3','01a1eeb8-79bc-7000-a6fc-0c750aced5f3',NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79bc-7003-9c1c-43e31d388412','01a1eeb8-79bc-7003-9c1c-43e31d388412','tests.upgrades.past:greet','{"args":["item-1"],"kwargs":{}}',NULL,'BATCH_CHILD',2,1,'PENDING',1795006429627649,1795006429627604,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eeb8-79bc-7000-a6fc-0c750aced5f3','01a1eeb8-79bc-7000-a6fc-0c750aced5f3',NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79bc-7004-ab65-0d63da50b76f','01a1eeb8-79bc-7004-ab65-0d63da50b76f','tests.upgrades.past:greet','{"args":["item-2"],"kwargs":{}}',NULL,'BATCH_CHILD',2,1,'PENDING',1795006429627649,1795006429627604,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,'01a1eeb8-79bc-7000-a6fc-0c750aced5f3','01a1eeb8-79bc-7000-a6fc-0c750aced5f3',NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79bc-7000-a6fc-0c750aced5f3','01a1eeb8-79bc-7000-a6fc-0c750aced5f3','ratchet:batch','{"args":[],"kwargs":{}}',NULL,'BATCH_PARENT',2,1,'WAITING',1795006429627649,1795006429627567,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,1,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795006429627649,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79c2-7000-af1a-e113c8743eae','01a1eeb8-79c2-7000-af1a-e113c8743eae','tests.upgrades.past:stall','{"args":["running"],"kwargs":{}}',NULL,'SINGLE',2,5,'PENDING',1795006429633111,1795006429633111,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,0.25,'a quarter','{"seen":3}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job" VALUES('01a1eeb8-79c7-7000-a9eb-7aba76d920ea','01a1eeb8-79c7-7000-a9eb-7aba76d920ea','tests.upgrades.past:greet','{"args":["ned"],"kwargs":{}}',NULL,'SINGLE',2,1,'PENDING',1795006429639063,1795006429639063,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO "scheduler_job_archive" VALUES('01a1eeb8-78ea-7000-992a-af14716898d5','01a1eeb8-78ea-7000-992a-af14716898d5','tests.upgrades.past:greet','{"args":["archived"],"kwargs":{}}',NULL,'SINGLE',2,1,'SUCCEEDED',1795006429414516,1795006429414516,NULL,0,'NONE',0,0.0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,1795006429507518,1795006429507550,'host-1:23951-dbb1cc9adbf7',NULL,NULL,'"hello archived"',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,1795006489516000);
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
INSERT INTO "scheduler_job_execution" VALUES('01a1eeb8-78ea-7000-992a-af14716898d5','01a1eeb8-7938-7000-8958-110d6a60ab73',1,'host-1:23951-dbb1cc9adbf7',1795006429414516,1795006429507518,1795006429507550,'SUCCEEDED',1,NULL,NULL,NULL);
INSERT INTO "scheduler_job_execution" VALUES('01a1eeb8-794d-7000-8bc0-e85bf780fb1e','01a1eeb8-795f-7000-94a2-ed7b3ae12a44',1,'host-1:23951-4049654d522f',1795006429516809,1795006429538005,1795006429538025,'SUCCEEDED',1,NULL,NULL,NULL);
INSERT INTO "scheduler_job_execution" VALUES('01a1eeb8-7953-7000-9847-bf7b3b0e244e','01a1eeb8-795f-7000-94a2-ed7b3ae12a44',1,'host-1:23951-4049654d522f',1795006429522186,1795006429538137,1795006429538150,'FAILED',1,'ValueError: 4242 was declined','ValueError','Traceback (most recent call last):
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
INSERT INTO "scheduler_job_execution" VALUES('01a1eeb8-7953-7001-b7b3-c238f1c5b96d','01a1eeb8-795f-7000-94a2-ed7b3ae12a44',1,'host-1:23951-4049654d522f',1795006429523041,1795006429538889,1795006429538902,'FAILED',1,'ValueError: 1111 was declined','ValueError','Traceback (most recent call last):
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
INSERT INTO "scheduler_job_execution" VALUES('01a1eeb8-7963-7000-967f-e624c124c342','01a1eeb8-7967-7000-97b5-754e4ce0130c',1,'host-1:23951-4049654d522f',1795006429538150,1795006429543952,1795006429543965,'SUCCEEDED',1,NULL,NULL,NULL);
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
INSERT INTO "scheduler_job_log" VALUES('01a1eeb8-79c2-7000-af1a-e113c8743eae','01a1eeb8-79d6-7000-8e0d-b38bdb7dee2d',1,1,1795006429663600,'INFO','ratchet.job','stalling as running');
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
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-7953-7001-b7b3-c238f1c5b96d',1,2,'PENDING','SINGLE',1,0,2,NULL,3523006429538902,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-798d-7000-a4f2-3a26fa6d7ae2',1,2,'PENDING','SINGLE',0,0,0,NULL,1795006429580558,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-7990-7000-acea-586ee7e9bf5f',2,3,'PENDING','SINGLE',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-7996-7000-a655-b46d22a6531c',1,2,'PENDING','SINGLE',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-7997-7000-81d8-054d3ab9aace',1,2,'PENDING','SINGLE',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-799b-7000-a0e8-fa573d29ed1b',3,2,'PENDING','SINGLE',0,0,0,300000000,1795006429594461,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-79a8-7000-82f3-ea4c8db9b493',4,2,'PENDING','SINGLE',0,0,0,NULL,1795006429607992,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-79b3-7000-b1da-1f442bc4f041',1,2,'PENDING','CHAIN_STEP',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-79b6-7001-acfa-4b4de8e1fa9a',1,2,'PENDING','SINGLE',0,0,0,NULL,4070908800000000,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-79bc-7002-918e-ba6494264f47',1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,1795006429627604,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-79bc-7003-9c1c-43e31d388412',1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,1795006429627604,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-79bc-7004-ab65-0d63da50b76f',1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,1795006429627604,NULL,NULL,NULL,NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-79c2-7000-af1a-e113c8743eae',5,2,'RUNNING','SINGLE',0,0,0,NULL,1795006429633111,'host-1:23951-3a4e7864ec52',1795006429654499,'01a1eeb8-79d6-7000-8e0d-b38bdb7dee2d',NULL);
INSERT INTO "scheduler_job_queue" VALUES('01a1eeb8-79c7-7000-a9eb-7aba76d920ea',1,2,'PENDING','SINGLE',0,0,0,NULL,1795006429639063,NULL,NULL,NULL,NULL);
CREATE TABLE scheduler_job_tag (
    tag             TEXT NOT NULL,
    job_id          TEXT NOT NULL,
    PRIMARY KEY (tag, job_id)
) WITHOUT ROWID;
INSERT INTO "scheduler_job_tag" VALUES('eu','01a1eeb8-794d-7000-8bc0-e85bf780fb1e');
INSERT INTO "scheduler_job_tag" VALUES('vip','01a1eeb8-794d-7000-8bc0-e85bf780fb1e');
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
INSERT INTO "scheduler_node" VALUES('host-1:23951-3a4e7864ec52','host-1:23951','host-1',23951,'0.1.0','ACTIVE',6,500000,2000000,1795006429648372,1795006432151158,'{"lanes":{"thread":20,"async":200,"process":2},"queues":null,"targets":["tests.upgrades.past:stall"],"rescues":0,"false_rescues":0,"replaces":null,"process":"host-1:23951:ee789c0a"}',NULL,NULL);
CREATE TABLE scheduler_queue (
    queue           TEXT NOT NULL PRIMARY KEY,
    paused          INTEGER NOT NULL DEFAULT 0,
    paused_at       INTEGER
) WITHOUT ROWID;
INSERT INTO "scheduler_queue" VALUES('closed',1,1795006429606660);
INSERT INTO "scheduler_queue" VALUES('default',1,1795006429630685);
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
INSERT INTO "scheduler_recurring_job" VALUES('nightly','0 2 * * *','Europe/Berlin','tests.upgrades.past:greet','{"job_id":"00000000-0000-0000-0000-000000000000","target":"tests.upgrades.past:greet","payload":"{\"args\":[\"nightly\"],\"kwargs\":{}}","scheduled_at":"1970-01-01T00:00:00Z","root_id":null,"status":"PENDING","type":"SINGLE","priority":2,"stream":{"queue":"default","lane":"thread","resource":null,"breaker":null,"limit_key":null,"fairness_key":null,"suspect":false,"parked_target":null},"expires_at":null,"max_retries":0,"backoff":"NONE","backoff_base":"P0D","jitter":0.0,"timeout":null,"no_retry_for":[],"params":null,"tags":[],"idempotency_key":null,"business_key":null,"busy":"RAISE","on_success":null,"on_failure":null,"parent_id":null,"batch_id":null,"schedule":null,"caller":null,"needs":0,"signal":null}','fire_once','SKIP',NULL,NULL,0,0,1,1795050000000000,NULL,1795006429609927,1795006429618489);
CREATE TABLE scheduler_resource_limit (
    resource        TEXT NOT NULL PRIMARY KEY,
    max_concurrent  INTEGER,
    rate            INTEGER,
    period_us       INTEGER,
    tokens          REAL,
    refilled_at     INTEGER,
    updated_at      INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "scheduler_resource_limit" VALUES('press',1,NULL,NULL,NULL,1795006429591599,1795006429591599);
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
INSERT INTO "scheduler_signal" VALUES('01a1eeb8-79a6-7000-94f6-d26b3bc8c62a','order:2',NULL,'{"by":"ann"}',NULL,1795006429605757,1795010029605757,NULL);
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
INSERT INTO "scheduler_stream" VALUES(1,'a06bc5245bad95d55d4ddf1df5038197ea8335cd3883f27d64c8438f2f59b02e','default','thread',NULL,NULL,NULL,NULL,0,NULL,0,1795006429420387);
INSERT INTO "scheduler_stream" VALUES(2,'1155d4a028ed0efa4e469e6edb255688c19ad83c35dcce281c15cd96c3af0d30','mails','thread',NULL,NULL,NULL,NULL,0,NULL,0,1795006429584730);
INSERT INTO "scheduler_stream" VALUES(3,'14796c0ae225d0555a4c1fe5742742049377604b0ed0cac82097c36e4e6f3e18','default','thread','press',NULL,NULL,NULL,0,NULL,0,1795006429595264);
INSERT INTO "scheduler_stream" VALUES(4,'ee5218e40c132943c924374e3298a3e74f9a9782c856b44da73a907f51efafe6','closed','thread',NULL,NULL,NULL,NULL,0,NULL,0,1795006429608772);
INSERT INTO "scheduler_stream" VALUES(5,'05ac5098145f80e682062c07b0de82d49b5b68916dced213c4d5dcb23f725f1e','open','thread',NULL,NULL,NULL,NULL,0,NULL,0,1795006429634098);
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
INSERT INTO "scheduler_workflow_condition" VALUES('01a1eeb8-79bc-7000-a6fc-0c750aced5f3','01a1eeb8-79bc-7001-96ce-8d44a917b060','batch_success',NULL,NULL,0,NULL);
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
