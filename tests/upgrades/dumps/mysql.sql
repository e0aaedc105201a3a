
/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */;
/*!40101 SET @OLD_CHARACTER_SET_RESULTS=@@CHARACTER_SET_RESULTS */;
/*!40101 SET @OLD_COLLATION_CONNECTION=@@COLLATION_CONNECTION */;
/*!40101 SET NAMES utf8mb4 */;
/*!40103 SET @OLD_TIME_ZONE=@@TIME_ZONE */;
/*!40103 SET TIME_ZONE='+00:00' */;
/*!40014 SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0 */;
/*!40014 SET @OLD_FOREIGN_KEY_CHECKS=@@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS=0 */;
/*!40101 SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO' */;
/*!40111 SET @OLD_SQL_NOTES=@@SQL_NOTES, SQL_NOTES=0 */;
DROP TABLE IF EXISTS `ratchet_schema_version`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `ratchet_schema_version` (
  `script` varchar(255) NOT NULL,
  `checksum` varchar(255) NOT NULL,
  `applied_at` datetime(6) NOT NULL,
  PRIMARY KEY (`script`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `ratchet_schema_version` DISABLE KEYS */;
INSERT INTO `ratchet_schema_version` VALUES ('V001__initial','ccec5cdab0cda1f68cf60810b51e81ef959c5c5625299eb4b528cab7f0e4a34c','2026-11-18 12:36:21.156655');
/*!40000 ALTER TABLE `ratchet_schema_version` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_batch`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_batch` (
  `batch_id` binary(16) NOT NULL,
  `name` varchar(255) NOT NULL,
  `parent_id` binary(16) NOT NULL,
  `total` int(11) NOT NULL,
  `completed` int(11) NOT NULL DEFAULT 0,
  `failed` int(11) NOT NULL DEFAULT 0,
  `canceled` int(11) NOT NULL DEFAULT 0,
  `sealed` tinyint(1) NOT NULL,
  `progress_target` varchar(512) DEFAULT NULL,
  `created_at` datetime(6) NOT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`batch_id`),
  KEY `idx_batch_open` (`finished_at`,`batch_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_batch` DISABLE KEYS */;
INSERT INTO `scheduler_batch` VALUES (0x01A1EEA87FD170009DC41B3165177785,'parcels',0x01A1EEA87FD170009DC41B3165177785,3,0,0,0,1,NULL,'2026-11-18 12:36:22.609341',NULL);
/*!40000 ALTER TABLE `scheduler_batch` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_batch_metrics`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_batch_metrics` (
  `batch_id` binary(16) NOT NULL,
  `runs` int(11) NOT NULL DEFAULT 0,
  `run_time_us` bigint(20) NOT NULL DEFAULT 0,
  `started_at` datetime(6) DEFAULT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`batch_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_batch_metrics` DISABLE KEYS */;
/*!40000 ALTER TABLE `scheduler_batch_metrics` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_business_key_reservation`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_business_key_reservation` (
  `business_key` varchar(255) NOT NULL,
  `job_id` binary(16) NOT NULL,
  `reserved_at` datetime(6) NOT NULL,
  `claim_id` binary(16) DEFAULT NULL,
  `node_id` varchar(128) DEFAULT NULL,
  PRIMARY KEY (`business_key`),
  KEY `idx_reservation_job` (`job_id`),
  KEY `idx_reservation_node` (`node_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_business_key_reservation` DISABLE KEYS */;
INSERT INTO `scheduler_business_key_reservation` VALUES ('customer-1',0x01A1EEA87F817000B5DE43806725F8F5,'2026-11-18 12:36:22.529691',NULL,NULL);
/*!40000 ALTER TABLE `scheduler_business_key_reservation` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_circuit_breaker`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_circuit_breaker` (
  `service` varchar(255) NOT NULL,
  `state` varchar(16) NOT NULL,
  `open_until` datetime(6) DEFAULT NULL,
  `document` mediumtext NOT NULL,
  `version` bigint(20) NOT NULL,
  `updated_at` datetime(6) NOT NULL,
  PRIMARY KEY (`service`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_circuit_breaker` DISABLE KEYS */;
/*!40000 ALTER TABLE `scheduler_circuit_breaker` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_dependency`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_dependency` (
  `parent_id` binary(16) NOT NULL,
  `child_id` binary(16) NOT NULL,
  `kind` varchar(16) NOT NULL,
  `position` int(11) NOT NULL,
  `state` varchar(16) NOT NULL DEFAULT 'OPEN',
  PRIMARY KEY (`parent_id`,`child_id`),
  KEY `idx_dependency_child` (`child_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_dependency` DISABLE KEYS */;
INSERT INTO `scheduler_dependency` VALUES (0x01A1EEA87FC370009500DC1483092F59,0x01A1EEA87FC370019AEAAD2700C521ED,'SUCCESS',0,'OPEN');
INSERT INTO `scheduler_dependency` VALUES (0x01A1EEA87FC370009500DC1483092F59,0x01A1EEA87FC67000B9342C80FEDEC231,'SUCCESS',0,'OPEN');
INSERT INTO `scheduler_dependency` VALUES (0x01A1EEA87FC6700180FE41C9EBF35F7B,0x01A1EEA87FC67000B9342C80FEDEC231,'SUCCESS',1,'OPEN');
INSERT INTO `scheduler_dependency` VALUES (0x01A1EEA87FD170009DC41B3165177785,0x01A1EEA87FD17001BED8DF45C3442BB1,'CONDITION',0,'OPEN');
/*!40000 ALTER TABLE `scheduler_dependency` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_dlq_alert`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_dlq_alert` (
  `alert_id` binary(16) NOT NULL,
  `job_id` binary(16) NOT NULL,
  `target` varchar(512) NOT NULL,
  `error_hash` char(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `error` mediumtext DEFAULT NULL,
  `reason` mediumtext NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `suppressed` int(11) NOT NULL DEFAULT 0,
  PRIMARY KEY (`alert_id`),
  KEY `idx_alert_job` (`job_id`,`error_hash`,`created_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_dlq_alert` DISABLE KEYS */;
INSERT INTO `scheduler_dlq_alert` VALUES (0x01A1EEA87F2F7000B6B9D634EF68815A,0x01A1EEA87F087000962DA9C92176815F,'tests.upgrades.past:decline','3489fad452e98e1fd01ab1796cced28387a1bf1f80f0404303bebc3e029e886d','ValueError: 4242 was declined','no retries configured','2026-11-18 12:36:22.436962',0);
/*!40000 ALTER TABLE `scheduler_dlq_alert` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_idempotency_key`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_idempotency_key` (
  `idempotency_key` varchar(255) NOT NULL,
  `job_id` binary(16) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  PRIMARY KEY (`idempotency_key`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_idempotency_key` DISABLE KEYS */;
INSERT INTO `scheduler_idempotency_key` VALUES ('order-1',0x01A1EEA87F7C7000B07368C680C4628A,'2026-11-18 12:36:22.524456');
/*!40000 ALTER TABLE `scheduler_idempotency_key` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_job`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_job` (
  `job_id` binary(16) NOT NULL,
  `root_id` binary(16) NOT NULL,
  `target` varchar(512) NOT NULL,
  `payload` mediumtext NOT NULL,
  `params` mediumtext DEFAULT NULL,
  `job_type` varchar(16) NOT NULL,
  `priority` smallint(6) NOT NULL,
  `stream_id` int(11) NOT NULL,
  `status` varchar(16) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `scheduled_at` datetime(6) NOT NULL,
  `expires_at` datetime(6) DEFAULT NULL,
  `max_retries` int(11) NOT NULL DEFAULT 0,
  `backoff` varchar(16) NOT NULL DEFAULT 'NONE',
  `backoff_base_us` bigint(20) NOT NULL DEFAULT 0,
  `jitter` double NOT NULL DEFAULT 0,
  `timeout_us` bigint(20) DEFAULT NULL,
  `no_retry_for` mediumtext DEFAULT NULL,
  `idempotency_key` varchar(255) DEFAULT NULL,
  `business_key` varchar(255) DEFAULT NULL,
  `on_success` varchar(512) DEFAULT NULL,
  `on_failure` varchar(512) DEFAULT NULL,
  `parent_id` binary(16) DEFAULT NULL,
  `batch_id` binary(16) DEFAULT NULL,
  `schedule` varchar(255) DEFAULT NULL,
  `caller` varchar(255) DEFAULT NULL,
  `needs` int(11) NOT NULL DEFAULT 0,
  `has_dependants` tinyint(1) NOT NULL DEFAULT 0,
  `has_conditions` tinyint(1) NOT NULL DEFAULT 0,
  `signal_key` varchar(255) DEFAULT NULL,
  `signal` mediumtext DEFAULT NULL,
  `attempts` int(11) NOT NULL DEFAULT 0,
  `crashes` int(11) NOT NULL DEFAULT 0,
  `started_at` datetime(6) DEFAULT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `node_id` varchar(128) DEFAULT NULL,
  `error` mediumtext DEFAULT NULL,
  `error_type` varchar(512) DEFAULT NULL,
  `result` mediumtext DEFAULT NULL,
  `result_truncated` tinyint(1) NOT NULL DEFAULT 0,
  `progress` double DEFAULT NULL,
  `progress_message` mediumtext DEFAULT NULL,
  `state` mediumtext DEFAULT NULL,
  `paused_from` varchar(16) DEFAULT NULL,
  `superseded_by` binary(16) DEFAULT NULL,
  `canceled_reason` mediumtext DEFAULT NULL,
  `canceled_by` binary(16) DEFAULT NULL,
  `dead_letter_reason` mediumtext DEFAULT NULL,
  `held_at` datetime(6) DEFAULT NULL,
  `dead_lettered_at` datetime(6) DEFAULT NULL,
  `expiry_due_at` datetime(6) DEFAULT NULL,
  `signal_due_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`job_id`),
  KEY `idx_job_root` (`root_id`),
  KEY `idx_job_parent` (`parent_id`),
  KEY `idx_job_batch` (`batch_id`),
  KEY `idx_job_business_key` (`business_key`),
  KEY `idx_job_schedule` (`schedule`,`job_id`),
  KEY `idx_job_held` (`held_at`,`job_id`),
  KEY `idx_job_dead_letter` (`dead_lettered_at`,`job_id`),
  KEY `idx_job_expiry` (`expiry_due_at`),
  KEY `idx_job_signal_due` (`signal_due_at`),
  KEY `idx_job_signal_key` (`signal_key`,`held_at`,`job_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_job` DISABLE KEYS */;
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F067000A6CE49A314B7FE7E,0x01A1EEA87F067000A6CE49A314B7FE7E,'tests.upgrades.past:greet','{\"args\":[\"ann\"],\"kwargs\":{\"polite\":true}}','{\"region\":\"eu\"}','SINGLE',2,1,'SUCCEEDED','2026-11-18 12:36:22.406767','2026-11-18 12:36:22.406767',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:36:22.435995','2026-11-18 12:36:22.436027','host-1:28811-d0c422b2e40b',NULL,NULL,'\"dear ann\"',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F087000962DA9C92176815F,0x01A1EEA87F087000962DA9C92176815F,'tests.upgrades.past:decline','{\"args\":[\"4242\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'FAILED','2026-11-18 12:36:22.408212','2026-11-18 12:36:22.408212',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,'tests.upgrades.past:alarm',NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:36:22.436095','2026-11-18 12:36:22.436109','host-1:28811-d0c422b2e40b','ValueError: 4242 was declined','ValueError',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'no retries configured',NULL,'2026-11-18 12:36:22.436962',NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F0B70009AD05D2B79B003D1,0x01A1EEA87F0B70009AD05D2B79B003D1,'tests.upgrades.past:decline','{\"args\":[\"1111\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:36:22.411606','2081-08-21 12:36:22.436901',NULL,2,'FIXED',1728000000000000,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:36:22.436889',NULL,'host-1:28811-d0c422b2e40b','ValueError: 1111 was declined','ValueError',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F247000ABCF38A9E5796715,0x01A1EEA87F247000ABCF38A9E5796715,'tests.upgrades.past:alarm','{\"args\":[{\"message\":\"ValueError: 4242 was declined\",\"type\":\"ValueError\",\"reason\":\"no retries configured\",\"attempts\":1}],\"kwargs\":{}}',NULL,'CALLBACK',2,1,'SUCCEEDED','2026-11-18 12:36:22.436962','2026-11-18 12:36:22.436109',NULL,3,'EXPONENTIAL',5000000,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEA87F087000962DA9C92176815F,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:36:22.463685','2026-11-18 12:36:22.463699','host-1:28811-d0c422b2e40b',NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F6170008EBA4F6D45C0FA94,0x01A1EEA87F6170008EBA4F6D45C0FA94,'tests.upgrades.past:greet','{\"args\":[\"cid\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'CANCELED','2026-11-18 12:36:22.497741','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,'2026-11-18 12:36:22.499032',NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,'requested',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F6A70008F940500740F31ED,0x01A1EEA87F6A70008F940500740F31ED,'tests.upgrades.past:greet','{\"args\":[\"old\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'CANCELED','2026-11-18 12:36:22.506991','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,'2026-11-18 12:36:22.508188',NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,0x01A1EEA87F6E70008E1B52ED78D8E793,'superseded',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F6E70008E1B52ED78D8E793,0x01A1EEA87F6E70008E1B52ED78D8E793,'tests.upgrades.past:greet','{\"args\":[\"new\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:36:22.508188','2026-11-18 12:36:22.508188',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F7470008ED5C322D0277B19,0x01A1EEA87F7470008ED5C322D0277B19,'tests.upgrades.past:greet','{\"args\":[\"dora\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PAUSED','2026-11-18 12:36:22.516215','2026-11-18 12:36:22.516215',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,'PENDING',NULL,NULL,NULL,NULL,'2026-11-18 12:36:22.517239',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F76700092FD3C13A37D6FE6,0x01A1EEA87F76700092FD3C13A37D6FE6,'tests.upgrades.past:greet','{\"args\":[\"eve\"],\"kwargs\":{}}',NULL,'SINGLE',3,2,'PENDING','2026-11-18 12:36:22.518959','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F7C7000B07368C680C4628A,0x01A1EEA87F7C7000B07368C680C4628A,'tests.upgrades.past:greet','{\"args\":[\"fay\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:36:22.524456','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,'order-1',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F817000B5DE43806725F8F5,0x01A1EEA87F817000B5DE43806725F8F5,'tests.upgrades.past:greet','{\"args\":[\"gus\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:36:22.529691','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,'customer-1',NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F8F7000B078F0475C4F9FC9,0x01A1EEA87F8F7000B078F0475C4F9FC9,'tests.upgrades.past:greet','{\"args\":[\"hal\"],\"kwargs\":{}}',NULL,'SINGLE',2,3,'PENDING','2026-11-18 12:36:22.543722','2026-11-18 12:36:22.543722',NULL,0,'NONE',0,0,300000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87F9D700085A7869BA1FC8298,0x01A1EEA87F9D700085A7869BA1FC8298,'tests.upgrades.past:greet','{\"args\":[\"ian\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'WAITING','2026-11-18 12:36:22.558023','2026-11-18 12:36:22.558023',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,'order:1',NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:36:22.558023',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FAB7000BB25DAA5B2DAE77E,0x01A1EEA87FAB7000BB25DAA5B2DAE77E,'tests.upgrades.past:greet','{\"args\":[\"jo\"],\"kwargs\":{}}',NULL,'SINGLE',2,4,'PENDING','2026-11-18 12:36:22.571298','2026-11-18 12:36:22.571298',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FC370009500DC1483092F59,0x01A1EEA87FC370009500DC1483092F59,'tests.upgrades.past:greet','{\"args\":[\"kim\"],\"kwargs\":{}}',NULL,'CHAIN_STEP',2,1,'PENDING','2026-11-18 12:36:22.596032','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FC370019AEAAD2700C521ED,0x01A1EEA87FC370009500DC1483092F59,'tests.upgrades.past:greet','{\"args\":[\"lou\"],\"kwargs\":{}}',NULL,'CHAIN_STEP',2,1,'WAITING','2026-11-18 12:36:22.596032','2026-11-18 12:36:22.596032',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEA87FC370009500DC1483092F59,NULL,NULL,NULL,1,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:36:22.596032',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FC67000B9342C80FEDEC231,0x01A1EEA87FC67000B9342C80FEDEC231,'tests.upgrades.past:greet','{\"args\":[\"joined\"],\"kwargs\":{}}',NULL,'WORKFLOW_JOIN',2,1,'WAITING','2026-11-18 12:36:22.599037','2026-11-18 12:36:22.599037',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,2,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:36:22.599037',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FC6700180FE41C9EBF35F7B,0x01A1EEA87FC67000B9342C80FEDEC231,'tests.upgrades.past:greet','{\"args\":[\"mia\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:36:22.599037','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FD170009DC41B3165177785,0x01A1EEA87FD170009DC41B3165177785,'ratchet:batch','{\"args\":[],\"kwargs\":{}}',NULL,'BATCH_PARENT',2,1,'WAITING','2026-11-18 12:36:22.609341','2026-11-18 12:36:22.609260',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,1,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:36:22.609341',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FD17001BED8DF45C3442BB1,0x01A1EEA87FD170009DC41B3165177785,'tests.upgrades.past:greet','{\"args\":[\"all\"],\"kwargs\":{}}',NULL,'WORKFLOW_BRANCH',2,1,'WAITING','2026-11-18 12:36:22.609341','2026-11-18 12:36:22.609260',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEA87FD170009DC41B3165177785,NULL,NULL,NULL,1,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:36:22.609341',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FD170028104C7D5D9ED7FBC,0x01A1EEA87FD170028104C7D5D9ED7FBC,'tests.upgrades.past:greet','{\"args\":[\"item-0\"],\"kwargs\":{}}',NULL,'BATCH_CHILD',2,1,'PENDING','2026-11-18 12:36:22.609341','2026-11-18 12:36:22.609297',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEA87FD170009DC41B3165177785,0x01A1EEA87FD170009DC41B3165177785,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FD17003AD7A20FE8A1E50C6,0x01A1EEA87FD17003AD7A20FE8A1E50C6,'tests.upgrades.past:greet','{\"args\":[\"item-1\"],\"kwargs\":{}}',NULL,'BATCH_CHILD',2,1,'PENDING','2026-11-18 12:36:22.609341','2026-11-18 12:36:22.609297',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEA87FD170009DC41B3165177785,0x01A1EEA87FD170009DC41B3165177785,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FD17004AD13D4B3F597552D,0x01A1EEA87FD17004AD13D4B3F597552D,'tests.upgrades.past:greet','{\"args\":[\"item-2\"],\"kwargs\":{}}',NULL,'BATCH_CHILD',2,1,'PENDING','2026-11-18 12:36:22.609341','2026-11-18 12:36:22.609297',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEA87FD170009DC41B3165177785,0x01A1EEA87FD170009DC41B3165177785,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FE37000A95E5843B9289E68,0x01A1EEA87FE37000A95E5843B9289E68,'tests.upgrades.past:stall','{\"args\":[\"running\"],\"kwargs\":{}}',NULL,'SINGLE',2,5,'PENDING','2026-11-18 12:36:22.626975','2026-11-18 12:36:22.626975',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,0.25,'a quarter','{\"seen\":3}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEA87FE6700098CF48383CA2A069,0x01A1EEA87FE6700098CF48383CA2A069,'tests.upgrades.past:greet','{\"args\":[\"ned\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:36:22.630986','2026-11-18 12:36:22.630986',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
/*!40000 ALTER TABLE `scheduler_job` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_job_archive`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_job_archive` (
  `job_id` binary(16) NOT NULL,
  `root_id` binary(16) NOT NULL,
  `target` varchar(512) NOT NULL,
  `payload` mediumtext NOT NULL,
  `params` mediumtext DEFAULT NULL,
  `job_type` varchar(16) NOT NULL,
  `priority` smallint(6) NOT NULL,
  `stream_id` int(11) NOT NULL,
  `status` varchar(16) NOT NULL,
  `created_at` datetime(6) NOT NULL,
  `scheduled_at` datetime(6) NOT NULL,
  `expires_at` datetime(6) DEFAULT NULL,
  `max_retries` int(11) NOT NULL DEFAULT 0,
  `backoff` varchar(16) NOT NULL DEFAULT 'NONE',
  `backoff_base_us` bigint(20) NOT NULL DEFAULT 0,
  `jitter` double NOT NULL DEFAULT 0,
  `timeout_us` bigint(20) DEFAULT NULL,
  `no_retry_for` mediumtext DEFAULT NULL,
  `idempotency_key` varchar(255) DEFAULT NULL,
  `business_key` varchar(255) DEFAULT NULL,
  `on_success` varchar(512) DEFAULT NULL,
  `on_failure` varchar(512) DEFAULT NULL,
  `parent_id` binary(16) DEFAULT NULL,
  `batch_id` binary(16) DEFAULT NULL,
  `schedule` varchar(255) DEFAULT NULL,
  `caller` varchar(255) DEFAULT NULL,
  `needs` int(11) NOT NULL DEFAULT 0,
  `has_dependants` tinyint(1) NOT NULL DEFAULT 0,
  `has_conditions` tinyint(1) NOT NULL DEFAULT 0,
  `signal_key` varchar(255) DEFAULT NULL,
  `signal` mediumtext DEFAULT NULL,
  `attempts` int(11) NOT NULL DEFAULT 0,
  `crashes` int(11) NOT NULL DEFAULT 0,
  `started_at` datetime(6) DEFAULT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `node_id` varchar(128) DEFAULT NULL,
  `error` mediumtext DEFAULT NULL,
  `error_type` varchar(512) DEFAULT NULL,
  `result` mediumtext DEFAULT NULL,
  `result_truncated` tinyint(1) NOT NULL DEFAULT 0,
  `progress` double DEFAULT NULL,
  `progress_message` mediumtext DEFAULT NULL,
  `state` mediumtext DEFAULT NULL,
  `paused_from` varchar(16) DEFAULT NULL,
  `superseded_by` binary(16) DEFAULT NULL,
  `canceled_reason` mediumtext DEFAULT NULL,
  `canceled_by` binary(16) DEFAULT NULL,
  `dead_letter_reason` mediumtext DEFAULT NULL,
  `held_at` datetime(6) DEFAULT NULL,
  `dead_lettered_at` datetime(6) DEFAULT NULL,
  `expiry_due_at` datetime(6) DEFAULT NULL,
  `signal_due_at` datetime(6) DEFAULT NULL,
  `archived_at` datetime(6) NOT NULL,
  PRIMARY KEY (`job_id`),
  KEY `idx_archive_archived_at` (`archived_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_job_archive` DISABLE KEYS */;
INSERT INTO `scheduler_job_archive` VALUES (0x01A1EEA87D8970008F189B0619AE0299,0x01A1EEA87D8970008F189B0619AE0299,'tests.upgrades.past:greet','{\"args\":[\"archived\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'SUCCEEDED','2026-11-18 12:36:22.025479','2026-11-18 12:36:22.025479',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:36:22.384790','2026-11-18 12:36:22.384835','host-1:28811-d3baf751db9b',NULL,NULL,'\"hello archived\"',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:37:22.402302');
/*!40000 ALTER TABLE `scheduler_job_archive` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_job_execution`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_job_execution` (
  `job_id` binary(16) NOT NULL,
  `claim_id` binary(16) NOT NULL,
  `attempt` int(11) NOT NULL,
  `node_id` varchar(128) NOT NULL,
  `scheduled_at` datetime(6) NOT NULL,
  `started_at` datetime(6) DEFAULT NULL,
  `finished_at` datetime(6) DEFAULT NULL,
  `status` varchar(16) NOT NULL,
  `counted` tinyint(1) NOT NULL,
  `error` mediumtext DEFAULT NULL,
  `error_type` varchar(512) DEFAULT NULL,
  `traceback` mediumtext DEFAULT NULL,
  PRIMARY KEY (`job_id`,`claim_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_job_execution` DISABLE KEYS */;
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEA87D8970008F189B0619AE0299,0x01A1EEA87E78700097A82E063BFC5F46,1,'host-1:28811-d3baf751db9b','2026-11-18 12:36:22.025479','2026-11-18 12:36:22.384790','2026-11-18 12:36:22.384835','SUCCEEDED',1,NULL,NULL,NULL);
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEA87F067000A6CE49A314B7FE7E,0x01A1EEA87F1F7000A9D3A62F54D61D68,1,'host-1:28811-d0c422b2e40b','2026-11-18 12:36:22.406767','2026-11-18 12:36:22.435995','2026-11-18 12:36:22.436027','SUCCEEDED',1,NULL,NULL,NULL);
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEA87F087000962DA9C92176815F,0x01A1EEA87F1F7000A9D3A62F54D61D68,1,'host-1:28811-d0c422b2e40b','2026-11-18 12:36:22.408212','2026-11-18 12:36:22.436095','2026-11-18 12:36:22.436109','FAILED',1,'ValueError: 4242 was declined','ValueError','Traceback (most recent call last):\n  File \"/srv/shop/ratchet/engine/task.py\", line 188, in invoke\n    value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)\n                                                                       ^^^^^^^^^^^^^^^^^^^^^\n  File \"/srv/shop/ratchet/engine/task.py\", line 301, in _call\n    return call.function(*call.args, **call.kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/srv/shop/tests/upgrades/past.py\", line 38, in decline\n    raise ValueError(f\"{card} was declined\")\nValueError: 4242 was declined\n');
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEA87F0B70009AD05D2B79B003D1,0x01A1EEA87F1F7000A9D3A62F54D61D68,1,'host-1:28811-d0c422b2e40b','2026-11-18 12:36:22.411606','2026-11-18 12:36:22.436889','2026-11-18 12:36:22.436901','FAILED',1,'ValueError: 1111 was declined','ValueError','Traceback (most recent call last):\n  File \"/srv/shop/ratchet/engine/task.py\", line 188, in invoke\n    value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)\n                                                                       ^^^^^^^^^^^^^^^^^^^^^\n  File \"/srv/shop/ratchet/engine/task.py\", line 301, in _call\n    return call.function(*call.args, **call.kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/srv/shop/tests/upgrades/past.py\", line 38, in decline\n    raise ValueError(f\"{card} was declined\")\nValueError: 1111 was declined\n');
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEA87F247000ABCF38A9E5796715,0x01A1EEA87F337000A37AC1183DE05B01,1,'host-1:28811-d0c422b2e40b','2026-11-18 12:36:22.436109','2026-11-18 12:36:22.463685','2026-11-18 12:36:22.463699','SUCCEEDED',1,NULL,NULL,NULL);
/*!40000 ALTER TABLE `scheduler_job_execution` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_job_log`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_job_log` (
  `job_id` binary(16) NOT NULL,
  `claim_id` binary(16) NOT NULL,
  `sequence` int(11) NOT NULL,
  `attempt` int(11) NOT NULL,
  `logged_at` datetime(6) NOT NULL,
  `level` varchar(16) NOT NULL,
  `logger` varchar(255) NOT NULL,
  `message` mediumtext NOT NULL,
  PRIMARY KEY (`job_id`,`claim_id`,`sequence`),
  KEY `idx_log_logged_at` (`logged_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_job_log` DISABLE KEYS */;
