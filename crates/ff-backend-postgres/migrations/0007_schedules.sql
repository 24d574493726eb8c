-- Schedules, bulk operations and the executions that refused one.

CREATE TABLE ff_schedule (
    schedule_id       uuid     NOT NULL PRIMARY KEY,
    namespace         text     COLLATE "C" NOT NULL,
    schedule_name     text     COLLATE "C" NOT NULL,
    definition        text     NOT NULL,
    payload           bytea    NOT NULL,
    run_partition     smallint NOT NULL,
    generation        bigint   NOT NULL,
    created_at_ms     bigint   NOT NULL,
    updated_at_ms     bigint   NOT NULL,
    paused_at_ms      bigint,
    paused_reason     text,
    paused_by         text,
    looked_until_ms   bigint   NOT NULL,
    next_start_at_ms  bigint,
    last_due_at_ms    bigint,
    last_execution_id text,
    runs              text     NOT NULL,
    started_count     bigint   NOT NULL,
    overlapped_count  bigint   NOT NULL
) WITH (fillfactor = 70);

CREATE UNIQUE INDEX ff_schedule_name ON ff_schedule (namespace, schedule_name);

CREATE TABLE ff_bulk (
    bulk_id              uuid   NOT NULL PRIMARY KEY,
    rank                 bigint NOT NULL,
    namespace            text,
    definition           text   NOT NULL,
    state                text   NOT NULL,
    created_at_ms        bigint NOT NULL,
    finished_at_ms       bigint,
    looked_created_at_ms bigint,
    looked_execution_id  uuid,
    matched_count        bigint NOT NULL,
    changed_count        bigint NOT NULL,
    skipped_count        bigint NOT NULL,
    failed_count         bigint NOT NULL
) WITH (fillfactor = 70);

CREATE INDEX ff_bulk_newest ON ff_bulk (rank, bulk_id);

CREATE TABLE ff_bulk_failure (
    bulk_id       uuid     NOT NULL,
    number        bigint   NOT NULL,
    partition_key smallint NOT NULL,
    execution_id  uuid     NOT NULL,
    code          text     NOT NULL,
    reason        text     NOT NULL,
    PRIMARY KEY (bulk_id, number)
);
