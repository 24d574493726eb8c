-- Budgets and quotas: what they say, where they stand, who waits for them and who has used what.

-- Claims must look at limits. The row with the empty name says it for every lane.
ALTER TABLE ff_lane ADD COLUMN limited INTEGER NOT NULL DEFAULT 0;
INSERT INTO ff_lane (lane_id) VALUES ('');

CREATE TABLE ff_limit (
    limit_uid     BLOB    NOT NULL PRIMARY KEY,
    kind          TEXT    NOT NULL,
    namespace     TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    lane_id       TEXT,
    rule          TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX ff_limit_lane ON ff_limit (lane_id, limit_uid) WHERE lane_id IS NOT NULL;
CREATE UNIQUE INDEX ff_limit_name ON ff_limit (kind, namespace, name);

CREATE TABLE ff_limit_state (
    state_uid  BLOB    NOT NULL PRIMARY KEY,
    limit_uid  BLOB    NOT NULL,
    key_value  TEXT    NOT NULL,
    waiting    INTEGER NOT NULL,
    is_waiting INTEGER NOT NULL,
    look_at_ms INTEGER,
    standing   TEXT    NOT NULL
) WITHOUT ROWID;

CREATE INDEX ff_limit_state_limit ON ff_limit_state (limit_uid, is_waiting, state_uid);

CREATE TABLE ff_limit_wait (
    state_uid     BLOB    NOT NULL,
    rank          INTEGER NOT NULL,
    partition_key INTEGER NOT NULL,
    execution_id  BLOB    NOT NULL,
    ticket        INTEGER NOT NULL,
    since_ms      INTEGER NOT NULL,
    PRIMARY KEY (state_uid, rank, partition_key, execution_id, ticket)
) WITHOUT ROWID;

CREATE TABLE ff_limit_usage (
    partition_key INTEGER NOT NULL,
    execution_id  BLOB    NOT NULL,
    limit_uid     BLOB    NOT NULL,
    dedup_key     TEXT    NOT NULL,
    share         TEXT    NOT NULL,
    PRIMARY KEY (partition_key, execution_id, limit_uid, dedup_key)
) WITHOUT ROWID;