INSERT INTO `scheduler_job_log` VALUES (0x01A1EEA87FE37000A95E5843B9289E68,0x01A1EEA87FF17000998CE56BEA235EBB,1,1,'2026-11-18 12:36:22.654494','INFO','ratchet.job','stalling as running');
/*!40000 ALTER TABLE `scheduler_job_log` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_job_queue`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_job_queue` (
  `job_id` binary(16) NOT NULL,
  `stream_id` int(11) NOT NULL,
  `priority` smallint(6) NOT NULL,
  `status` varchar(8) NOT NULL,
  `job_type` varchar(16) NOT NULL,
  `attempts` int(11) NOT NULL DEFAULT 0,
  `crashes` int(11) NOT NULL DEFAULT 0,
  `max_retries` int(11) NOT NULL DEFAULT 0,
  `timeout_us` bigint(20) DEFAULT NULL,
  `scheduled_time` datetime(6) NOT NULL,
  `picked_by` varchar(128) DEFAULT NULL,
  `picked_at` datetime(6) DEFAULT NULL,
  `claim_id` binary(16) DEFAULT NULL,
  `held_claim_id` binary(16) DEFAULT NULL,
  PRIMARY KEY (`job_id`),
  KEY `idx_claim_executable` (`status`,`stream_id`,`priority`,`scheduled_time`,`job_id`),
  KEY `idx_queue_orphan` (`picked_by`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_job_queue` DISABLE KEYS */;
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87F0B70009AD05D2B79B003D1,1,2,'PENDING','SINGLE',1,0,2,NULL,'2081-08-21 12:36:22.436901',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87F6E70008E1B52ED78D8E793,1,2,'PENDING','SINGLE',0,0,0,NULL,'2026-11-18 12:36:22.508188',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87F76700092FD3C13A37D6FE6,2,3,'PENDING','SINGLE',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87F7C7000B07368C680C4628A,1,2,'PENDING','SINGLE',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87F817000B5DE43806725F8F5,1,2,'PENDING','SINGLE',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87F8F7000B078F0475C4F9FC9,3,2,'PENDING','SINGLE',0,0,0,300000000,'2026-11-18 12:36:22.543722',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87FAB7000BB25DAA5B2DAE77E,4,2,'PENDING','SINGLE',0,0,0,NULL,'2026-11-18 12:36:22.571298',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87FC370009500DC1483092F59,1,2,'PENDING','CHAIN_STEP',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87FC6700180FE41C9EBF35F7B,1,2,'PENDING','SINGLE',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87FD170028104C7D5D9ED7FBC,1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,'2026-11-18 12:36:22.609297',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87FD17003AD7A20FE8A1E50C6,1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,'2026-11-18 12:36:22.609297',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87FD17004AD13D4B3F597552D,1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,'2026-11-18 12:36:22.609297',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87FE37000A95E5843B9289E68,5,2,'RUNNING','SINGLE',0,0,0,NULL,'2026-11-18 12:36:22.626975','host-1:28811-48b3b87932e0','2026-11-18 12:36:22.640660',0x01A1EEA87FF17000998CE56BEA235EBB,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEA87FE6700098CF48383CA2A069,1,2,'PENDING','SINGLE',0,0,0,NULL,'2026-11-18 12:36:22.630986',NULL,NULL,NULL,NULL);
/*!40000 ALTER TABLE `scheduler_job_queue` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_job_tag`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_job_tag` (
  `tag` varchar(255) NOT NULL,
  `job_id` binary(16) NOT NULL,
  PRIMARY KEY (`tag`,`job_id`),
  KEY `idx_tag_job` (`job_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_job_tag` DISABLE KEYS */;
