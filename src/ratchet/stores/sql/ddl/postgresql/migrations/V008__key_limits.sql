-- serves: V001
-- When a submission last asked for a limit that was made for its key (`with_concurrency_key`, `with_rate_key`); NULL: a person has set it.
-- It counts only while it is updated_at: code of an earlier version sets limits without this column, and what it has set must stay.
ALTER TABLE scheduler_resource_limit ADD COLUMN asked_at timestamptz;
-- In which order keys take turns: where thousands have work, a claim looks only at those whose turn is next.
-- beside writers: CREATE INDEX idx_stream_turns ON scheduler_stream (lane, suspect, fairness_key COLLATE "C", stream_id);
-- And in which order jobs of concurrency keys come, of all keys together. A stream of such a key has a number that says so; with
-- it the index leaves out all other jobs, and costs them nothing. What is put back or set aside keeps its number.
CREATE OR REPLACE FUNCTION ratchet_number_of_key() RETURNS trigger LANGUAGE plpgsql AS $number$
BEGIN
    NEW.stream_id := NEW.stream_id + 1073741824;
    RETURN NEW;
END
$number$;
CREATE TRIGGER tr_stream_of_key BEFORE INSERT ON scheduler_stream FOR EACH ROW
    WHEN (NEW.limit_key IS NOT NULL AND NEW.fairness_key IS NULL AND NEW.stream_id < 1073741824 AND NEW.stream_key < 'unused')
    EXECUTE FUNCTION ratchet_number_of_key();
-- beside writers: CREATE INDEX idx_claim_keyed ON scheduler_job_queue (priority, scheduled_time, job_id, stream_id) WHERE status = 'PENDING' AND stream_id >= 1073741824;
