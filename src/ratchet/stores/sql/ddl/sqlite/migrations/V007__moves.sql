-- serves: V001
-- A move of all jobs to or from another store: which side this store is, how far it has come. Written by `ratchet db move` alone.
CREATE TABLE scheduler_move (
    move_id         TEXT NOT NULL PRIMARY KEY,
    document        TEXT NOT NULL                     -- JSON
);
