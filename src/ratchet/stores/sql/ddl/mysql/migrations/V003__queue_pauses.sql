-- serves: V001
-- A queue can be paused until a time. The time counts only while paused_until_of is paused_at: code of an earlier version pauses and
-- resumes without these columns, and what it says must not be ended by the time of an earlier pause.
ALTER TABLE scheduler_queue ADD COLUMN paused_until DATETIME(6);
ALTER TABLE scheduler_queue ADD COLUMN paused_until_of DATETIME(6);
