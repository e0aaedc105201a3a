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
