-- Suspensions, waitpoints and signals. All but the keys hang on an execution and are forgotten with
-- it.

CREATE TABLE ff_suspension (
    partition_key    smallint NOT NULL,
    execution_id     uuid     NOT NULL,
    suspension_id    uuid     NOT NULL,
    number           integer  NOT NULL,
    generation       integer  NOT NULL,
    attempt_index    integer  NOT NULL,
    lease_epoch      bigint   NOT NULL,
    reason           text     NOT NULL,
    condition        jsonb    NOT NULL,
    progress         text     NOT NULL,
    waitpoints       text     NOT NULL,
    suspended_by     text     NOT NULL,
    suspended_at_ms  bigint   NOT NULL,
    timeout_at_ms    bigint,
    timeout_behavior text     NOT NULL,
    resume_delay_ms  bigint   NOT NULL,
    continuation     text,
    idempotency_key  text,
    at_once          boolean  NOT NULL,
    closed_at_ms     bigint,
    end_reason       text,
    PRIMARY KEY (partition_key, execution_id)
);

CREATE TABLE ff_suspension_outcome (
    partition_key   smallint NOT NULL,
    execution_id    uuid     NOT NULL,
    idempotency_key text     COLLATE "C" NOT NULL,
    suspension_id   uuid     NOT NULL,
    number          integer  NOT NULL,
    generation      integer  NOT NULL,
    closed_at_ms    bigint   NOT NULL,
    end_reason      text     NOT NULL,
    PRIMARY KEY (partition_key, execution_id, idempotency_key)
);

CREATE TABLE ff_waitpoint (
    partition_key       smallint NOT NULL,
    execution_id        uuid     NOT NULL,
    waitpoint_id        uuid     NOT NULL,
    waitpoint_key       text     NOT NULL,
    namespace           text     COLLATE "C" NOT NULL,
    open                boolean  NOT NULL,
    suspension          integer  NOT NULL,
    generation          integer  NOT NULL,
    signal_names        text     NOT NULL,
    signal_count        integer  NOT NULL,
    created_at_ms       bigint   NOT NULL,
    expires_at_ms       bigint,
    activated_at_ms     bigint,
    closed_at_ms        bigint,
    end_reason          text,
    token_kid           text,
    token_expires_at_ms bigint,
    nonce               bytea    NOT NULL,
    PRIMARY KEY (partition_key, execution_id, waitpoint_id)
);

CREATE INDEX ff_waitpoint_open ON ff_waitpoint (partition_key, execution_id, open, waitpoint_id);

CREATE INDEX ff_waitpoint_namespace ON ff_waitpoint
    (namespace, open, created_at_ms, waitpoint_id, partition_key, execution_id);

CREATE TABLE ff_signal (
    partition_key    smallint NOT NULL,
    execution_id     uuid     NOT NULL,
    waitpoint_id     uuid     NOT NULL,
    dedup            text     COLLATE "C" NOT NULL,
    signal_id        uuid     NOT NULL,
    number           integer  NOT NULL,
    suspension       integer  NOT NULL,
    waitpoint_key    text     NOT NULL,
    signal_name      text     NOT NULL,
    signal_category  text     NOT NULL,
    source_type      text     NOT NULL,
    source_identity  text     NOT NULL,
    correlation_id   text,
    payload          bytea,
    payload_encoding text,
    effect           text     NOT NULL,
    accepted_at_ms   bigint   NOT NULL,
    PRIMARY KEY (partition_key, execution_id, waitpoint_id, dedup)
);

CREATE INDEX ff_signal_number ON ff_signal (partition_key, execution_id, number);

CREATE INDEX ff_signal_suspension ON ff_signal (partition_key, execution_id, suspension, number);

CREATE TABLE ff_signal_count (
    partition_key smallint NOT NULL,
    execution_id  uuid     NOT NULL,
    signal_count  integer  NOT NULL,
    PRIMARY KEY (partition_key, execution_id)
);

-- The keys of waitpoint tokens. Their secrets are the hosts' configuration.
CREATE TABLE ff_waitpoint_key (
    kid               text    COLLATE "C" NOT NULL PRIMARY KEY,
    active            boolean NOT NULL,
    verifies_until_ms bigint,
    secret_check      text    NOT NULL,
    created_at_ms     bigint  NOT NULL
);

CREATE VIEW ff_signal_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       execution_id::text AS execution_id, details->>'signal_id' AS signal_id,
       details->>'waitpoint_id' AS waitpoint_id, details->>'source_identity' AS source_identity,
       at_ms AS delivered_at_ms, namespace, NULL::text AS instance_tag
FROM ff_event
WHERE event_type = 'signal_delivered';

-- A suspension gives its lease back.
CREATE OR REPLACE VIEW ff_lease_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       execution_id::text AS execution_id, NULL::text AS lease_id,
       CASE event_type WHEN 'claimed' THEN 'acquired' WHEN 'lease_expired' THEN 'expired'
            WHEN 'completed' THEN 'released' WHEN 'failed' THEN 'released'
            WHEN 'retry_scheduled' THEN 'released' WHEN 'delayed' THEN 'released'
            WHEN 'suspended' THEN 'released' ELSE 'revoked' END AS event_type,
       at_ms AS occurred_at_ms, namespace, NULL::text AS instance_tag
FROM ff_event
WHERE event_type = 'claimed' OR lease_ended;
