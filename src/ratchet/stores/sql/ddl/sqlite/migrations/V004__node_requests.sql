-- serves: V001
-- What a person asks of a node: DRAIN or STOP. The node learns it with its next beat; one of an earlier version never looks.
ALTER TABLE scheduler_node ADD COLUMN request TEXT;
