CREATE TABLE public.ratchet_schema_version (
    script text NOT NULL,
    checksum text NOT NULL,
    applied_at timestamp with time zone NOT NULL
);
CREATE TABLE public.scheduler_batch (
    batch_id uuid NOT NULL,
    name character varying(255) NOT NULL,
    parent_id uuid NOT NULL,
    total integer NOT NULL,
    completed integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    canceled integer DEFAULT 0 NOT NULL,
    sealed boolean NOT NULL,
    progress_target character varying(512),
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone
)
WITH (fillfactor='50');
CREATE TABLE public.scheduler_batch_metrics (
    batch_id uuid NOT NULL,
    runs integer DEFAULT 0 NOT NULL,
    run_time_us bigint DEFAULT 0 NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone
)
WITH (fillfactor='50');
CREATE TABLE public.scheduler_business_key_reservation (
    business_key character varying(255) NOT NULL,
    job_id uuid NOT NULL,
    reserved_at timestamp with time zone NOT NULL,
    claim_id uuid,
    node_id character varying(128)
);
CREATE TABLE public.scheduler_circuit_breaker (
    service character varying(255) NOT NULL,
    state character varying(16) NOT NULL,
    open_until timestamp with time zone,
    document text NOT NULL,
    version bigint NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE public.scheduler_dependency (
    parent_id uuid NOT NULL,
    child_id uuid NOT NULL,
    kind character varying(16) NOT NULL,
    "position" integer NOT NULL,
    state character varying(16) DEFAULT 'OPEN'::character varying NOT NULL
);
CREATE TABLE public.scheduler_dlq_alert (
    alert_id uuid NOT NULL,
    job_id uuid NOT NULL,
    target character varying(512) NOT NULL,
    error_hash character(64) NOT NULL,
    error text,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    suppressed integer DEFAULT 0 NOT NULL
);
CREATE TABLE public.scheduler_idempotency_key (
    idempotency_key character varying(255) NOT NULL,
    job_id uuid NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.scheduler_job (
    job_id uuid NOT NULL,
    root_id uuid NOT NULL,
    target character varying(512) NOT NULL,
    payload text NOT NULL,
    params text,
    job_type character varying(16) NOT NULL,
    priority smallint NOT NULL,
    stream_id integer NOT NULL,
    status character varying(16) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    max_retries integer DEFAULT 0 NOT NULL,
    backoff character varying(16) DEFAULT 'NONE'::character varying NOT NULL,
    backoff_base_us bigint DEFAULT 0 NOT NULL,
    jitter double precision DEFAULT 0 NOT NULL,
    timeout_us bigint,
    no_retry_for text,
    idempotency_key character varying(255),
    business_key character varying(255),
    on_success character varying(512),
    on_failure character varying(512),
    parent_id uuid,
    batch_id uuid,
    schedule character varying(255),
    caller character varying(255),
    needs integer DEFAULT 0 NOT NULL,
    has_dependants boolean DEFAULT false NOT NULL,
    has_conditions boolean DEFAULT false NOT NULL,
    signal_key character varying(255),
    signal text,
    attempts integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    node_id character varying(128),
    error text,
    error_type character varying(512),
    result text,
    result_truncated boolean DEFAULT false NOT NULL,
    progress double precision,
    progress_message text,
    state text,
    paused_from character varying(16),
    superseded_by uuid,
    canceled_reason text,
    canceled_by uuid,
    dead_letter_reason text,
    held_at timestamp with time zone,
    dead_lettered_at timestamp with time zone,
    expiry_due_at timestamp with time zone,
    signal_due_at timestamp with time zone
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.1');
CREATE TABLE public.scheduler_job_archive (
    job_id uuid NOT NULL,
    root_id uuid NOT NULL,
    target character varying(512) NOT NULL,
    payload text NOT NULL,
    params text,
    job_type character varying(16) NOT NULL,
    priority smallint NOT NULL,
    stream_id integer NOT NULL,
    status character varying(16) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    max_retries integer DEFAULT 0 NOT NULL,
    backoff character varying(16) DEFAULT 'NONE'::character varying NOT NULL,
    backoff_base_us bigint DEFAULT 0 NOT NULL,
    jitter double precision DEFAULT 0 NOT NULL,
    timeout_us bigint,
    no_retry_for text,
    idempotency_key character varying(255),
    business_key character varying(255),
    on_success character varying(512),
    on_failure character varying(512),
    parent_id uuid,
    batch_id uuid,
    schedule character varying(255),
    caller character varying(255),
    needs integer DEFAULT 0 NOT NULL,
    has_dependants boolean DEFAULT false NOT NULL,
    has_conditions boolean DEFAULT false NOT NULL,
    signal_key character varying(255),
    signal text,
    attempts integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    node_id character varying(128),
    error text,
    error_type character varying(512),
    result text,
    result_truncated boolean DEFAULT false NOT NULL,
    progress double precision,
    progress_message text,
    state text,
    paused_from character varying(16),
    superseded_by uuid,
    canceled_reason text,
    canceled_by uuid,
    dead_letter_reason text,
    held_at timestamp with time zone,
    dead_lettered_at timestamp with time zone,
    expiry_due_at timestamp with time zone,
    signal_due_at timestamp with time zone,
    archived_at timestamp with time zone NOT NULL
);
CREATE TABLE public.scheduler_job_execution (
    job_id uuid NOT NULL,
    claim_id uuid NOT NULL,
    attempt integer NOT NULL,
    node_id character varying(128) NOT NULL,
    scheduled_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone,
    status character varying(16) NOT NULL,
    counted boolean NOT NULL,
    error text,
    error_type character varying(512),
    traceback text
);
CREATE TABLE public.scheduler_job_log (
    job_id uuid NOT NULL,
    claim_id uuid NOT NULL,
    sequence integer NOT NULL,
    attempt integer NOT NULL,
    logged_at timestamp with time zone NOT NULL,
    level character varying(16) NOT NULL,
    logger character varying(255) NOT NULL,
    message text NOT NULL
);
CREATE TABLE public.scheduler_job_queue (
    job_id uuid NOT NULL,
    stream_id integer NOT NULL,
    priority smallint NOT NULL,
    status character varying(8) NOT NULL,
    job_type character varying(16) NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    crashes integer DEFAULT 0 NOT NULL,
    max_retries integer DEFAULT 0 NOT NULL,
    timeout_us bigint,
    scheduled_time timestamp with time zone NOT NULL,
    picked_by character varying(128),
    picked_at timestamp with time zone,
    claim_id uuid,
    held_claim_id uuid
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='500', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.2');
CREATE TABLE public.scheduler_job_tag (
    tag character varying(255) NOT NULL,
    job_id uuid NOT NULL
);
CREATE TABLE public.scheduler_lock (
    lock_name character varying(255) NOT NULL,
    locked_by character varying(128) NOT NULL,
    token uuid NOT NULL,
    locked_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.scheduler_node (
    node_id character varying(128) NOT NULL,
    name character varying(255) NOT NULL,
    host character varying(255) NOT NULL,
    pid integer NOT NULL,
    version character varying(64) NOT NULL,
    state character varying(16) NOT NULL,
    beat bigint DEFAULT 0 NOT NULL,
    beat_interval_us bigint NOT NULL,
    silence_us bigint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    last_beat_at timestamp with time zone NOT NULL,
    node_info text,
    rescued_at timestamp with time zone,
    rescued_by character varying(128)
)
WITH (fillfactor='50');
CREATE TABLE public.scheduler_queue (
    queue character varying(255) NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    paused_at timestamp with time zone
);
CREATE TABLE public.scheduler_recurring_fire (
    name character varying(255) NOT NULL,
    fire_at timestamp with time zone NOT NULL,
    outcome character varying(16) NOT NULL,
    job_id uuid,
    reason text,
    recorded_at timestamp with time zone NOT NULL
);
CREATE TABLE public.scheduler_recurring_job (
    name character varying(255) NOT NULL,
    expression character varying(255) NOT NULL,
    zone_id character varying(64) NOT NULL,
    target character varying(512) NOT NULL,
    template text NOT NULL,
    misfire character varying(32) NOT NULL,
    overlap character varying(16) NOT NULL,
    starts_at timestamp with time zone,
    ends_at timestamp with time zone,
    jitter_us bigint DEFAULT 0 NOT NULL,
    declared boolean DEFAULT false NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    next_fire_at timestamp with time zone,
    last_fire_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL
);
CREATE TABLE public.scheduler_resource_limit (
    resource character varying(255) NOT NULL,
    max_concurrent integer,
    rate integer,
    period_us bigint,
    tokens double precision,
    refilled_at timestamp with time zone,
    updated_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.scheduler_resource_permit (
    resource character varying(255) NOT NULL,
    job_id uuid NOT NULL,
    claim_id uuid NOT NULL,
    node_id character varying(128) NOT NULL,
    acquired_at timestamp with time zone NOT NULL
);
CREATE TABLE public.scheduler_signal (
    signal_id uuid NOT NULL,
    signal_key character varying(255) NOT NULL,
    job_id uuid,
    payload text,
    rejected text,
    sent_at timestamp with time zone NOT NULL,
    keep_until timestamp with time zone,
    consumed_by uuid
);
CREATE TABLE public.scheduler_stream (
    stream_id integer NOT NULL,
    stream_key character(64) NOT NULL,
    queue character varying(255) NOT NULL,
    lane character varying(16) NOT NULL,
    resource character varying(255),
    breaker character varying(255),
    limit_key character varying(255),
    fairness_key character varying(255),
    suspect boolean DEFAULT false NOT NULL,
    parked_target character varying(512),
    epoch bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone NOT NULL
);
ALTER TABLE public.scheduler_stream ALTER COLUMN stream_id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.scheduler_stream_stream_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.scheduler_workflow_condition (
    parent_id uuid NOT NULL,
    child_id uuid NOT NULL,
    kind character varying(32) NOT NULL,
    predicate character varying(512),
    argument text,
    eval_order integer DEFAULT 0 NOT NULL,
    description text
);
INSERT INTO public.ratchet_schema_version VALUES ('V001__initial', 'c2f37be7211524940678fb6e86204657f7f6e91cf11fa1c4caf8839cb6f5771e', '2026-11-18 12:53:56.218628+00');
INSERT INTO public.scheduler_batch VALUES ('01a1eeb8-99b0-7000-9bbe-08e478acc1eb', 'parcels', '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', 3, 0, 0, 0, true, NULL, '2026-11-18 12:53:57.812806+00', NULL);
INSERT INTO public.scheduler_business_key_reservation VALUES ('customer-1', '01a1eeb8-9932-7000-b95d-2629287dd9c8', '2026-11-18 12:53:57.686545+00', NULL, NULL);
INSERT INTO public.scheduler_dependency VALUES ('01a1eeb8-9996-7000-8d88-66d63458fffd', '01a1eeb8-9996-7001-b500-7c8fcbbab52f', 'SUCCESS', 0, 'OPEN');
INSERT INTO public.scheduler_dependency VALUES ('01a1eeb8-9996-7000-8d88-66d63458fffd', '01a1eeb8-999e-7000-8619-b36407ff735b', 'SUCCESS', 0, 'OPEN');
INSERT INTO public.scheduler_dependency VALUES ('01a1eeb8-999e-7001-8f10-405788c89d69', '01a1eeb8-999e-7000-8619-b36407ff735b', 'SUCCESS', 1, 'OPEN');
INSERT INTO public.scheduler_dependency VALUES ('01a1eeb8-99b0-7000-9bbe-08e478acc1eb', '01a1eeb8-99b0-7001-8572-51e0a7e9a2ad', 'CONDITION', 0, 'OPEN');
INSERT INTO public.scheduler_dlq_alert VALUES ('01a1eeb8-98b9-7003-a9bb-7d5cbf189724', '01a1eeb8-987d-7000-8f4e-9b033e6c994b', 'tests.upgrades.past:decline', '3489fad452e98e1fd01ab1796cced28387a1bf1f80f0404303bebc3e029e886d', 'ValueError: 4242 was declined', 'no retries configured', '2026-11-18 12:53:57.55005+00', 0);
INSERT INTO public.scheduler_idempotency_key VALUES ('order-1', '01a1eeb8-992b-7000-b770-3d9a2bb2dd82', '2026-11-18 12:53:57.679741+00');
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9877-7000-909e-a5ce26de3e38', '01a1eeb8-9877-7000-909e-a5ce26de3e38', 'tests.upgrades.past:greet', '{"args":["ann"],"kwargs":{"polite":true}}', '{"region":"eu"}', 'SINGLE', 2, 1, 'SUCCEEDED', '2026-11-18 12:53:57.500141+00', '2026-11-18 12:53:57.500141+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:53:57.544575+00', '2026-11-18 12:53:57.544625+00', 'host-1:24231-f11720bc82b2', NULL, NULL, '"dear ann"', false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-987d-7000-8f4e-9b033e6c994b', '01a1eeb8-987d-7000-8f4e-9b033e6c994b', 'tests.upgrades.past:decline', '{"args":["4242"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'FAILED', '2026-11-18 12:53:57.50593+00', '2026-11-18 12:53:57.50593+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, 'tests.upgrades.past:alarm', NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:53:57.54471+00', '2026-11-18 12:53:57.544725+00', 'host-1:24231-f11720bc82b2', 'ValueError: 4242 was declined', 'ValueError', NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'no retries configured', NULL, '2026-11-18 12:53:57.55005+00', NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9881-7000-8170-1b0e9413491d', '01a1eeb8-9881-7000-8170-1b0e9413491d', 'tests.upgrades.past:decline', '{"args":["1111"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:53:57.510847+00', '2081-08-21 12:53:57.545537+00', NULL, 2, 'FIXED', 1728000000000000, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:53:57.545524+00', NULL, 'host-1:24231-f11720bc82b2', 'ValueError: 1111 was declined', 'ValueError', NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-98a4-7000-aaa9-195564666ecf', '01a1eeb8-98a4-7000-aaa9-195564666ecf', 'tests.upgrades.past:alarm', '{"args":[{"message":"ValueError: 4242 was declined","type":"ValueError","reason":"no retries configured","attempts":1}],"kwargs":{}}', NULL, 'CALLBACK', 2, 1, 'SUCCEEDED', '2026-11-18 12:53:57.55005+00', '2026-11-18 12:53:57.544725+00', NULL, 3, 'EXPONENTIAL', 5000000, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eeb8-987d-7000-8f4e-9b033e6c994b', NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:53:57.585337+00', '2026-11-18 12:53:57.585356+00', 'host-1:24231-f11720bc82b2', NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-98f5-7000-ab26-7a46dd3d0dc0', '01a1eeb8-98f5-7000-ab26-7a46dd3d0dc0', 'tests.upgrades.past:greet', '{"args":["cid"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'CANCELED', '2026-11-18 12:53:57.62503+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, '2026-11-18 12:53:57.632844+00', NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, 'requested', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9906-7000-bb7e-9176c050df2d', '01a1eeb8-9906-7000-bb7e-9176c050df2d', 'tests.upgrades.past:greet', '{"args":["old"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'CANCELED', '2026-11-18 12:53:57.642614+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, '2026-11-18 12:53:57.647+00', NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, '01a1eeb8-990c-7000-adcb-c80efa131ee8', 'superseded', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-990c-7000-adcb-c80efa131ee8', '01a1eeb8-990c-7000-adcb-c80efa131ee8', 'tests.upgrades.past:greet', '{"args":["new"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:53:57.647+00', '2026-11-18 12:53:57.647+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9914-7000-ad94-5fd7eda25ddb', '01a1eeb8-9914-7000-ad94-5fd7eda25ddb', 'tests.upgrades.past:greet', '{"args":["dora"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PAUSED', '2026-11-18 12:53:57.656349+00', '2026-11-18 12:53:57.656349+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, 'PENDING', NULL, NULL, NULL, NULL, '2026-11-18 12:53:57.658608+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-991a-7000-8612-bd31aa78735a', '01a1eeb8-991a-7000-8612-bd31aa78735a', 'tests.upgrades.past:greet', '{"args":["eve"],"kwargs":{}}', NULL, 'SINGLE', 3, 2, 'PENDING', '2026-11-18 12:53:57.66229+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-992b-7000-b770-3d9a2bb2dd82', '01a1eeb8-992b-7000-b770-3d9a2bb2dd82', 'tests.upgrades.past:greet', '{"args":["fay"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:53:57.679741+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, 'order-1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9932-7000-b95d-2629287dd9c8', '01a1eeb8-9932-7000-b95d-2629287dd9c8', 'tests.upgrades.past:greet', '{"args":["gus"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:53:57.686545+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, 'customer-1', NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-994c-7000-a656-cafb72ad4a38', '01a1eeb8-994c-7000-a656-cafb72ad4a38', 'tests.upgrades.past:greet', '{"args":["hal"],"kwargs":{}}', NULL, 'SINGLE', 2, 3, 'PENDING', '2026-11-18 12:53:57.712455+00', '2026-11-18 12:53:57.712455+00', NULL, 0, 'NONE', 0, 0, 300000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9950-7000-a615-811d931fe5f5', '01a1eeb8-9950-7000-a615-811d931fe5f5', 'tests.upgrades.past:greet', '{"args":["ian"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'WAITING', '2026-11-18 12:53:57.716496+00', '2026-11-18 12:53:57.716496+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, 'order:1', NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:53:57.716496+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9971-7000-93bf-18efcf6a3bac', '01a1eeb8-9971-7000-93bf-18efcf6a3bac', 'tests.upgrades.past:greet', '{"args":["jo"],"kwargs":{}}', NULL, 'SINGLE', 2, 4, 'PENDING', '2026-11-18 12:53:57.748948+00', '2026-11-18 12:53:57.748948+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9996-7000-8d88-66d63458fffd', '01a1eeb8-9996-7000-8d88-66d63458fffd', 'tests.upgrades.past:greet', '{"args":["kim"],"kwargs":{}}', NULL, 'CHAIN_STEP', 2, 1, 'PENDING', '2026-11-18 12:53:57.786669+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, true, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-9996-7001-b500-7c8fcbbab52f', '01a1eeb8-9996-7000-8d88-66d63458fffd', 'tests.upgrades.past:greet', '{"args":["lou"],"kwargs":{}}', NULL, 'CHAIN_STEP', 2, 1, 'WAITING', '2026-11-18 12:53:57.786669+00', '2026-11-18 12:53:57.786669+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eeb8-9996-7000-8d88-66d63458fffd', NULL, NULL, NULL, 1, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:53:57.786669+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-999e-7001-8f10-405788c89d69', '01a1eeb8-999e-7000-8619-b36407ff735b', 'tests.upgrades.past:greet', '{"args":["mia"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:53:57.794743+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, true, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-999e-7000-8619-b36407ff735b', '01a1eeb8-999e-7000-8619-b36407ff735b', 'tests.upgrades.past:greet', '{"args":["joined"],"kwargs":{}}', NULL, 'WORKFLOW_JOIN', 2, 1, 'WAITING', '2026-11-18 12:53:57.794743+00', '2026-11-18 12:53:57.794743+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:53:57.794743+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-99b0-7001-8572-51e0a7e9a2ad', '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', 'tests.upgrades.past:greet', '{"args":["all"],"kwargs":{}}', NULL, 'WORKFLOW_BRANCH', 2, 1, 'WAITING', '2026-11-18 12:53:57.812806+00', '2026-11-18 12:53:57.812658+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', NULL, NULL, NULL, 1, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:53:57.812806+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-99b0-7002-8545-13712bd47597', '01a1eeb8-99b0-7002-8545-13712bd47597', 'tests.upgrades.past:greet', '{"args":["item-0"],"kwargs":{}}', NULL, 'BATCH_CHILD', 2, 1, 'PENDING', '2026-11-18 12:53:57.812806+00', '2026-11-18 12:53:57.812731+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-99b0-7003-8aec-d2928baaeb63', '01a1eeb8-99b0-7003-8aec-d2928baaeb63', 'tests.upgrades.past:greet', '{"args":["item-1"],"kwargs":{}}', NULL, 'BATCH_CHILD', 2, 1, 'PENDING', '2026-11-18 12:53:57.812806+00', '2026-11-18 12:53:57.812731+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-99b0-7004-8805-6457a14d0718', '01a1eeb8-99b0-7004-8805-6457a14d0718', 'tests.upgrades.past:greet', '{"args":["item-2"],"kwargs":{}}', NULL, 'BATCH_CHILD', 2, 1, 'PENDING', '2026-11-18 12:53:57.812806+00', '2026-11-18 12:53:57.812731+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-99b0-7000-9bbe-08e478acc1eb', '01a1eeb8-99b0-7000-9bbe-08e478acc1eb', 'ratchet:batch', '{"args":[],"kwargs":{}}', NULL, 'BATCH_PARENT', 2, 1, 'WAITING', '2026-11-18 12:53:57.812806+00', '2026-11-18 12:53:57.812658+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, true, true, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:53:57.812806+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-99dd-7000-8d85-7661e789ebd0', '01a1eeb8-99dd-7000-8d85-7661e789ebd0', 'tests.upgrades.past:greet', '{"args":["ned"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:53:57.857069+00', '2026-11-18 12:53:57.857069+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eeb8-99c8-7000-aab8-cf50c5df76d7', '01a1eeb8-99c8-7000-aab8-cf50c5df76d7', 'tests.upgrades.past:stall', '{"args":["running"],"kwargs":{}}', NULL, 'SINGLE', 2, 5, 'PENDING', '2026-11-18 12:53:57.836174+00', '2026-11-18 12:53:57.836174+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, 0.25, 'a quarter', '{"seen":3}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_archive VALUES ('01a1eeb8-9744-7000-a9f0-b3980b359e90', '01a1eeb8-9744-7000-a9f0-b3980b359e90', 'tests.upgrades.past:greet', '{"args":["archived"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'SUCCEEDED', '2026-11-18 12:53:57.188622+00', '2026-11-18 12:53:57.188622+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:53:57.434323+00', '2026-11-18 12:53:57.434367+00', 'host-1:24231-91640f56b908', NULL, NULL, '"hello archived"', false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:54:57.487885+00');
INSERT INTO public.scheduler_job_execution VALUES ('01a1eeb8-9744-7000-a9f0-b3980b359e90', '01a1eeb8-97f4-7000-b3b7-2b3dc0a6517e', 1, 'host-1:24231-91640f56b908', '2026-11-18 12:53:57.188622+00', '2026-11-18 12:53:57.434323+00', '2026-11-18 12:53:57.434367+00', 'SUCCEEDED', true, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_execution VALUES ('01a1eeb8-9877-7000-909e-a5ce26de3e38', '01a1eeb8-9897-7000-87dc-3f1f876fc62e', 1, 'host-1:24231-f11720bc82b2', '2026-11-18 12:53:57.500141+00', '2026-11-18 12:53:57.544575+00', '2026-11-18 12:53:57.544625+00', 'SUCCEEDED', true, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_execution VALUES ('01a1eeb8-987d-7000-8f4e-9b033e6c994b', '01a1eeb8-9897-7000-87dc-3f1f876fc62e', 1, 'host-1:24231-f11720bc82b2', '2026-11-18 12:53:57.50593+00', '2026-11-18 12:53:57.54471+00', '2026-11-18 12:53:57.544725+00', 'FAILED', true, 'ValueError: 4242 was declined', 'ValueError', 'Traceback (most recent call last):
  File "/srv/shop/ratchet/engine/task.py", line 188, in invoke
    value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)
                                                                       ^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/ratchet/engine/task.py", line 301, in _call
    return call.function(*call.args, **call.kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/tests/upgrades/past.py", line 38, in decline
    raise ValueError(f"{card} was declined")
ValueError: 4242 was declined
');
INSERT INTO public.scheduler_job_execution VALUES ('01a1eeb8-9881-7000-8170-1b0e9413491d', '01a1eeb8-9897-7000-87dc-3f1f876fc62e', 1, 'host-1:24231-f11720bc82b2', '2026-11-18 12:53:57.510847+00', '2026-11-18 12:53:57.545524+00', '2026-11-18 12:53:57.545537+00', 'FAILED', true, 'ValueError: 1111 was declined', 'ValueError', 'Traceback (most recent call last):
  File "/srv/shop/ratchet/engine/task.py", line 188, in invoke
    value = self._surrounded(run, call) if self._tools.middleware else self._call(run, call)
                                                                       ^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/ratchet/engine/task.py", line 301, in _call
    return call.function(*call.args, **call.kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/shop/tests/upgrades/past.py", line 38, in decline
    raise ValueError(f"{card} was declined")
ValueError: 1111 was declined
');
INSERT INTO public.scheduler_job_execution VALUES ('01a1eeb8-98a4-7000-aaa9-195564666ecf', '01a1eeb8-98c6-7000-8984-d6c34a54def4', 1, 'host-1:24231-f11720bc82b2', '2026-11-18 12:53:57.544725+00', '2026-11-18 12:53:57.585337+00', '2026-11-18 12:53:57.585356+00', 'SUCCEEDED', true, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_log VALUES ('01a1eeb8-99c8-7000-aab8-cf50c5df76d7', '01a1eeb8-99ed-7000-acad-0416cab351f5', 1, 1, '2026-11-18 12:53:57.875717+00', 'INFO', 'ratchet.job', 'stalling as running');
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-9881-7000-8170-1b0e9413491d', 1, 2, 'PENDING', 'SINGLE', 1, 0, 2, NULL, '2081-08-21 12:53:57.545537+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-990c-7000-adcb-c80efa131ee8', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2026-11-18 12:53:57.647+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-991a-7000-8612-bd31aa78735a', 2, 3, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-992b-7000-b770-3d9a2bb2dd82', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-9932-7000-b95d-2629287dd9c8', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-994c-7000-a656-cafb72ad4a38', 3, 2, 'PENDING', 'SINGLE', 0, 0, 0, 300000000, '2026-11-18 12:53:57.712455+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-9971-7000-93bf-18efcf6a3bac', 4, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2026-11-18 12:53:57.748948+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-9996-7000-8d88-66d63458fffd', 1, 2, 'PENDING', 'CHAIN_STEP', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-999e-7001-8f10-405788c89d69', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-99b0-7002-8545-13712bd47597', 1, 2, 'PENDING', 'BATCH_CHILD', 0, 0, 0, NULL, '2026-11-18 12:53:57.812731+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-99b0-7003-8aec-d2928baaeb63', 1, 2, 'PENDING', 'BATCH_CHILD', 0, 0, 0, NULL, '2026-11-18 12:53:57.812731+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-99b0-7004-8805-6457a14d0718', 1, 2, 'PENDING', 'BATCH_CHILD', 0, 0, 0, NULL, '2026-11-18 12:53:57.812731+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-99dd-7000-8d85-7661e789ebd0', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2026-11-18 12:53:57.857069+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eeb8-99c8-7000-aab8-cf50c5df76d7', 5, 2, 'RUNNING', 'SINGLE', 0, 0, 0, NULL, '2026-11-18 12:53:57.836174+00', 'host-1:24231-cc13bb78636a', '2026-11-18 12:53:57.872943+00', '01a1eeb8-99ed-7000-acad-0416cab351f5', NULL);
INSERT INTO public.scheduler_job_tag VALUES ('vip', '01a1eeb8-9877-7000-909e-a5ce26de3e38');
INSERT INTO public.scheduler_job_tag VALUES ('eu', '01a1eeb8-9877-7000-909e-a5ce26de3e38');
INSERT INTO public.scheduler_node VALUES ('host-1:24231-cc13bb78636a', 'host-1:24231', 'host-1', 24231, '0.1.0', 'ACTIVE', 6, 500000, 2000000, '2026-11-18 12:53:57.859373+00', '2026-11-18 12:54:00.371371+00', '{"lanes":{"thread":20,"async":200,"process":2},"queues":null,"targets":["tests.upgrades.past:stall"],"rescues":0,"false_rescues":0,"replaces":null,"process":"host-1:24231:02e15908"}', NULL, NULL);
INSERT INTO public.scheduler_queue VALUES ('closed', true, '2026-11-18 12:53:57.744874+00');
INSERT INTO public.scheduler_queue VALUES ('default', true, '2026-11-18 12:53:57.826723+00');
INSERT INTO public.scheduler_recurring_job VALUES ('nightly', '0 2 * * *', 'Europe/Berlin', 'tests.upgrades.past:greet', '{"job_id":"00000000-0000-0000-0000-000000000000","target":"tests.upgrades.past:greet","payload":"{\"args\":[\"nightly\"],\"kwargs\":{}}","scheduled_at":"1970-01-01T00:00:00Z","root_id":null,"status":"PENDING","type":"SINGLE","priority":2,"stream":{"queue":"default","lane":"thread","resource":null,"breaker":null,"limit_key":null,"fairness_key":null,"suspect":false,"parked_target":null},"expires_at":null,"max_retries":0,"backoff":"NONE","backoff_base":"P0D","jitter":0.0,"timeout":null,"no_retry_for":[],"params":null,"tags":[],"idempotency_key":null,"business_key":null,"busy":"RAISE","on_success":null,"on_failure":null,"parent_id":null,"batch_id":null,"schedule":null,"caller":null,"needs":0,"signal":null}', 'fire_once', 'SKIP', NULL, NULL, 0, false, true, '2026-11-19 01:00:00+00', NULL, '2026-11-18 12:53:57.766719+00', '2026-11-18 12:53:57.775251+00');
INSERT INTO public.scheduler_resource_limit VALUES ('press', 1, NULL, NULL, NULL, '2026-11-18 12:53:57.695767+00', '2026-11-18 12:53:57.695767+00');
INSERT INTO public.scheduler_signal VALUES ('52d40831-1d59-6526-c0fa-2bfdb6fd6d4a', 'order:1', NULL, NULL, NULL, '2026-11-18 12:53:57.716496+00', NULL, '52d40831-1d59-6526-c0fa-2bfdb6fd6d4a');
INSERT INTO public.scheduler_signal VALUES ('e36c24ba-e7ea-abe5-12e3-2d88e00c0754', 'order:2', NULL, NULL, NULL, '2026-11-18 12:53:57.723837+00', NULL, 'e36c24ba-e7ea-abe5-12e3-2d88e00c0754');
INSERT INTO public.scheduler_signal VALUES ('01a1eeb8-9958-7000-9df2-88f863a3ac4c', 'order:2', NULL, '{"by":"ann"}', NULL, '2026-11-18 12:53:57.723837+00', '2026-11-18 13:53:57.723837+00', NULL);
INSERT INTO public.scheduler_stream VALUES (1, 'a06bc5245bad95d55d4ddf1df5038197ea8335cd3883f27d64c8438f2f59b02e', 'default', 'thread', NULL, NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:53:57.219961+00');
INSERT INTO public.scheduler_stream VALUES (2, '1155d4a028ed0efa4e469e6edb255688c19ad83c35dcce281c15cd96c3af0d30', 'mails', 'thread', NULL, NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:53:57.659104+00');
INSERT INTO public.scheduler_stream VALUES (3, '14796c0ae225d0555a4c1fe5742742049377604b0ed0cac82097c36e4e6f3e18', 'default', 'thread', 'press', NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:53:57.709147+00');
INSERT INTO public.scheduler_stream VALUES (4, 'ee5218e40c132943c924374e3298a3e74f9a9782c856b44da73a907f51efafe6', 'closed', 'thread', NULL, NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:53:57.74567+00');
INSERT INTO public.scheduler_stream VALUES (5, '05ac5098145f80e682062c07b0de82d49b5b68916dced213c4d5dcb23f725f1e', 'open', 'thread', NULL, NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:53:57.833239+00');
INSERT INTO public.scheduler_workflow_condition VALUES ('01a1eeb8-99b0-7000-9bbe-08e478acc1eb', '01a1eeb8-99b0-7001-8572-51e0a7e9a2ad', 'batch_success', NULL, NULL, 0, NULL);
SELECT pg_catalog.setval('public.scheduler_stream_stream_id_seq', 5, true);
ALTER TABLE ONLY public.ratchet_schema_version
    ADD CONSTRAINT ratchet_schema_version_pkey PRIMARY KEY (script);
ALTER TABLE ONLY public.scheduler_batch_metrics
    ADD CONSTRAINT scheduler_batch_metrics_pkey PRIMARY KEY (batch_id);
ALTER TABLE ONLY public.scheduler_batch
    ADD CONSTRAINT scheduler_batch_pkey PRIMARY KEY (batch_id);
ALTER TABLE ONLY public.scheduler_business_key_reservation
    ADD CONSTRAINT scheduler_business_key_reservation_pkey PRIMARY KEY (business_key);
ALTER TABLE ONLY public.scheduler_circuit_breaker
    ADD CONSTRAINT scheduler_circuit_breaker_pkey PRIMARY KEY (service);
ALTER TABLE ONLY public.scheduler_dependency
    ADD CONSTRAINT scheduler_dependency_pkey PRIMARY KEY (parent_id, child_id);
ALTER TABLE ONLY public.scheduler_dlq_alert
    ADD CONSTRAINT scheduler_dlq_alert_pkey PRIMARY KEY (alert_id);
ALTER TABLE ONLY public.scheduler_idempotency_key
    ADD CONSTRAINT scheduler_idempotency_key_pkey PRIMARY KEY (idempotency_key);
ALTER TABLE ONLY public.scheduler_job_archive
    ADD CONSTRAINT scheduler_job_archive_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY public.scheduler_job_execution
    ADD CONSTRAINT scheduler_job_execution_pkey PRIMARY KEY (job_id, claim_id);
ALTER TABLE ONLY public.scheduler_job_log
    ADD CONSTRAINT scheduler_job_log_pkey PRIMARY KEY (job_id, claim_id, sequence);
ALTER TABLE ONLY public.scheduler_job
    ADD CONSTRAINT scheduler_job_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY public.scheduler_job_queue
    ADD CONSTRAINT scheduler_job_queue_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY public.scheduler_job_tag
    ADD CONSTRAINT scheduler_job_tag_pkey PRIMARY KEY (tag, job_id);
ALTER TABLE ONLY public.scheduler_lock
    ADD CONSTRAINT scheduler_lock_pkey PRIMARY KEY (lock_name);
ALTER TABLE ONLY public.scheduler_node
    ADD CONSTRAINT scheduler_node_pkey PRIMARY KEY (node_id);
ALTER TABLE ONLY public.scheduler_queue
    ADD CONSTRAINT scheduler_queue_pkey PRIMARY KEY (queue);
ALTER TABLE ONLY public.scheduler_recurring_fire
    ADD CONSTRAINT scheduler_recurring_fire_pkey PRIMARY KEY (name, fire_at);
ALTER TABLE ONLY public.scheduler_recurring_job
    ADD CONSTRAINT scheduler_recurring_job_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.scheduler_resource_limit
    ADD CONSTRAINT scheduler_resource_limit_pkey PRIMARY KEY (resource);
ALTER TABLE ONLY public.scheduler_resource_permit
    ADD CONSTRAINT scheduler_resource_permit_pkey PRIMARY KEY (job_id, claim_id, resource);
ALTER TABLE ONLY public.scheduler_signal
    ADD CONSTRAINT scheduler_signal_pkey PRIMARY KEY (signal_id);
ALTER TABLE ONLY public.scheduler_stream
    ADD CONSTRAINT scheduler_stream_pkey PRIMARY KEY (stream_id);
ALTER TABLE ONLY public.scheduler_stream
    ADD CONSTRAINT scheduler_stream_stream_key_key UNIQUE (stream_key);
ALTER TABLE ONLY public.scheduler_workflow_condition
    ADD CONSTRAINT scheduler_workflow_condition_pkey PRIMARY KEY (parent_id, child_id);
CREATE INDEX idx_alert_job ON public.scheduler_dlq_alert USING btree (job_id, error_hash, created_at);
CREATE INDEX idx_archive_archived_at ON public.scheduler_job_archive USING btree (archived_at);
CREATE INDEX idx_batch_open ON public.scheduler_batch USING btree (batch_id) WHERE (finished_at IS NULL);
CREATE INDEX idx_claim_executable ON public.scheduler_job_queue USING btree (stream_id, priority, scheduled_time, job_id) WHERE ((status)::text = 'PENDING'::text);
CREATE INDEX idx_dependency_child ON public.scheduler_dependency USING btree (child_id);
CREATE INDEX idx_job_batch ON public.scheduler_job USING btree (batch_id) WHERE (batch_id IS NOT NULL);
CREATE INDEX idx_job_business_key ON public.scheduler_job USING btree (business_key) WHERE (business_key IS NOT NULL);
CREATE INDEX idx_job_dead_letter ON public.scheduler_job USING btree (dead_lettered_at, job_id) WHERE (dead_lettered_at IS NOT NULL);
CREATE INDEX idx_job_expiry ON public.scheduler_job USING btree (expiry_due_at) WHERE (expiry_due_at IS NOT NULL);
CREATE INDEX idx_job_held ON public.scheduler_job USING btree (held_at, job_id) WHERE (held_at IS NOT NULL);
CREATE INDEX idx_job_parent ON public.scheduler_job USING btree (parent_id) WHERE (parent_id IS NOT NULL);
CREATE INDEX idx_job_root ON public.scheduler_job USING btree (root_id) WHERE (root_id <> job_id);
CREATE INDEX idx_job_schedule ON public.scheduler_job USING btree (schedule, job_id) WHERE (schedule IS NOT NULL);
CREATE INDEX idx_job_signal_due ON public.scheduler_job USING btree (signal_due_at) WHERE (signal_due_at IS NOT NULL);
CREATE INDEX idx_job_signal_key ON public.scheduler_job USING btree (signal_key, job_id) WHERE ((signal_key IS NOT NULL) AND (held_at IS NOT NULL));
CREATE INDEX idx_log_logged_at ON public.scheduler_job_log USING brin (logged_at);
CREATE INDEX idx_permit_node ON public.scheduler_resource_permit USING btree (node_id);
CREATE INDEX idx_permit_resource ON public.scheduler_resource_permit USING btree (resource);
CREATE INDEX idx_queue_orphan ON public.scheduler_job_queue USING btree (picked_by) WHERE (picked_by IS NOT NULL);
CREATE INDEX idx_recurring_due ON public.scheduler_recurring_job USING btree (next_fire_at) WHERE ((next_fire_at IS NOT NULL) AND (NOT paused));
CREATE INDEX idx_reservation_job ON public.scheduler_business_key_reservation USING btree (job_id);
CREATE INDEX idx_reservation_node ON public.scheduler_business_key_reservation USING btree (node_id) WHERE (node_id IS NOT NULL);
CREATE INDEX idx_signal_kept ON public.scheduler_signal USING btree (signal_key, signal_id) WHERE (consumed_by IS NULL);
CREATE INDEX idx_tag_job ON public.scheduler_job_tag USING btree (job_id);
