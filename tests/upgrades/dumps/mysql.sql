
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
INSERT INTO `ratchet_schema_version` VALUES ('V001__initial','ccec5cdab0cda1f68cf60810b51e81ef959c5c5625299eb4b528cab7f0e4a34c','2026-11-18 12:54:07.447493');
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
INSERT INTO `scheduler_batch` VALUES (0x01A1EEB8C3D07000B8F38EA697C431D9,'parcels',0x01A1EEB8C3D07000B8F38EA697C431D9,3,0,0,0,1,NULL,'2026-11-18 12:54:08.592669',NULL);
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
INSERT INTO `scheduler_business_key_reservation` VALUES ('customer-1',0x01A1EEB8C3AA7000902208916AFA933B,'2026-11-18 12:54:08.555013',NULL,NULL);
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
INSERT INTO `scheduler_dependency` VALUES (0x01A1EEB8C3CB7000BE7DCBE5C34C5403,0x01A1EEB8C3CB70018408B33BAB493C31,'SUCCESS',0,'OPEN');
INSERT INTO `scheduler_dependency` VALUES (0x01A1EEB8C3CB7000BE7DCBE5C34C5403,0x01A1EEB8C3CD7000AEB5979AA6150B5B,'SUCCESS',0,'OPEN');
INSERT INTO `scheduler_dependency` VALUES (0x01A1EEB8C3CD7001A0DB612274982AC4,0x01A1EEB8C3CD7000AEB5979AA6150B5B,'SUCCESS',1,'OPEN');
INSERT INTO `scheduler_dependency` VALUES (0x01A1EEB8C3D07000B8F38EA697C431D9,0x01A1EEB8C3D07001B77ABD1D10AEDA38,'CONDITION',0,'OPEN');
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
INSERT INTO `scheduler_dlq_alert` VALUES (0x01A1EEB8C352700088FA6C6501A3A39D,0x01A1EEB8C3387000A765A7A18B656147,'tests.upgrades.past:decline','3489fad452e98e1fd01ab1796cced28387a1bf1f80f0404303bebc3e029e886d','ValueError: 4242 was declined','no retries configured','2026-11-18 12:54:08.461824',0);
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
INSERT INTO `scheduler_idempotency_key` VALUES ('order-1',0x01A1EEB8C3A970009A9522168C0F39A7,'2026-11-18 12:54:08.553260');
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
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C337700082ADBB04D5799B6E,0x01A1EEB8C337700082ADBB04D5799B6E,'tests.upgrades.past:greet','{\"args\":[\"ann\"],\"kwargs\":{\"polite\":true}}','{\"region\":\"eu\"}','SINGLE',2,1,'SUCCEEDED','2026-11-18 12:54:08.439250','2026-11-18 12:54:08.439250',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:54:08.458563','2026-11-18 12:54:08.458594','host-1:24895-8faf62295ab7',NULL,NULL,'\"dear ann\"',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3387000A765A7A18B656147,0x01A1EEB8C3387000A765A7A18B656147,'tests.upgrades.past:decline','{\"args\":[\"4242\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'FAILED','2026-11-18 12:54:08.440575','2026-11-18 12:54:08.440575',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,'tests.upgrades.past:alarm',NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:54:08.458657','2026-11-18 12:54:08.458670','host-1:24895-8faf62295ab7','ValueError: 4242 was declined','ValueError',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'no retries configured',NULL,'2026-11-18 12:54:08.461824',NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C33A7000A11D7DFD473F6466,0x01A1EEB8C33A7000A11D7DFD473F6466,'tests.upgrades.past:decline','{\"args\":[\"1111\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:54:08.442967','2081-08-21 12:54:08.459949',NULL,2,'FIXED',1728000000000000,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:54:08.459933',NULL,'host-1:24895-8faf62295ab7','ValueError: 1111 was declined','ValueError',NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C34B70009729A2E95A02C95B,0x01A1EEB8C34B70009729A2E95A02C95B,'tests.upgrades.past:alarm','{\"args\":[{\"message\":\"ValueError: 4242 was declined\",\"type\":\"ValueError\",\"reason\":\"no retries configured\",\"attempts\":1}],\"kwargs\":{}}',NULL,'CALLBACK',2,1,'SUCCEEDED','2026-11-18 12:54:08.461824','2026-11-18 12:54:08.458670',NULL,3,'EXPONENTIAL',5000000,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEB8C3387000A765A7A18B656147,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:54:08.499258','2026-11-18 12:54:08.499275','host-1:24895-8faf62295ab7',NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C391700083067303C51957D1,0x01A1EEB8C391700083067303C51957D1,'tests.upgrades.past:greet','{\"args\":[\"cid\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'CANCELED','2026-11-18 12:54:08.529855','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,'2026-11-18 12:54:08.531829',NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,'requested',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C398700098A80BD9C9246B07,0x01A1EEB8C398700098A80BD9C9246B07,'tests.upgrades.past:greet','{\"args\":[\"old\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'CANCELED','2026-11-18 12:54:08.537021','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,'2026-11-18 12:54:08.537978',NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,0x01A1EEB8C39A7000B8185FBED57B5DF1,'superseded',NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C39A7000B8185FBED57B5DF1,0x01A1EEB8C39A7000B8185FBED57B5DF1,'tests.upgrades.past:greet','{\"args\":[\"new\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:54:08.537978','2026-11-18 12:54:08.537978',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3A07000A5468C7BBF98F5C9,0x01A1EEB8C3A07000A5468C7BBF98F5C9,'tests.upgrades.past:greet','{\"args\":[\"dora\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PAUSED','2026-11-18 12:54:08.544205','2026-11-18 12:54:08.544205',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,'PENDING',NULL,NULL,NULL,NULL,'2026-11-18 12:54:08.546235',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3A37000B9133CD2E0CC805B,0x01A1EEB8C3A37000B9133CD2E0CC805B,'tests.upgrades.past:greet','{\"args\":[\"eve\"],\"kwargs\":{}}',NULL,'SINGLE',3,2,'PENDING','2026-11-18 12:54:08.547418','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3A970009A9522168C0F39A7,0x01A1EEB8C3A970009A9522168C0F39A7,'tests.upgrades.past:greet','{\"args\":[\"fay\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:54:08.553260','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,'order-1',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3AA7000902208916AFA933B,0x01A1EEB8C3AA7000902208916AFA933B,'tests.upgrades.past:greet','{\"args\":[\"gus\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:54:08.555013','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,'customer-1',NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3AF7000923516C140FBE1F5,0x01A1EEB8C3AF7000923516C140FBE1F5,'tests.upgrades.past:greet','{\"args\":[\"hal\"],\"kwargs\":{}}',NULL,'SINGLE',2,3,'PENDING','2026-11-18 12:54:08.559802','2026-11-18 12:54:08.559802',NULL,0,'NONE',0,0,300000000,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3B37000B1B504BE2AE8B580,0x01A1EEB8C3B37000B1B504BE2AE8B580,'tests.upgrades.past:greet','{\"args\":[\"ian\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'WAITING','2026-11-18 12:54:08.563988','2026-11-18 12:54:08.563988',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,'order:1',NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:54:08.563988',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3BF700093D82AE74C625D52,0x01A1EEB8C3BF700093D82AE74C625D52,'tests.upgrades.past:greet','{\"args\":[\"jo\"],\"kwargs\":{}}',NULL,'SINGLE',2,4,'PENDING','2026-11-18 12:54:08.575855','2026-11-18 12:54:08.575855',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3CB7000BE7DCBE5C34C5403,0x01A1EEB8C3CB7000BE7DCBE5C34C5403,'tests.upgrades.past:greet','{\"args\":[\"kim\"],\"kwargs\":{}}',NULL,'CHAIN_STEP',2,1,'PENDING','2026-11-18 12:54:08.587218','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3CB70018408B33BAB493C31,0x01A1EEB8C3CB7000BE7DCBE5C34C5403,'tests.upgrades.past:greet','{\"args\":[\"lou\"],\"kwargs\":{}}',NULL,'CHAIN_STEP',2,1,'WAITING','2026-11-18 12:54:08.587218','2026-11-18 12:54:08.587218',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEB8C3CB7000BE7DCBE5C34C5403,NULL,NULL,NULL,1,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:54:08.587218',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3CD7000AEB5979AA6150B5B,0x01A1EEB8C3CD7000AEB5979AA6150B5B,'tests.upgrades.past:greet','{\"args\":[\"joined\"],\"kwargs\":{}}',NULL,'WORKFLOW_JOIN',2,1,'WAITING','2026-11-18 12:54:08.589497','2026-11-18 12:54:08.589497',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,2,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:54:08.589497',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3CD7001A0DB612274982AC4,0x01A1EEB8C3CD7000AEB5979AA6150B5B,'tests.upgrades.past:greet','{\"args\":[\"mia\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:54:08.589497','2099-01-01 00:00:00.000000',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3D07000B8F38EA697C431D9,0x01A1EEB8C3D07000B8F38EA697C431D9,'ratchet:batch','{\"args\":[],\"kwargs\":{}}',NULL,'BATCH_PARENT',2,1,'WAITING','2026-11-18 12:54:08.592669','2026-11-18 12:54:08.592597',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,1,1,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:54:08.592669',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3D07001B77ABD1D10AEDA38,0x01A1EEB8C3D07000B8F38EA697C431D9,'tests.upgrades.past:greet','{\"args\":[\"all\"],\"kwargs\":{}}',NULL,'WORKFLOW_BRANCH',2,1,'WAITING','2026-11-18 12:54:08.592669','2026-11-18 12:54:08.592597',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEB8C3D07000B8F38EA697C431D9,NULL,NULL,NULL,1,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:54:08.592669',NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3D070029B0A4B1F771DEF6C,0x01A1EEB8C3D070029B0A4B1F771DEF6C,'tests.upgrades.past:greet','{\"args\":[\"item-0\"],\"kwargs\":{}}',NULL,'BATCH_CHILD',2,1,'PENDING','2026-11-18 12:54:08.592669','2026-11-18 12:54:08.592628',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEB8C3D07000B8F38EA697C431D9,0x01A1EEB8C3D07000B8F38EA697C431D9,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3D0700382A49AE251140DC1,0x01A1EEB8C3D0700382A49AE251140DC1,'tests.upgrades.past:greet','{\"args\":[\"item-1\"],\"kwargs\":{}}',NULL,'BATCH_CHILD',2,1,'PENDING','2026-11-18 12:54:08.592669','2026-11-18 12:54:08.592628',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEB8C3D07000B8F38EA697C431D9,0x01A1EEB8C3D07000B8F38EA697C431D9,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3D07004B079FE25950C6B47,0x01A1EEB8C3D07004B079FE25950C6B47,'tests.upgrades.past:greet','{\"args\":[\"item-2\"],\"kwargs\":{}}',NULL,'BATCH_CHILD',2,1,'PENDING','2026-11-18 12:54:08.592669','2026-11-18 12:54:08.592628',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,0x01A1EEB8C3D07000B8F38EA697C431D9,0x01A1EEB8C3D07000B8F38EA697C431D9,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3D77000A1334DFE9EB670B1,0x01A1EEB8C3D77000A1334DFE9EB670B1,'tests.upgrades.past:stall','{\"args\":[\"running\"],\"kwargs\":{}}',NULL,'SINGLE',2,5,'PENDING','2026-11-18 12:54:08.599334','2026-11-18 12:54:08.599334',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,0.25,'a quarter','{\"seen\":3}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job` VALUES (0x01A1EEB8C3DA70009E0914C1CC34BF9F,0x01A1EEB8C3DA70009E0914C1CC34BF9F,'tests.upgrades.past:greet','{\"args\":[\"ned\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'PENDING','2026-11-18 12:54:08.602679','2026-11-18 12:54:08.602679',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,0,0,NULL,NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
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
INSERT INTO `scheduler_job_archive` VALUES (0x01A1EEB8C26470009C67A70847A85DCE,0x01A1EEB8C26470009C67A70847A85DCE,'tests.upgrades.past:greet','{\"args\":[\"archived\"],\"kwargs\":{}}',NULL,'SINGLE',2,1,'SUCCEEDED','2026-11-18 12:54:08.227118','2026-11-18 12:54:08.227118',NULL,0,'NONE',0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,0,0,0,NULL,NULL,1,0,'2026-11-18 12:54:08.412135','2026-11-18 12:54:08.412171','host-1:24895-0a86a2e0b2fb',NULL,NULL,'\"hello archived\"',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2026-11-18 12:55:08.435010');
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
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEB8C26470009C67A70847A85DCE,0x01A1EEB8C3097000B3F8B7F42B1C5644,1,'host-1:24895-0a86a2e0b2fb','2026-11-18 12:54:08.227118','2026-11-18 12:54:08.412135','2026-11-18 12:54:08.412171','SUCCEEDED',1,NULL,NULL,NULL);
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEB8C337700082ADBB04D5799B6E,0x01A1EEB8C344700086EF33D8EC18DA61,1,'host-1:24895-8faf62295ab7','2026-11-18 12:54:08.439250','2026-11-18 12:54:08.458563','2026-11-18 12:54:08.458594','SUCCEEDED',1,NULL,NULL,NULL);
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEB8C3387000A765A7A18B656147,0x01A1EEB8C344700086EF33D8EC18DA61,1,'host-1:24895-8faf62295ab7','2026-11-18 12:54:08.440575','2026-11-18 12:54:08.458657','2026-11-18 12:54:08.458670','FAILED',1,'ValueError: 4242 was declined','ValueError','Traceback (most recent call last):\n  File \"/srv/shop/ratchet/engine/task.py\", line 188, in invoke\n    value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)\n                                                                       ^^^^^^^^^^^^^^^^^^^^^\n  File \"/srv/shop/ratchet/engine/task.py\", line 301, in _call\n    return call.function(*call.args, **call.kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/srv/shop/tests/upgrades/past.py\", line 38, in decline\n    raise ValueError(f\"{card} was declined\")\nValueError: 4242 was declined\n');
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEB8C33A7000A11D7DFD473F6466,0x01A1EEB8C344700086EF33D8EC18DA61,1,'host-1:24895-8faf62295ab7','2026-11-18 12:54:08.442967','2026-11-18 12:54:08.459933','2026-11-18 12:54:08.459949','FAILED',1,'ValueError: 1111 was declined','ValueError','Traceback (most recent call last):\n  File \"/srv/shop/ratchet/engine/task.py\", line 188, in invoke\n    value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)\n                                                                       ^^^^^^^^^^^^^^^^^^^^^\n  File \"/srv/shop/ratchet/engine/task.py\", line 301, in _call\n    return call.function(*call.args, **call.kwargs)\n           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  File \"/srv/shop/tests/upgrades/past.py\", line 38, in decline\n    raise ValueError(f\"{card} was declined\")\nValueError: 1111 was declined\n');
INSERT INTO `scheduler_job_execution` VALUES (0x01A1EEB8C34B70009729A2E95A02C95B,0x01A1EEB8C3667000924BA0000D3C5E7A,1,'host-1:24895-8faf62295ab7','2026-11-18 12:54:08.458670','2026-11-18 12:54:08.499258','2026-11-18 12:54:08.499275','SUCCEEDED',1,NULL,NULL,NULL);
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
INSERT INTO `scheduler_job_log` VALUES (0x01A1EEB8C3D77000A1334DFE9EB670B1,0x01A1EEB8C3E67000AE0470559CC6A3EA,1,1,'2026-11-18 12:54:08.643165','INFO','ratchet.job','stalling as running');
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
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C33A7000A11D7DFD473F6466,1,2,'PENDING','SINGLE',1,0,2,NULL,'2081-08-21 12:54:08.459949',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C39A7000B8185FBED57B5DF1,1,2,'PENDING','SINGLE',0,0,0,NULL,'2026-11-18 12:54:08.537978',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3A37000B9133CD2E0CC805B,2,3,'PENDING','SINGLE',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3A970009A9522168C0F39A7,1,2,'PENDING','SINGLE',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3AA7000902208916AFA933B,1,2,'PENDING','SINGLE',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3AF7000923516C140FBE1F5,3,2,'PENDING','SINGLE',0,0,0,300000000,'2026-11-18 12:54:08.559802',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3BF700093D82AE74C625D52,4,2,'PENDING','SINGLE',0,0,0,NULL,'2026-11-18 12:54:08.575855',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3CB7000BE7DCBE5C34C5403,1,2,'PENDING','CHAIN_STEP',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3CD7001A0DB612274982AC4,1,2,'PENDING','SINGLE',0,0,0,NULL,'2099-01-01 00:00:00.000000',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3D070029B0A4B1F771DEF6C,1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,'2026-11-18 12:54:08.592628',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3D0700382A49AE251140DC1,1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,'2026-11-18 12:54:08.592628',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3D07004B079FE25950C6B47,1,2,'PENDING','BATCH_CHILD',0,0,0,NULL,'2026-11-18 12:54:08.592628',NULL,NULL,NULL,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3D77000A1334DFE9EB670B1,5,2,'RUNNING','SINGLE',0,0,0,NULL,'2026-11-18 12:54:08.599334','host-1:24895-340b55a56117','2026-11-18 12:54:08.614226',0x01A1EEB8C3E67000AE0470559CC6A3EA,NULL);
INSERT INTO `scheduler_job_queue` VALUES (0x01A1EEB8C3DA70009E0914C1CC34BF9F,1,2,'PENDING','SINGLE',0,0,0,NULL,'2026-11-18 12:54:08.602679',NULL,NULL,NULL,NULL);
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
INSERT INTO `scheduler_job_tag` VALUES ('eu',0x01A1EEB8C337700082ADBB04D5799B6E);
INSERT INTO `scheduler_job_tag` VALUES ('vip',0x01A1EEB8C337700082ADBB04D5799B6E);
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
INSERT INTO `scheduler_node` VALUES ('host-1:24895-340b55a56117','host-1:24895','host-1',24895,'0.1.0','ACTIVE',6,500000,2000000,'2026-11-18 12:54:08.605379','2026-11-18 12:54:11.136243','{\"lanes\":{\"thread\":20,\"async\":200,\"process\":2},\"queues\":null,\"targets\":[\"tests.upgrades.past:stall\"],\"rescues\":0,\"false_rescues\":0,\"replaces\":null,\"process\":\"host-1:24895:cdee196e\"}',NULL,NULL);
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
INSERT INTO `scheduler_queue` VALUES ('closed',1,'2026-11-18 12:54:08.570708');
INSERT INTO `scheduler_queue` VALUES ('default',1,'2026-11-18 12:54:08.598117');
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
INSERT INTO `scheduler_recurring_job` VALUES ('nightly','0 2 * * *','Europe/Berlin','tests.upgrades.past:greet','{\"job_id\":\"00000000-0000-0000-0000-000000000000\",\"target\":\"tests.upgrades.past:greet\",\"payload\":\"{\\\"args\\\":[\\\"nightly\\\"],\\\"kwargs\\\":{}}\",\"scheduled_at\":\"1970-01-01T00:00:00Z\",\"root_id\":null,\"status\":\"PENDING\",\"type\":\"SINGLE\",\"priority\":2,\"stream\":{\"queue\":\"default\",\"lane\":\"thread\",\"resource\":null,\"breaker\":null,\"limit_key\":null,\"fairness_key\":null,\"suspect\":false,\"parked_target\":null},\"expires_at\":null,\"max_retries\":0,\"backoff\":\"NONE\",\"backoff_base\":\"P0D\",\"jitter\":0.0,\"timeout\":null,\"no_retry_for\":[],\"params\":null,\"tags\":[],\"idempotency_key\":null,\"business_key\":null,\"busy\":\"RAISE\",\"on_success\":null,\"on_failure\":null,\"parent_id\":null,\"batch_id\":null,\"schedule\":null,\"caller\":null,\"needs\":0,\"signal\":null}','fire_once','SKIP',NULL,NULL,0,0,1,'2026-11-19 01:00:00.000000',NULL,'2026-11-18 12:54:08.580963','2026-11-18 12:54:08.586565');
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
INSERT INTO `scheduler_resource_limit` VALUES ('press',1,NULL,NULL,NULL,'2026-11-18 12:54:08.558092','2026-11-18 12:54:08.558092');
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
INSERT INTO `scheduler_signal` VALUES (0x01A1EEB8C3B67000AA5EB13D19A2ACBE,'order:2',NULL,'{\"by\":\"ann\"}',NULL,'2026-11-18 12:54:08.566237','2026-11-18 13:54:08.566237',NULL);
INSERT INTO `scheduler_signal` VALUES (0x52D408311D596526C0FA2BFDB6FD6D4A,'order:1',NULL,NULL,NULL,'2026-11-18 12:54:08.563988',NULL,0x52D408311D596526C0FA2BFDB6FD6D4A);
INSERT INTO `scheduler_signal` VALUES (0xE36C24BAE7EAABE512E32D88E00C0754,'order:2',NULL,NULL,NULL,'2026-11-18 12:54:08.566237',NULL,0xE36C24BAE7EAABE512E32D88E00C0754);
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
INSERT INTO `scheduler_stream` VALUES (1,'a06bc5245bad95d55d4ddf1df5038197ea8335cd3883f27d64c8438f2f59b02e','default','thread',NULL,NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:54:08.267538');
INSERT INTO `scheduler_stream` VALUES (2,'1155d4a028ed0efa4e469e6edb255688c19ad83c35dcce281c15cd96c3af0d30','mails','thread',NULL,NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:54:08.548036');
INSERT INTO `scheduler_stream` VALUES (3,'14796c0ae225d0555a4c1fe5742742049377604b0ed0cac82097c36e4e6f3e18','default','thread','press',NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:54:08.559976');
INSERT INTO `scheduler_stream` VALUES (4,'ee5218e40c132943c924374e3298a3e74f9a9782c856b44da73a907f51efafe6','closed','thread',NULL,NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:54:08.576083');
INSERT INTO `scheduler_stream` VALUES (5,'05ac5098145f80e682062c07b0de82d49b5b68916dced213c4d5dcb23f725f1e','open','thread',NULL,NULL,NULL,NULL,0,NULL,0,'2026-11-18 12:54:08.599694');
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
INSERT INTO `scheduler_workflow_condition` VALUES (0x01A1EEB8C3D07000B8F38EA697C431D9,0x01A1EEB8C3D07001B77ABD1D10AEDA38,'batch_success',NULL,NULL,0,NULL);
/*!40000 ALTER TABLE `scheduler_workflow_condition` ENABLE KEYS */;
/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;

/*!40101 SET SQL_MODE=@OLD_SQL_MODE */;
/*!40014 SET FOREIGN_KEY_CHECKS=@OLD_FOREIGN_KEY_CHECKS */;
/*!40014 SET UNIQUE_CHECKS=@OLD_UNIQUE_CHECKS */;
/*!40101 SET CHARACTER_SET_CLIENT=@OLD_CHARACTER_SET_CLIENT */;
/*!40101 SET CHARACTER_SET_RESULTS=@OLD_CHARACTER_SET_RESULTS */;
/*!40101 SET COLLATION_CONNECTION=@OLD_COLLATION_CONNECTION */;
/*!40111 SET SQL_NOTES=@OLD_SQL_NOTES */;