INSERT INTO `scheduler_job_tag` VALUES ('eu',0x01A1EEA87F067000A6CE49A314B7FE7E);
INSERT INTO `scheduler_job_tag` VALUES ('vip',0x01A1EEA87F067000A6CE49A314B7FE7E);
/*!40000 ALTER TABLE `scheduler_job_tag` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_lock`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_lock` (
  `lock_name` varchar(255) NOT NULL,
  `locked_by` varchar(128) NOT NULL,
  `token` binary(16) NOT NULL,
  `locked_at` datetime(6) NOT NULL,
  `expires_at` datetime(6) NOT NULL,
  PRIMARY KEY (`lock_name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_lock` DISABLE KEYS */;
/*!40000 ALTER TABLE `scheduler_lock` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_node`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_node` (
  `node_id` varchar(128) NOT NULL,
  `name` varchar(255) NOT NULL,
  `host` varchar(255) NOT NULL,
  `pid` int(11) NOT NULL,
  `version` varchar(64) NOT NULL,
  `state` varchar(16) NOT NULL,
  `beat` bigint(20) NOT NULL DEFAULT 0,
  `beat_interval_us` bigint(20) NOT NULL,
  `silence_us` bigint(20) NOT NULL,
  `started_at` datetime(6) NOT NULL,
  `last_beat_at` datetime(6) NOT NULL,
  `node_info` mediumtext DEFAULT NULL,
  `rescued_at` datetime(6) DEFAULT NULL,
  `rescued_by` varchar(128) DEFAULT NULL,
  PRIMARY KEY (`node_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_node` DISABLE KEYS */;
