-- Durable steps, streams and the registry of workers.

CREATE TABLE ff_step (
    partition_key  smallint NOT NULL,
    execution_id   uuid     NOT NULL,
    step_name      text     COLLATE "C" NOT NULL,
    sequence       integer  NOT NULL,
    result         bytea    NOT NULL,
    attempt_index  integer  NOT NULL,
    recorded_at_ms bigint   NOT NULL,
    due_at_ms      bigint,
    PRIMARY KEY (partition_key, execution_id, step_name)
);

CREATE TABLE ff_stream (
    partition_key    smallint NOT NULL,
    execution_id     uuid     NOT NULL,
    attempt_index    integer  NOT NULL,
    first_sequence   bigint   NOT NULL,
    next_sequence    bigint   NOT NULL,
    early_until      bigint   NOT NULL,
    bytes            bigint   NOT NULL,
    created_at_ms    bigint   NOT NULL,
    last_frame_at_ms bigint   NOT NULL,
    append_id        uuid,
    append_first     bigint   NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
) WITH (fillfactor = 50);

CREATE TABLE ff_stream_frame (
    partition_key  smallint NOT NULL,
    execution_id   uuid     NOT NULL,
    attempt_index  integer  NOT NULL,
    sequence       bigint   NOT NULL,
    frame_type     text     NOT NULL,
    frame_mode     text     NOT NULL,
    payload        bytea    NOT NULL,
    encoding       text,
    correlation_id text,
    at_ms          bigint   NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index, sequence)
);

CREATE TABLE ff_stream_summary (
    partition_key       smallint NOT NULL,
    execution_id        uuid     NOT NULL,
    attempt_index       integer  NOT NULL,
    document            text     NOT NULL,
    version             bigint   NOT NULL,
    first_applied_at_ms bigint   NOT NULL,
    last_updated_at_ms  bigint   NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
);

CREATE TABLE ff_worker (
    namespace            text     COLLATE "C" NOT NULL,
    worker_instance_id   text     COLLATE "C" NOT NULL,
    worker_id            text     NOT NULL,
    lanes                text     NOT NULL,
    capabilities         text     NOT NULL,
    liveness_ttl_ms      bigint   NOT NULL,
    registered_at_ms     bigint   NOT NULL,
    last_heartbeat_at_ms bigint   NOT NULL,
    expires_at_ms        bigint   NOT NULL,
    watch_id             uuid     NOT NULL,
    PRIMARY KEY (namespace, worker_instance_id)
);

CREATE INDEX ff_worker_watch ON ff_worker (watch_id);
