-- serves: V001
-- A move of all jobs to or from another store: which side this store is, how far it has come. Written by `ratchet db move` alone.
CREATE TABLE scheduler_move (
    move_id         VARCHAR(64) PRIMARY KEY,
    document        MEDIUMTEXT NOT NULL                     -- JSON
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;