INSERT INTO `scheduler_node` VALUES ('host-1:28811-48b3b87932e0','host-1:28811','host-1',28811,'0.1.0','ACTIVE',1,5000000,15000000,'2026-11-18 12:36:22.632501','2026-11-18 12:36:22.639991','{\"lanes\":{\"thread\":20,\"async\":200,\"process\":2},\"queues\":null,\"targets\":[],\"rescues\":0,\"false_rescues\":0,\"replaces\":null,\"process\":\"host-1:28811:7192096d\"}',NULL,NULL);
/*!40000 ALTER TABLE `scheduler_node` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_queue`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_queue` (
  `queue` varchar(255) NOT NULL,
  `paused` tinyint(1) NOT NULL DEFAULT 0,
  `paused_at` datetime(6) DEFAULT NULL,
  PRIMARY KEY (`queue`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_queue` DISABLE KEYS */;
INSERT INTO `scheduler_queue` VALUES ('closed',1,'2026-11-18 12:36:22.570360');
INSERT INTO `scheduler_queue` VALUES ('default',1,'2026-11-18 12:36:22.618965');
/*!40000 ALTER TABLE `scheduler_queue` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_recurring_fire`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_recurring_fire` (
  `name` varchar(255) NOT NULL,
  `fire_at` datetime(6) NOT NULL,
  `outcome` varchar(16) NOT NULL,
  `job_id` binary(16) DEFAULT NULL,
  `reason` mediumtext DEFAULT NULL,
  `recorded_at` datetime(6) NOT NULL,
  PRIMARY KEY (`name`,`fire_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_recurring_fire` DISABLE KEYS */;
