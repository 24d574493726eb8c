-- Suspensions, waitpoints and signals. All but the keys hang on an execution and are forgotten with
-- it.

CREATE TABLE ff_suspension (
    partition_key    INTEGER NOT NULL,
    execution_id     BLOB    NOT NULL,
    suspension_id    BLOB    NOT NULL,
    number           INTEGER NOT NULL,
    generation       INTEGER NOT NULL,
    attempt_index    INTEGER NOT NULL,
    lease_epoch      INTEGER NOT NULL,
    reason           TEXT    NOT NULL,
    condition        TEXT    NOT NULL,
    progress         TEXT    NOT NULL,
    waitpoints       TEXT    NOT NULL,
    suspended_by     TEXT    NOT NULL,
    suspended_at_ms  INTEGER NOT NULL,
    timeout_at_ms    INTEGER,
    timeout_behavior TEXT    NOT NULL,
    resume_delay_ms  INTEGER NOT NULL,
    continuation     TEXT,
    idempotency_key  TEXT,
    at_once          INTEGER NOT NULL,
    closed_at_ms     INTEGER,
    end_reason       TEXT,
    PRIMARY KEY (partition_key, execution_id)
) WITHOUT ROWID;

CREATE TABLE ff_suspension_outcome (
    partition_key   INTEGER NOT NULL,
    execution_id    BLOB    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    suspension_id   BLOB    NOT NULL,
    number          INTEGER NOT NULL,
    generation      INTEGER NOT NULL,
    closed_at_ms    INTEGER NOT NULL,
    end_reason      TEXT    NOT NULL,
    PRIMARY KEY (partition_key, execution_id, idempotency_key)
) WITHOUT ROWID;

CREATE TABLE ff_waitpoint (
    partition_key       INTEGER NOT NULL,
    execution_id        BLOB    NOT NULL,
    waitpoint_id        BLOB    NOT NULL,
    waitpoint_key       TEXT    NOT NULL,
    namespace           TEXT    NOT NULL,
    open                INTEGER NOT NULL,
    suspension          INTEGER NOT NULL,
    generation          INTEGER NOT NULL,
    signal_names        TEXT    NOT NULL,
    signal_count        INTEGER NOT NULL,
    created_at_ms       INTEGER NOT NULL,
    expires_at_ms       INTEGER,
    activated_at_ms     INTEGER,
    closed_at_ms        INTEGER,
    end_reason          TEXT,
    token_kid           TEXT,
    token_expires_at_ms INTEGER,
    nonce               BLOB    NOT NULL,
    PRIMARY KEY (partition_key, execution_id, waitpoint_id)
) WITHOUT ROWID;

CREATE INDEX ff_waitpoint_open ON ff_waitpoint (partition_key, execution_id, open, waitpoint_id);

CREATE INDEX ff_waitpoint_namespace ON ff_waitpoint
    (namespace, open, created_at_ms, waitpoint_id, partition_key, execution_id);

CREATE TABLE ff_signal (
    partition_key    INTEGER NOT NULL,
    execution_id     BLOB    NOT NULL,
    waitpoint_id     BLOB    NOT NULL,
    dedup            TEXT    NOT NULL,
    signal_id        BLOB    NOT NULL,
    number           INTEGER NOT NULL,
    suspension       INTEGER NOT NULL,
    waitpoint_key    TEXT    NOT NULL,
    signal_name      TEXT    NOT NULL,
    signal_category  TEXT    NOT NULL,
    source_type      TEXT    NOT NULL,
    source_identity  TEXT    NOT NULL,
    correlation_id   TEXT,
    payload          BLOB,
    payload_encoding TEXT,
    effect           TEXT    NOT NULL,
    accepted_at_ms   INTEGER NOT NULL,
    PRIMARY KEY (partition_key, execution_id, waitpoint_id, dedup)
) WITHOUT ROWID;

CREATE INDEX ff_signal_number ON ff_signal (partition_key, execution_id, number);

CREATE INDEX ff_signal_suspension ON ff_signal (partition_key, execution_id, suspension, number);

CREATE TABLE ff_signal_count (
    partition_key INTEGER NOT NULL,
    execution_id  BLOB    NOT NULL,
    signal_count  INTEGER NOT NULL,
    PRIMARY KEY (partition_key, execution_id)
) WITHOUT ROWID;

-- The keys of waitpoint tokens. Their secrets are the hosts' configuration.
CREATE TABLE ff_waitpoint_key (
    kid               TEXT    NOT NULL PRIMARY KEY,
    active            INTEGER NOT NULL,
    verifies_until_ms INTEGER,
    secret_check      TEXT    NOT NULL,
    created_at_ms     INTEGER NOT NULL
) WITHOUT ROWID;

CREATE VIEW ff_signal_event AS
SELECT event_id, partition_key, subject_id AS execution_id,
       json_extract(details, '$.signal_id') AS signal_id,
       json_extract(details, '$.waitpoint_id') AS waitpoint_id,
       json_extract(details, '$.source_identity') AS source_identity,
       at_ms AS delivered_at_ms, namespace, NULL AS instance_tag
FROM ff_event_text
WHERE event_type = 'signal_delivered';

-- A suspension gives its lease back.
DROP VIEW ff_lease_event;

CREATE VIEW ff_lease_event AS
SELECT event_id, partition_key, subject_id AS execution_id, NULL AS lease_id,
       CASE event_type WHEN 'claimed' THEN 'acquired' WHEN 'lease_expired' THEN 'expired'
            WHEN 'completed' THEN 'released' WHEN 'failed' THEN 'released'
            WHEN 'retry_scheduled' THEN 'released' WHEN 'delayed' THEN 'released'
            WHEN 'suspended' THEN 'released' ELSE 'revoked' END AS event_type,
       at_ms AS occurred_at_ms, namespace, NULL AS instance_tag
FROM ff_event_text
WHERE event_type = 'claimed' OR lease_ended = 1;
