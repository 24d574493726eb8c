-- Schedules, bulk operations and the executions that refused one.

CREATE TABLE ff_schedule (
    schedule_id       BLOB    NOT NULL PRIMARY KEY,
    namespace         TEXT    NOT NULL,
    schedule_name     TEXT    NOT NULL,
    definition        TEXT    NOT NULL,
    payload           BLOB    NOT NULL,
    run_partition     INTEGER NOT NULL,
    generation        INTEGER NOT NULL,
    created_at_ms     INTEGER NOT NULL,
    updated_at_ms     INTEGER NOT NULL,
    paused_at_ms      INTEGER,
    paused_reason     TEXT,
    paused_by         TEXT,
    looked_until_ms   INTEGER NOT NULL,
    next_start_at_ms  INTEGER,
    last_due_at_ms    INTEGER,
    last_execution_id TEXT,
    runs              TEXT    NOT NULL,
    started_count     INTEGER NOT NULL,
    overlapped_count  INTEGER NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX ff_schedule_name ON ff_schedule (namespace, schedule_name);

CREATE TABLE ff_bulk (
    bulk_id              BLOB    NOT NULL PRIMARY KEY,
    rank                 INTEGER NOT NULL,
    namespace            TEXT,
    definition           TEXT    NOT NULL,
    state                TEXT    NOT NULL,
    created_at_ms        INTEGER NOT NULL,
    finished_at_ms       INTEGER,
    looked_created_at_ms INTEGER,
    looked_execution_id  BLOB,
    matched_count        INTEGER NOT NULL,
    changed_count        INTEGER NOT NULL,
    skipped_count        INTEGER NOT NULL,
    failed_count         INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX ff_bulk_newest ON ff_bulk (rank, bulk_id);

CREATE TABLE ff_bulk_failure (
    bulk_id       BLOB    NOT NULL,
    number        INTEGER NOT NULL,
    partition_key INTEGER NOT NULL,
    execution_id  BLOB    NOT NULL,
    code          TEXT    NOT NULL,
    reason        TEXT    NOT NULL,
    PRIMARY KEY (bulk_id, number)
) WITHOUT ROWID;
