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
