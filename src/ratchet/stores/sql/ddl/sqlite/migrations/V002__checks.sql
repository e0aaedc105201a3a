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
