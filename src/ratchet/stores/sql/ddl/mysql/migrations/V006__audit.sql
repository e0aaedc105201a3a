-- serves: V001
-- Who changed what, when, and with which outcome. A row is written by the transaction of the change, and never changed
-- but for its count, where a verb needs several transactions.
CREATE TABLE scheduler_audit (
    audit_id            BINARY(16) PRIMARY KEY,
    audited_at          DATETIME(6) NOT NULL,
    principal           VARCHAR(255),
    source              VARCHAR(32) NOT NULL,
    verb                VARCHAR(64) NOT NULL,
    job_id              BINARY(16),
    object_name         VARCHAR(512),
    criteria            MEDIUMTEXT,
    affected            INT,
    reason              MEDIUMTEXT,
    outcome             VARCHAR(32) NOT NULL,
    INDEX idx_audit_at (audited_at, audit_id),
    INDEX idx_audit_job (job_id, audited_at)
) ENGINE = InnoDB DEFAULT CHARSET = utf8mb4 /*M! COLLATE = utf8mb4_nopad_bin */ /*!80017 COLLATE = utf8mb4_0900_bin */;