/*!40000 ALTER TABLE `scheduler_recurring_fire` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_recurring_job`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_recurring_job` (
  `name` varchar(255) NOT NULL,
  `expression` varchar(255) NOT NULL,
  `zone_id` varchar(64) NOT NULL,
  `target` varchar(512) NOT NULL,
  `template` mediumtext NOT NULL,
  `misfire` varchar(32) NOT NULL,
  `overlap` varchar(16) NOT NULL,
  `starts_at` datetime(6) DEFAULT NULL,
  `ends_at` datetime(6) DEFAULT NULL,
  `jitter_us` bigint(20) NOT NULL DEFAULT 0,
  `declared` tinyint(1) NOT NULL DEFAULT 0,
  `paused` tinyint(1) NOT NULL DEFAULT 0,
  `next_fire_at` datetime(6) DEFAULT NULL,
  `last_fire_at` datetime(6) DEFAULT NULL,
  `created_at` datetime(6) NOT NULL,
  `updated_at` datetime(6) NOT NULL,
  PRIMARY KEY (`name`),
  KEY `idx_recurring_due` (`next_fire_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_recurring_job` DISABLE KEYS */;
INSERT INTO `scheduler_recurring_job` VALUES ('nightly','0 2 * * *','Europe/Berlin','tests.upgrades.past:greet','{\"job_id\":\"00000000-0000-0000-0000-000000000000\",\"target\":\"tests.upgrades.past:greet\",\"payload\":\"{\\\"args\\\":[\\\"nightly\\\"],\\\"kwargs\\\":{}}\",\"scheduled_at\":\"1970-01-01T00:00:00Z\",\"root_id\":null,\"status\":\"PENDING\",\"type\":\"SINGLE\",\"priority\":2,\"stream\":{\"queue\":\"default\",\"lane\":\"thread\",\"resource\":null,\"breaker\":null,\"limit_key\":null,\"fairness_key\":null,\"suspect\":false,\"parked_target\":null},\"expires_at\":null,\"max_retries\":0,\"backoff\":\"NONE\",\"backoff_base\":\"P0D\",\"jitter\":0.0,\"timeout\":null,\"no_retry_for\":[],\"params\":null,\"tags\":[],\"idempotency_key\":null,\"business_key\":null,\"busy\":\"RAISE\",\"on_success\":null,\"on_failure\":null,\"parent_id\":null,\"batch_id\":null,\"schedule\":null,\"caller\":null,\"needs\":0,\"signal\":null}','fire_once','SKIP',NULL,NULL,0,0,1,'2026-11-19 01:00:00.000000',NULL,'2026-11-18 12:36:22.580967','2026-11-18 12:36:22.592486');
/*!40000 ALTER TABLE `scheduler_recurring_job` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_resource_limit`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_resource_limit` (
  `resource` varchar(255) NOT NULL,
  `max_concurrent` int(11) DEFAULT NULL,
  `rate` int(11) DEFAULT NULL,
  `period_us` bigint(20) DEFAULT NULL,
  `tokens` double DEFAULT NULL,
  `refilled_at` datetime(6) DEFAULT NULL,
  `updated_at` datetime(6) NOT NULL,
  PRIMARY KEY (`resource`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_resource_limit` DISABLE KEYS */;
