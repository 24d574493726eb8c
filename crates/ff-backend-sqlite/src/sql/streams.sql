-- Durable steps, streams and the registry of workers.

CREATE TABLE ff_step (
    partition_key  INTEGER NOT NULL,
    execution_id   BLOB    NOT NULL,
    step_name      TEXT    NOT NULL,
    sequence       INTEGER NOT NULL,
    result         BLOB    NOT NULL,
    attempt_index  INTEGER NOT NULL,
    recorded_at_ms INTEGER NOT NULL,
    due_at_ms      INTEGER,
    PRIMARY KEY (partition_key, execution_id, step_name)
) WITHOUT ROWID;

CREATE TABLE ff_stream (
    partition_key    INTEGER NOT NULL,
    execution_id     BLOB    NOT NULL,
    attempt_index    INTEGER NOT NULL,
    first_sequence   INTEGER NOT NULL,
    next_sequence    INTEGER NOT NULL,
    early_until      INTEGER NOT NULL,
    bytes            INTEGER NOT NULL,
    created_at_ms    INTEGER NOT NULL,
    last_frame_at_ms INTEGER NOT NULL,
    append_id        BLOB,
    append_first     INTEGER NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
) WITHOUT ROWID;

CREATE TABLE ff_stream_frame (
    partition_key  INTEGER NOT NULL,
    execution_id   BLOB    NOT NULL,
    attempt_index  INTEGER NOT NULL,
    sequence       INTEGER NOT NULL,
    frame_type     TEXT    NOT NULL,
    frame_mode     TEXT    NOT NULL,
    payload        BLOB    NOT NULL,
    encoding       TEXT,
    correlation_id TEXT,
    at_ms          INTEGER NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index, sequence)
) WITHOUT ROWID;

CREATE TABLE ff_stream_summary (
    partition_key       INTEGER NOT NULL,
    execution_id        BLOB    NOT NULL,
    attempt_index       INTEGER NOT NULL,
    document            TEXT    NOT NULL,
    version             INTEGER NOT NULL,
    first_applied_at_ms INTEGER NOT NULL,
    last_updated_at_ms  INTEGER NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
) WITHOUT ROWID;

CREATE TABLE ff_worker (
    namespace            TEXT    NOT NULL,
    worker_instance_id   TEXT    NOT NULL,
    worker_id            TEXT    NOT NULL,
    lanes                TEXT    NOT NULL,
    capabilities         TEXT    NOT NULL,
    liveness_ttl_ms      INTEGER NOT NULL,
    registered_at_ms     INTEGER NOT NULL,
    last_heartbeat_at_ms INTEGER NOT NULL,
    expires_at_ms        INTEGER NOT NULL,
    watch_id             BLOB    NOT NULL,
    PRIMARY KEY (namespace, worker_instance_id)
) WITHOUT ROWID;

CREATE INDEX ff_worker_watch ON ff_worker (watch_id);
