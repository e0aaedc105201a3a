-- Optional views for people who look at the tables in a shell, where a BINARY(16) cannot be read: the same rows with
-- ids as hyphenated text. MySQL's BIN_TO_UUID(id) would say the same, but MariaDB has no such function.
-- To find one job by its index: WHERE raw_job_id = UNHEX(REPLACE('01a1df19-…', '-', '')).
-- Read only, and not made by migrations; apply this file by hand, again after an upgrade. Where there is a queue row,
-- it is the one that knows the status, the attempts and the due time.

CREATE OR REPLACE VIEW vw_jobs AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(j.job_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS job_id,
       j.target, COALESCE(q.status, j.status) AS status, j.job_type, j.priority,
       s.queue, s.lane, s.resource, s.breaker,
       COALESCE(q.attempts, j.attempts) AS attempts, j.max_retries, COALESCE(q.crashes, j.crashes) AS crashes,
       j.created_at, COALESCE(q.scheduled_time, j.scheduled_at) AS scheduled_at,
       CASE WHEN q.status = 'RUNNING' THEN q.picked_at ELSE j.started_at END AS started_at, j.finished_at, j.expires_at,
       CASE WHEN q.status = 'RUNNING' THEN q.picked_by ELSE j.node_id END AS node_id,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(q.claim_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS claim_id,
       j.business_key, j.idempotency_key, j.schedule, j.caller, j.progress, j.progress_message,
       j.error, j.error_type, j.result, j.dead_letter_reason, j.canceled_reason, j.paused_from, j.signal_key,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(j.root_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS root_id,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(j.parent_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS parent_id,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(j.batch_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS batch_id,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(j.superseded_by), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS superseded_by,
       j.params, j.payload, j.job_id AS raw_job_id
  FROM scheduler_job j
  LEFT JOIN scheduler_job_queue q ON q.job_id = j.job_id
  LEFT JOIN scheduler_stream s ON s.stream_id = COALESCE(q.stream_id, j.stream_id);

CREATE OR REPLACE VIEW vw_job_executions AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(e.job_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS job_id,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(e.claim_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS claim_id,
       e.attempt, e.status, e.counted, e.node_id, e.scheduled_at, e.started_at, e.finished_at, e.error, e.error_type,
       e.traceback, e.job_id AS raw_job_id
  FROM scheduler_job_execution e;

CREATE OR REPLACE VIEW vw_job_logs AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(l.job_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS job_id,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(l.claim_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS claim_id,
       l.sequence, l.attempt, l.logged_at, l.level, l.logger, l.message, l.job_id AS raw_job_id
  FROM scheduler_job_log l;

CREATE OR REPLACE VIEW vw_job_tags AS
SELECT t.tag,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(t.job_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS job_id
  FROM scheduler_job_tag t;

CREATE OR REPLACE VIEW vw_dependencies AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(d.parent_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS parent_id,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(d.child_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS child_id,
       d.kind, d.position, d.state
  FROM scheduler_dependency d;

CREATE OR REPLACE VIEW vw_batches AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(b.batch_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS batch_id,
       b.name,
       LOWER(INSERT(INSERT(INSERT(INSERT(HEX(b.parent_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS parent_id,
       b.total, b.completed, b.failed, b.canceled, b.sealed, b.created_at, b.finished_at
  FROM scheduler_batch b;

CREATE OR REPLACE VIEW vw_dead_letters AS
SELECT LOWER(INSERT(INSERT(INSERT(INSERT(HEX(j.job_id), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-')) AS job_id,
       j.target, j.error, j.error_type, j.dead_letter_reason, j.attempts, j.crashes, j.dead_lettered_at
  FROM scheduler_job j
 WHERE j.dead_lettered_at IS NOT NULL;