INSERT INTO `scheduler_resource_limit` VALUES ('press',1,NULL,NULL,NULL,'2026-11-18 12:36:22.534407','2026-11-18 12:36:22.534407');
/*!40000 ALTER TABLE `scheduler_resource_limit` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_resource_permit`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_resource_permit` (
  `resource` varchar(255) NOT NULL,
  `job_id` binary(16) NOT NULL,
  `claim_id` binary(16) NOT NULL,
  `node_id` varchar(128) NOT NULL,
  `acquired_at` datetime(6) NOT NULL,
  PRIMARY KEY (`job_id`,`claim_id`,`resource`),
  KEY `idx_permit_resource` (`resource`),
  KEY `idx_permit_node` (`node_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_resource_permit` DISABLE KEYS */;
/*!40000 ALTER TABLE `scheduler_resource_permit` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_signal`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_signal` (
  `signal_id` binary(16) NOT NULL,
  `signal_key` varchar(255) NOT NULL,
  `job_id` binary(16) DEFAULT NULL,
  `payload` mediumtext DEFAULT NULL,
  `rejected` mediumtext DEFAULT NULL,
  `sent_at` datetime(6) NOT NULL,
  `keep_until` datetime(6) DEFAULT NULL,
  `consumed_by` binary(16) DEFAULT NULL,
  PRIMARY KEY (`signal_id`),
  KEY `idx_signal_kept` (`signal_key`,`consumed_by`,`signal_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_signal` DISABLE KEYS */;
