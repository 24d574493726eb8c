-- Budgets and quotas: what they say, where they stand, who waits for them and who has used what.

-- Claims must look at limits. The row with the empty name says it for every lane.
ALTER TABLE ff_lane ADD COLUMN limited boolean NOT NULL DEFAULT false;
INSERT INTO ff_lane (lane_id) VALUES ('') ON CONFLICT DO NOTHING;

CREATE TABLE ff_limit (
    limit_uid     uuid   NOT NULL PRIMARY KEY,
    kind          text   COLLATE "C" NOT NULL,
    namespace     text   COLLATE "C" NOT NULL,
    name          text   COLLATE "C" NOT NULL,
    lane_id       text   COLLATE "C",
    rule          text   NOT NULL,
    created_at_ms bigint NOT NULL
);

CREATE INDEX ff_limit_lane ON ff_limit (lane_id, limit_uid) WHERE lane_id IS NOT NULL;
CREATE UNIQUE INDEX ff_limit_name ON ff_limit (kind, namespace, name);

-- Every claim and every end of a lease under a limit updates its row.
CREATE TABLE ff_limit_state (
    state_uid  uuid    NOT NULL PRIMARY KEY,
    limit_uid  uuid    NOT NULL,
    key_value  text    COLLATE "C" NOT NULL,
    waiting    bigint  NOT NULL,
    is_waiting boolean NOT NULL,
    look_at_ms bigint,
    standing   text    NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX ff_limit_state_limit ON ff_limit_state (limit_uid, is_waiting, state_uid);

CREATE TABLE ff_limit_wait (
    state_uid     uuid     NOT NULL,
    rank          bigint   NOT NULL,
    partition_key smallint NOT NULL,
    execution_id  uuid     NOT NULL,
    ticket        bigint   NOT NULL,
    since_ms      bigint   NOT NULL,
    PRIMARY KEY (state_uid, rank, partition_key, execution_id, ticket)
);

CREATE TABLE ff_limit_usage (
    partition_key smallint NOT NULL,
    execution_id  uuid     NOT NULL,
    limit_uid     uuid     NOT NULL,
    dedup_key     text     COLLATE "C" NOT NULL,
    share         text     NOT NULL,
    PRIMARY KEY (partition_key, execution_id, limit_uid, dedup_key)
);
