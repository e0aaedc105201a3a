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
INSERT INTO public.ratchet_schema_version VALUES ('V001__initial', 'c2f37be7211524940678fb6e86204657f7f6e91cf11fa1c4caf8839cb6f5771e', '2026-11-18 12:36:10.011815+00');
INSERT INTO public.scheduler_batch VALUES ('01a1eea8-5528-7000-9cbf-cc034cdec1c2', 'parcels', '01a1eea8-5528-7000-9cbf-cc034cdec1c2', 3, 0, 0, 0, true, NULL, '2026-11-18 12:36:11.689201+00', NULL);
INSERT INTO public.scheduler_business_key_reservation VALUES ('customer-1', '01a1eea8-54f1-7000-b9a1-c42417489280', '2026-11-18 12:36:11.634478+00', NULL, NULL);
INSERT INTO public.scheduler_dependency VALUES ('01a1eea8-5520-7000-972f-9676eb61881f', '01a1eea8-5520-7001-9b88-8f59f47efa9c', 'SUCCESS', 0, 'OPEN');
INSERT INTO public.scheduler_dependency VALUES ('01a1eea8-5520-7000-972f-9676eb61881f', '01a1eea8-5524-7000-833e-ea76b56f153f', 'SUCCESS', 0, 'OPEN');
INSERT INTO public.scheduler_dependency VALUES ('01a1eea8-5524-7001-af88-948511b10029', '01a1eea8-5524-7000-833e-ea76b56f153f', 'SUCCESS', 1, 'OPEN');
INSERT INTO public.scheduler_dependency VALUES ('01a1eea8-5528-7000-9cbf-cc034cdec1c2', '01a1eea8-5528-7001-be59-bcb52b724391', 'CONDITION', 0, 'OPEN');
INSERT INTO public.scheduler_dlq_alert VALUES ('01a1eea8-5402-7000-b146-6d3a340c9624', '01a1eea8-53b3-7000-b622-e5d4a5bdba18', 'tests.upgrades.past:decline', '3489fad452e98e1fd01ab1796cced28387a1bf1f80f0404303bebc3e029e886d', 'ValueError: 4242 was declined', 'no retries configured', '2026-11-18 12:36:11.355823+00', 0);
INSERT INTO public.scheduler_idempotency_key VALUES ('order-1', '01a1eea8-54ee-7000-ae77-e11b0a5d5a69', '2026-11-18 12:36:11.631536+00');
INSERT INTO public.scheduler_job VALUES ('01a1eea8-53a2-7000-8921-a1d80650074b', '01a1eea8-53a2-7000-8921-a1d80650074b', 'tests.upgrades.past:greet', '{"args":["ann"],"kwargs":{"polite":true}}', '{"region":"eu"}', 'SINGLE', 2, 1, 'SUCCEEDED', '2026-11-18 12:36:11.298912+00', '2026-11-18 12:36:11.298912+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:36:11.336032+00', '2026-11-18 12:36:11.33608+00', 'host-1:27089-b29638a8c329', NULL, NULL, '"dear ann"', false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-53b3-7000-b622-e5d4a5bdba18', '01a1eea8-53b3-7000-b622-e5d4a5bdba18', 'tests.upgrades.past:decline', '{"args":["4242"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'FAILED', '2026-11-18 12:36:11.315499+00', '2026-11-18 12:36:11.315499+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, 'tests.upgrades.past:alarm', NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:36:11.336235+00', '2026-11-18 12:36:11.336252+00', 'host-1:27089-b29638a8c329', 'ValueError: 4242 was declined', 'ValueError', NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'no retries configured', NULL, '2026-11-18 12:36:11.355823+00', NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-53b6-7000-9c35-176529a68847', '01a1eea8-53b6-7000-9c35-176529a68847', 'tests.upgrades.past:decline', '{"args":["1111"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:36:11.318695+00', '2081-08-21 12:36:11.337869+00', NULL, 2, 'FIXED', 1728000000000000, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:36:11.337853+00', NULL, 'host-1:27089-b29638a8c329', 'ValueError: 1111 was declined', 'ValueError', NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-53c9-7000-8eff-6742853c814a', '01a1eea8-53c9-7000-8eff-6742853c814a', 'tests.upgrades.past:alarm', '{"args":[{"message":"ValueError: 4242 was declined","type":"ValueError","reason":"no retries configured","attempts":1}],"kwargs":{}}', NULL, 'CALLBACK', 2, 1, 'SUCCEEDED', '2026-11-18 12:36:11.355823+00', '2026-11-18 12:36:11.336252+00', NULL, 3, 'EXPONENTIAL', 5000000, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eea8-53b3-7000-b622-e5d4a5bdba18', NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:36:11.406979+00', '2026-11-18 12:36:11.407004+00', 'host-1:27089-b29638a8c329', NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5494-7000-a819-1ed9a350db3a', '01a1eea8-5494-7000-a819-1ed9a350db3a', 'tests.upgrades.past:greet', '{"args":["cid"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'CANCELED', '2026-11-18 12:36:11.541437+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, '2026-11-18 12:36:11.547575+00', NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, 'requested', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-549f-7000-954d-3fb03d21ad47', '01a1eea8-549f-7000-954d-3fb03d21ad47', 'tests.upgrades.past:greet', '{"args":["old"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'CANCELED', '2026-11-18 12:36:11.552569+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, '2026-11-18 12:36:11.559189+00', NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, '01a1eea8-54a7-7000-92a1-87933232899f', 'superseded', NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-54a7-7000-92a1-87933232899f', '01a1eea8-54a7-7000-92a1-87933232899f', 'tests.upgrades.past:greet', '{"args":["new"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:36:11.559189+00', '2026-11-18 12:36:11.559189+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-54cc-7000-9fcc-3ba752121a0a', '01a1eea8-54cc-7000-9fcc-3ba752121a0a', 'tests.upgrades.past:greet', '{"args":["dora"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PAUSED', '2026-11-18 12:36:11.597276+00', '2026-11-18 12:36:11.597276+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, 'PENDING', NULL, NULL, NULL, NULL, '2026-11-18 12:36:11.599541+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-54eb-7000-ab59-a151d99345b2', '01a1eea8-54eb-7000-ab59-a151d99345b2', 'tests.upgrades.past:greet', '{"args":["eve"],"kwargs":{}}', NULL, 'SINGLE', 3, 2, 'PENDING', '2026-11-18 12:36:11.628602+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-54ee-7000-ae77-e11b0a5d5a69', '01a1eea8-54ee-7000-ae77-e11b0a5d5a69', 'tests.upgrades.past:greet', '{"args":["fay"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:36:11.631536+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, 'order-1', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-54f1-7000-b9a1-c42417489280', '01a1eea8-54f1-7000-b9a1-c42417489280', 'tests.upgrades.past:greet', '{"args":["gus"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:36:11.634478+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, 'customer-1', NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5507-7000-ba90-6c88e3999a25', '01a1eea8-5507-7000-ba90-6c88e3999a25', 'tests.upgrades.past:greet', '{"args":["hal"],"kwargs":{}}', NULL, 'SINGLE', 2, 3, 'PENDING', '2026-11-18 12:36:11.65633+00', '2026-11-18 12:36:11.65633+00', NULL, 0, 'NONE', 0, 0, 300000000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-550b-7000-9d5c-4427b7f2b025', '01a1eea8-550b-7000-9d5c-4427b7f2b025', 'tests.upgrades.past:greet', '{"args":["ian"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'WAITING', '2026-11-18 12:36:11.660094+00', '2026-11-18 12:36:11.660094+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, 'order:1', NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:36:11.660094+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5518-7000-9fdf-224f19cc9f9f', '01a1eea8-5518-7000-9fdf-224f19cc9f9f', 'tests.upgrades.past:greet', '{"args":["jo"],"kwargs":{}}', NULL, 'SINGLE', 2, 4, 'PENDING', '2026-11-18 12:36:11.673126+00', '2026-11-18 12:36:11.673126+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5520-7000-972f-9676eb61881f', '01a1eea8-5520-7000-972f-9676eb61881f', 'tests.upgrades.past:greet', '{"args":["kim"],"kwargs":{}}', NULL, 'CHAIN_STEP', 2, 1, 'PENDING', '2026-11-18 12:36:11.681223+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, true, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5520-7001-9b88-8f59f47efa9c', '01a1eea8-5520-7000-972f-9676eb61881f', 'tests.upgrades.past:greet', '{"args":["lou"],"kwargs":{}}', NULL, 'CHAIN_STEP', 2, 1, 'WAITING', '2026-11-18 12:36:11.681223+00', '2026-11-18 12:36:11.681223+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eea8-5520-7000-972f-9676eb61881f', NULL, NULL, NULL, 1, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:36:11.681223+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5524-7001-af88-948511b10029', '01a1eea8-5524-7000-833e-ea76b56f153f', 'tests.upgrades.past:greet', '{"args":["mia"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:36:11.685433+00', '2099-01-01 00:00:00+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, true, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5524-7000-833e-ea76b56f153f', '01a1eea8-5524-7000-833e-ea76b56f153f', 'tests.upgrades.past:greet', '{"args":["joined"],"kwargs":{}}', NULL, 'WORKFLOW_JOIN', 2, 1, 'WAITING', '2026-11-18 12:36:11.685433+00', '2026-11-18 12:36:11.685433+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:36:11.685433+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5528-7001-be59-bcb52b724391', '01a1eea8-5528-7000-9cbf-cc034cdec1c2', 'tests.upgrades.past:greet', '{"args":["all"],"kwargs":{}}', NULL, 'WORKFLOW_BRANCH', 2, 1, 'WAITING', '2026-11-18 12:36:11.689201+00', '2026-11-18 12:36:11.689121+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eea8-5528-7000-9cbf-cc034cdec1c2', NULL, NULL, NULL, 1, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:36:11.689201+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5528-7002-83fa-c43853a41d0d', '01a1eea8-5528-7002-83fa-c43853a41d0d', 'tests.upgrades.past:greet', '{"args":["item-0"],"kwargs":{}}', NULL, 'BATCH_CHILD', 2, 1, 'PENDING', '2026-11-18 12:36:11.689201+00', '2026-11-18 12:36:11.689156+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eea8-5528-7000-9cbf-cc034cdec1c2', '01a1eea8-5528-7000-9cbf-cc034cdec1c2', NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5528-7003-8c56-3414278e2d3f', '01a1eea8-5528-7003-8c56-3414278e2d3f', 'tests.upgrades.past:greet', '{"args":["item-1"],"kwargs":{}}', NULL, 'BATCH_CHILD', 2, 1, 'PENDING', '2026-11-18 12:36:11.689201+00', '2026-11-18 12:36:11.689156+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eea8-5528-7000-9cbf-cc034cdec1c2', '01a1eea8-5528-7000-9cbf-cc034cdec1c2', NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5528-7004-af3f-cde628ead1a9', '01a1eea8-5528-7004-af3f-cde628ead1a9', 'tests.upgrades.past:greet', '{"args":["item-2"],"kwargs":{}}', NULL, 'BATCH_CHILD', 2, 1, 'PENDING', '2026-11-18 12:36:11.689201+00', '2026-11-18 12:36:11.689156+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, '01a1eea8-5528-7000-9cbf-cc034cdec1c2', '01a1eea8-5528-7000-9cbf-cc034cdec1c2', NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5528-7000-9cbf-cc034cdec1c2', '01a1eea8-5528-7000-9cbf-cc034cdec1c2', 'ratchet:batch', '{"args":[],"kwargs":{}}', NULL, 'BATCH_PARENT', 2, 1, 'WAITING', '2026-11-18 12:36:11.689201+00', '2026-11-18 12:36:11.689121+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, true, true, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:36:11.689201+00', NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-5532-7000-bdfb-4e128e582b45', '01a1eea8-5532-7000-bdfb-4e128e582b45', 'tests.upgrades.past:greet', '{"args":["ned"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'PENDING', '2026-11-18 12:36:11.699241+00', '2026-11-18 12:36:11.699241+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job VALUES ('01a1eea8-552e-7000-8dde-7510cec1dd68', '01a1eea8-552e-7000-8dde-7510cec1dd68', 'tests.upgrades.past:stall', '{"args":["running"],"kwargs":{}}', NULL, 'SINGLE', 2, 5, 'PENDING', '2026-11-18 12:36:11.694801+00', '2026-11-18 12:36:11.694801+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, false, 0.25, 'a quarter', '{"seen":3}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_archive VALUES ('01a1eea8-52d3-7000-82ab-0c5d498ca33a', '01a1eea8-52d3-7000-82ab-0c5d498ca33a', 'tests.upgrades.past:greet', '{"args":["archived"],"kwargs":{}}', NULL, 'SINGLE', 2, 1, 'SUCCEEDED', '2026-11-18 12:36:11.091171+00', '2026-11-18 12:36:11.091171+00', NULL, 0, 'NONE', 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, false, false, NULL, NULL, 1, 0, '2026-11-18 12:36:11.25952+00', '2026-11-18 12:36:11.259553+00', 'host-1:27089-c637a244bad4', NULL, NULL, '"hello archived"', false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-11-18 12:37:11.291197+00');
INSERT INTO public.scheduler_job_execution VALUES ('01a1eea8-52d3-7000-82ab-0c5d498ca33a', '01a1eea8-5357-7000-a0e4-8a2e03e8dbd5', 1, 'host-1:27089-c637a244bad4', '2026-11-18 12:36:11.091171+00', '2026-11-18 12:36:11.25952+00', '2026-11-18 12:36:11.259553+00', 'SUCCEEDED', true, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_execution VALUES ('01a1eea8-53a2-7000-8921-a1d80650074b', '01a1eea8-53c2-7000-82d9-177e872b99c6', 1, 'host-1:27089-b29638a8c329', '2026-11-18 12:36:11.298912+00', '2026-11-18 12:36:11.336032+00', '2026-11-18 12:36:11.33608+00', 'SUCCEEDED', true, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_execution VALUES ('01a1eea8-53b3-7000-b622-e5d4a5bdba18', '01a1eea8-53c2-7000-82d9-177e872b99c6', 1, 'host-1:27089-b29638a8c329', '2026-11-18 12:36:11.315499+00', '2026-11-18 12:36:11.336235+00', '2026-11-18 12:36:11.336252+00', 'FAILED', true, 'ValueError: 4242 was declined', 'ValueError', 'Traceback (most recent call last):
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
INSERT INTO public.scheduler_job_execution VALUES ('01a1eea8-53b6-7000-9c35-176529a68847', '01a1eea8-53c2-7000-82d9-177e872b99c6', 1, 'host-1:27089-b29638a8c329', '2026-11-18 12:36:11.318695+00', '2026-11-18 12:36:11.337853+00', '2026-11-18 12:36:11.337869+00', 'FAILED', true, 'ValueError: 1111 was declined', 'ValueError', 'Traceback (most recent call last):
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
INSERT INTO public.scheduler_job_execution VALUES ('01a1eea8-53c9-7000-8eff-6742853c814a', '01a1eea8-540b-7000-9114-21f7895ca7f2', 1, 'host-1:27089-b29638a8c329', '2026-11-18 12:36:11.336252+00', '2026-11-18 12:36:11.406979+00', '2026-11-18 12:36:11.407004+00', 'SUCCEEDED', true, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_log VALUES ('01a1eea8-552e-7000-8dde-7510cec1dd68', '01a1eea8-553d-7000-8d4b-2685a0ac62c3', 1, 1, '2026-11-18 12:36:11.715164+00', 'INFO', 'ratchet.job', 'stalling as running');
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-53b6-7000-9c35-176529a68847', 1, 2, 'PENDING', 'SINGLE', 1, 0, 2, NULL, '2081-08-21 12:36:11.337869+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-54a7-7000-92a1-87933232899f', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2026-11-18 12:36:11.559189+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-54eb-7000-ab59-a151d99345b2', 2, 3, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-54ee-7000-ae77-e11b0a5d5a69', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-54f1-7000-b9a1-c42417489280', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-5507-7000-ba90-6c88e3999a25', 3, 2, 'PENDING', 'SINGLE', 0, 0, 0, 300000000, '2026-11-18 12:36:11.65633+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-5518-7000-9fdf-224f19cc9f9f', 4, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2026-11-18 12:36:11.673126+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-5520-7000-972f-9676eb61881f', 1, 2, 'PENDING', 'CHAIN_STEP', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-5524-7001-af88-948511b10029', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2099-01-01 00:00:00+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-5528-7002-83fa-c43853a41d0d', 1, 2, 'PENDING', 'BATCH_CHILD', 0, 0, 0, NULL, '2026-11-18 12:36:11.689156+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-5528-7003-8c56-3414278e2d3f', 1, 2, 'PENDING', 'BATCH_CHILD', 0, 0, 0, NULL, '2026-11-18 12:36:11.689156+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-5528-7004-af3f-cde628ead1a9', 1, 2, 'PENDING', 'BATCH_CHILD', 0, 0, 0, NULL, '2026-11-18 12:36:11.689156+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-5532-7000-bdfb-4e128e582b45', 1, 2, 'PENDING', 'SINGLE', 0, 0, 0, NULL, '2026-11-18 12:36:11.699241+00', NULL, NULL, NULL, NULL);
INSERT INTO public.scheduler_job_queue VALUES ('01a1eea8-552e-7000-8dde-7510cec1dd68', 5, 2, 'RUNNING', 'SINGLE', 0, 0, 0, NULL, '2026-11-18 12:36:11.694801+00', 'host-1:27089-03cbdfd213ef', '2026-11-18 12:36:11.710204+00', '01a1eea8-553d-7000-8d4b-2685a0ac62c3', NULL);
INSERT INTO public.scheduler_job_tag VALUES ('vip', '01a1eea8-53a2-7000-8921-a1d80650074b');
INSERT INTO public.scheduler_job_tag VALUES ('eu', '01a1eea8-53a2-7000-8921-a1d80650074b');
INSERT INTO public.scheduler_node VALUES ('host-1:27089-03cbdfd213ef', 'host-1:27089', 'host-1', 27089, '0.1.0', 'ACTIVE', 1, 5000000, 15000000, '2026-11-18 12:36:11.703118+00', '2026-11-18 12:36:11.70943+00', '{"lanes":{"thread":20,"async":200,"process":2},"queues":null,"targets":[],"rescues":0,"false_rescues":0,"replaces":null,"process":"host-1:27089:a13d6e4a"}', NULL, NULL);
INSERT INTO public.scheduler_queue VALUES ('closed', true, '2026-11-18 12:36:11.669242+00');
INSERT INTO public.scheduler_queue VALUES ('default', true, '2026-11-18 12:36:11.694244+00');
INSERT INTO public.scheduler_recurring_job VALUES ('nightly', '0 2 * * *', 'Europe/Berlin', 'tests.upgrades.past:greet', '{"job_id":"00000000-0000-0000-0000-000000000000","target":"tests.upgrades.past:greet","payload":"{\"args\":[\"nightly\"],\"kwargs\":{}}","scheduled_at":"1970-01-01T00:00:00Z","root_id":null,"status":"PENDING","type":"SINGLE","priority":2,"stream":{"queue":"default","lane":"thread","resource":null,"breaker":null,"limit_key":null,"fairness_key":null,"suspect":false,"parked_target":null},"expires_at":null,"max_retries":0,"backoff":"NONE","backoff_base":"P0D","jitter":0.0,"timeout":null,"no_retry_for":[],"params":null,"tags":[],"idempotency_key":null,"business_key":null,"busy":"RAISE","on_success":null,"on_failure":null,"parent_id":null,"batch_id":null,"schedule":null,"caller":null,"needs":0,"signal":null}', 'fire_once', 'SKIP', NULL, NULL, 0, false, true, '2026-11-19 01:00:00+00', NULL, '2026-11-18 12:36:11.67568+00', '2026-11-18 12:36:11.680054+00');
INSERT INTO public.scheduler_resource_limit VALUES ('press', 1, NULL, NULL, NULL, '2026-11-18 12:36:11.638789+00', '2026-11-18 12:36:11.638789+00');
INSERT INTO public.scheduler_signal VALUES ('52d40831-1d59-6526-c0fa-2bfdb6fd6d4a', 'order:1', NULL, NULL, NULL, '2026-11-18 12:36:11.660094+00', NULL, '52d40831-1d59-6526-c0fa-2bfdb6fd6d4a');
INSERT INTO public.scheduler_signal VALUES ('e36c24ba-e7ea-abe5-12e3-2d88e00c0754', 'order:2', NULL, NULL, NULL, '2026-11-18 12:36:11.666014+00', NULL, 'e36c24ba-e7ea-abe5-12e3-2d88e00c0754');
INSERT INTO public.scheduler_signal VALUES ('01a1eea8-5511-7000-a450-7ed18f392804', 'order:2', NULL, '{"by":"ann"}', NULL, '2026-11-18 12:36:11.666014+00', '2026-11-18 13:36:11.666014+00', NULL);
INSERT INTO public.scheduler_stream VALUES (1, 'a06bc5245bad95d55d4ddf1df5038197ea8335cd3883f27d64c8438f2f59b02e', 'default', 'thread', NULL, NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:36:11.115176+00');
INSERT INTO public.scheduler_stream VALUES (2, '1155d4a028ed0efa4e469e6edb255688c19ad83c35dcce281c15cd96c3af0d30', 'mails', 'thread', NULL, NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:36:11.628437+00');
INSERT INTO public.scheduler_stream VALUES (3, '14796c0ae225d0555a4c1fe5742742049377604b0ed0cac82097c36e4e6f3e18', 'default', 'thread', 'press', NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:36:11.65634+00');
INSERT INTO public.scheduler_stream VALUES (4, 'ee5218e40c132943c924374e3298a3e74f9a9782c856b44da73a907f51efafe6', 'closed', 'thread', NULL, NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:36:11.672755+00');
INSERT INTO public.scheduler_stream VALUES (5, '05ac5098145f80e682062c07b0de82d49b5b68916dced213c4d5dcb23f725f1e', 'open', 'thread', NULL, NULL, NULL, NULL, false, NULL, 0, '2026-11-18 12:36:11.69538+00');
INSERT INTO public.scheduler_workflow_condition VALUES ('01a1eea8-5528-7000-9cbf-cc034cdec1c2', '01a1eea8-5528-7001-be59-bcb52b724391', 'batch_success', NULL, NULL, 0, NULL);
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
