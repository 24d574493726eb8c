-- Graphs. The header counts how its members have ended; a group counts how a member's parents have.

ALTER TABLE ff_flow_core
    ADD COLUMN flow_kind       text   NOT NULL DEFAULT '',
    ADD COLUMN node_count      bigint NOT NULL DEFAULT 0,
    ADD COLUMN edge_count      bigint NOT NULL DEFAULT 0,
    ADD COLUMN completed_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN failed_count    bigint NOT NULL DEFAULT 0,
    ADD COLUMN cancelled_count bigint NOT NULL DEFAULT 0,
    ADD COLUMN expired_count   bigint NOT NULL DEFAULT 0,
    ADD COLUMN skipped_count   bigint NOT NULL DEFAULT 0,
    ADD COLUMN spared_count    bigint NOT NULL DEFAULT 0;

CREATE INDEX ff_flow_listed ON ff_flow_core (created_at_ms, flow_id);

-- Counters move with every ending, so there is room for the next version beside each row.
ALTER TABLE ff_flow_core SET (fillfactor = 70);
ALTER TABLE ff_edge_group SET (fillfactor = 70);

DROP INDEX ff_exec_flow;
CREATE INDEX ff_exec_flow ON ff_exec_core (flow_id, execution_id) WHERE flow_id IS NOT NULL;

ALTER TABLE ff_edge
    ADD COLUMN edge_kind       text   NOT NULL DEFAULT 'depends',
    ADD COLUMN counted_version bigint NOT NULL DEFAULT 0;

DROP INDEX ff_edge_downstream;
CREATE INDEX ff_edge_upstream ON ff_edge (partition_key, upstream_eid, flow_id, edge_id);
CREATE INDEX ff_edge_downstream ON ff_edge (partition_key, downstream_eid, flow_id, edge_id);

ALTER TABLE ff_edge_group
    ADD COLUMN parent_count integer NOT NULL DEFAULT 0,
    ADD COLUMN group_state  text    NOT NULL DEFAULT 'pending',
    ADD COLUMN reset_at_ms  bigint;

DROP INDEX ff_edge_group_downstream;

CREATE TABLE ff_children (
    partition_key smallint NOT NULL,
    execution_id  uuid     NOT NULL,
    added_count   bigint   NOT NULL,
    ended_count   bigint   NOT NULL,
    waiting       boolean  NOT NULL,
    PRIMARY KEY (partition_key, execution_id)
);

CREATE TABLE ff_cascade (
    subject_id    uuid     NOT NULL,
    version       bigint   NOT NULL,
    cascade_kind  text COLLATE "C" NOT NULL,
    partition_key smallint NOT NULL,
    flow_id       uuid     NOT NULL,
    outcome       text     NOT NULL,
    at_ms         bigint   NOT NULL,
    counted       boolean  NOT NULL,
    after_id      uuid,
    policy        text,
    reason        text,
    PRIMARY KEY (subject_id, version, cascade_kind)
);

CREATE INDEX ff_cascade_flow
    ON ff_cascade (partition_key, flow_id, subject_id, version, cascade_kind);
