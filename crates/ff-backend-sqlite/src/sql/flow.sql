-- Graphs. The header counts how its members have ended; a group counts how a member's parents have.

ALTER TABLE ff_flow_core ADD COLUMN flow_kind       TEXT    NOT NULL DEFAULT '';
ALTER TABLE ff_flow_core ADD COLUMN node_count      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_flow_core ADD COLUMN edge_count      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_flow_core ADD COLUMN completed_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_flow_core ADD COLUMN failed_count    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_flow_core ADD COLUMN cancelled_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_flow_core ADD COLUMN expired_count   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_flow_core ADD COLUMN skipped_count   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_flow_core ADD COLUMN spared_count    INTEGER NOT NULL DEFAULT 0;

CREATE INDEX ff_flow_listed ON ff_flow_core (created_at_ms, flow_id);

DROP INDEX ff_exec_flow;
CREATE INDEX ff_exec_flow ON ff_exec_core (flow_id, execution_id) WHERE flow_id IS NOT NULL;

ALTER TABLE ff_edge ADD COLUMN edge_kind       TEXT    NOT NULL DEFAULT 'depends';
ALTER TABLE ff_edge ADD COLUMN counted_version INTEGER NOT NULL DEFAULT 0;

DROP INDEX ff_edge_downstream;
CREATE INDEX ff_edge_upstream ON ff_edge (partition_key, upstream_eid, flow_id, edge_id);
CREATE INDEX ff_edge_downstream ON ff_edge (partition_key, downstream_eid, flow_id, edge_id);

ALTER TABLE ff_edge_group ADD COLUMN parent_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ff_edge_group ADD COLUMN group_state  TEXT    NOT NULL DEFAULT 'pending';
ALTER TABLE ff_edge_group ADD COLUMN reset_at_ms  INTEGER;

DROP INDEX ff_edge_group_downstream;

CREATE TABLE ff_children (
    partition_key INTEGER NOT NULL,
    execution_id  BLOB    NOT NULL,
    added_count   INTEGER NOT NULL,
    ended_count   INTEGER NOT NULL,
    waiting       INTEGER NOT NULL,
    PRIMARY KEY (partition_key, execution_id)
) WITHOUT ROWID;

CREATE TABLE ff_cascade (
    subject_id    BLOB    NOT NULL,
    version       INTEGER NOT NULL,
    cascade_kind  TEXT    NOT NULL,
    partition_key INTEGER NOT NULL,
    flow_id       BLOB    NOT NULL,
    outcome       TEXT    NOT NULL,
    at_ms         INTEGER NOT NULL,
    counted       INTEGER NOT NULL,
    after_id      BLOB,
    policy        TEXT,
    reason        TEXT,
    PRIMARY KEY (subject_id, version, cascade_kind)
) WITHOUT ROWID;

CREATE INDEX ff_cascade_flow
    ON ff_cascade (partition_key, flow_id, subject_id, version, cascade_kind);
