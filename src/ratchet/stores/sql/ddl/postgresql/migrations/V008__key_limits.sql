-- serves: V001
-- When a submission last asked for a limit that was made for its key (`with_concurrency_key`, `with_rate_key`); NULL: a person has set it.
-- It counts only while it is updated_at: code of an earlier version sets limits without this column, and what it has set must stay.
ALTER TABLE scheduler_resource_limit ADD COLUMN asked_at timestamptz;
-- In which order keys take turns: where thousands have work, a claim looks only at those whose turn is next.
-- beside writers: CREATE INDEX idx_stream_turns ON scheduler_stream (lane, suspect, fairness_key COLLATE "C", stream_id);