INSERT INTO `scheduler_signal` VALUES (0x01A1EEA87F9F700098254B07F111EF58,'order:2',NULL,'{\"by\":\"ann\"}',NULL,'2026-11-18 12:36:22.559424','2026-11-18 13:36:22.559424',NULL);
INSERT INTO `scheduler_signal` VALUES (0x52D408311D596526C0FA2BFDB6FD6D4A,'order:1',NULL,NULL,NULL,'2026-11-18 12:36:22.558023',NULL,0x52D408311D596526C0FA2BFDB6FD6D4A);
INSERT INTO `scheduler_signal` VALUES (0xE36C24BAE7EAABE512E32D88E00C0754,'order:2',NULL,NULL,NULL,'2026-11-18 12:36:22.559424',NULL,0xE36C24BAE7EAABE512E32D88E00C0754);
/*!40000 ALTER TABLE `scheduler_signal` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_stream`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_stream` (
  `stream_id` int(11) NOT NULL AUTO_INCREMENT,
  `stream_key` char(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
  `queue` varchar(255) NOT NULL,
  `lane` varchar(16) NOT NULL,
  `resource` varchar(255) DEFAULT NULL,
  `breaker` varchar(255) DEFAULT NULL,
  `limit_key` varchar(255) DEFAULT NULL,
  `fairness_key` varchar(255) DEFAULT NULL,
  `suspect` tinyint(1) NOT NULL DEFAULT 0,
  `parked_target` varchar(512) DEFAULT NULL,
  `epoch` bigint(20) NOT NULL DEFAULT 0,
  `created_at` datetime(6) NOT NULL,
  PRIMARY KEY (`stream_id`),
  UNIQUE KEY `stream_key` (`stream_key`)
) ENGINE=InnoDB AUTO_INCREMENT=6 DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_stream` DISABLE KEYS */;
INSERT INTO `scheduler_stream` VALUES (1,'a06bc5245bad95d55d4ddf1df5038197ea8335cd3883f27d64c8438f2f59b02e','default','thread',NULL,NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:36:22.103209');
INSERT INTO `scheduler_stream` VALUES (2,'1155d4a028ed0efa4e469e6edb255688c19ad83c35dcce281c15cd96c3af0d30','mails','thread',NULL,NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:36:22.519100');
INSERT INTO `scheduler_stream` VALUES (3,'14796c0ae225d0555a4c1fe5742742049377604b0ed0cac82097c36e4e6f3e18','default','thread','press',NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:36:22.543919');
INSERT INTO `scheduler_stream` VALUES (4,'ee5218e40c132943c924374e3298a3e74f9a9782c856b44da73a907f51efafe6','closed','thread',NULL,NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:36:22.576482');
INSERT INTO `scheduler_stream` VALUES (5,'05ac5098145f80e682062c07b0de82d49b5b68916dced213c4d5dcb23f725f1e','open','thread',NULL,NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:36:22.627336');
/*!40000 ALTER TABLE `scheduler_stream` ENABLE KEYS */;
DROP TABLE IF EXISTS `scheduler_workflow_condition`;
/*!40101 SET @saved_cs_client     = @@character_set_client */;
/*!40101 SET character_set_client = utf8mb4 */;
CREATE TABLE `scheduler_workflow_condition` (
  `parent_id` binary(16) NOT NULL,
  `child_id` binary(16) NOT NULL,
  `kind` varchar(32) NOT NULL,
  `predicate` varchar(512) DEFAULT NULL,
  `argument` mediumtext DEFAULT NULL,
  `eval_order` int(11) NOT NULL DEFAULT 0,
  `description` mediumtext DEFAULT NULL,
  PRIMARY KEY (`parent_id`,`child_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_nopad_bin;
/*!40101 SET character_set_client = @saved_cs_client */;

/*!40000 ALTER TABLE `scheduler_workflow_condition` DISABLE KEYS */;
INSERT INTO `scheduler_workflow_condition` VALUES (0x01A1EEA87FD170009DC41B3165177785,0x01A1EEA87FD17001BED8DF45C3442BB1,'batch_success',NULL,NULL,0,NULL);
/*!40000 ALTER TABLE `scheduler_workflow_condition` ENABLE KEYS */;
/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;

/*!40101 SET SQL_MODE=@OLD_SQL_MODE */;
/*!40014 SET FOREIGN_KEY_CHECKS=@OLD_FOREIGN_KEY_CHECKS */;
/*!40014 SET UNIQUE_CHECKS=@OLD_UNIQUE_CHECKS */;
/*!40101 SET CHARACTER_SET_CLIENT=@OLD_CHARACTER_SET_CLIENT */;
/*!40101 SET CHARACTER_SET_RESULTS=@OLD_CHARACTER_SET_RESULTS */;
/*!40101 SET COLLATION_CONNECTION=@OLD_COLLATION_CONNECTION */;
/*!40111 SET SQL_NOTES=@OLD_SQL_NOTES */;

