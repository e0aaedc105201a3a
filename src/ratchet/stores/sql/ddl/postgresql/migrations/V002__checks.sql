-- serves: V001
-- Values that no version of Ratchet writes are refused where they are written, and the version table says which older code a
-- script serves. What code reads does not depend on the checks: it passes by whatever stands in a row.
--
-- NOT VALID: nothing is scanned while the table is locked. But a check also refuses each update of a row that was bad before,
-- and then a claim could not even take it out of the queue. So a check that some row breaks today is left out, with a warning.
DO $checks$
DECLARE
    checks text[] := ARRAY[
        ['scheduler_job_queue', 'ck_queue_words',
         $$ status IN ('PENDING', 'RUNNING') AND job_type IN ('SINGLE', 'BATCH_PARENT', 'BATCH_CHILD', 'CHAIN_STEP',
            'WORKFLOW_BRANCH', 'WORKFLOW_JOIN', 'RECURRING_RUN', 'CALLBACK') $$],
        ['scheduler_job_queue', 'ck_queue_numbers',
         $$ priority BETWEEN 0 AND 4 AND attempts >= 0 AND crashes >= 0 AND timeout_us >= 0 $$],
        ['scheduler_job_queue', 'ck_queue_times',
         $$ scheduled_time >= '0001-01-01 00:00+00' AND scheduled_time < '10000-01-01 00:00+00' $$],
        ['scheduler_job', 'ck_job_words',
         $$ status IN ('PENDING', 'RUNNING', 'SUCCEEDED', 'FAILED', 'PAUSED', 'CANCELED', 'WAITING')
            AND job_type IN ('SINGLE', 'BATCH_PARENT', 'BATCH_CHILD', 'CHAIN_STEP', 'WORKFLOW_BRANCH', 'WORKFLOW_JOIN',
            'RECURRING_RUN', 'CALLBACK') AND backoff IN ('NONE', 'FIXED', 'EXPONENTIAL') $$],
        ['scheduler_job', 'ck_job_numbers',
         $$ priority BETWEEN 0 AND 4 AND attempts >= 0 AND crashes >= 0 AND timeout_us >= 0 AND backoff_base_us >= 0
            AND jitter >= 0 AND jitter < 'Infinity' $$],
        ['scheduler_job', 'ck_job_times',
         $$ created_at >= '0001-01-01 00:00+00' AND created_at < '10000-01-01 00:00+00'
            AND scheduled_at >= '0001-01-01 00:00+00' AND scheduled_at < '10000-01-01 00:00+00'
            AND expires_at >= '0001-01-01 00:00+00' AND expires_at < '10000-01-01 00:00+00'
            AND expiry_due_at >= '0001-01-01 00:00+00' AND expiry_due_at < '10000-01-01 00:00+00'
            AND signal_due_at >= '0001-01-01 00:00+00' AND signal_due_at < '10000-01-01 00:00+00' $$],
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

-- last: what starts reads this table, and need not wait while the others are looked through
ALTER TABLE ratchet_schema_version ADD COLUMN serves integer;
