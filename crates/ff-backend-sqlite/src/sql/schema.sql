-- FlowFabric on SQLite. Everything sits at partition 0; `home_partition` keeps the number that an
-- execution's wire form carries. State words are spelled in ff_core::rows::spelling.

CREATE TABLE ff_meta (
    name  TEXT NOT NULL PRIMARY KEY,
    value ANY NOT NULL
) WITHOUT ROWID;

CREATE TABLE ff_exec_core (
    partition_key         INTEGER NOT NULL DEFAULT 0,
    execution_id          BLOB    NOT NULL,
    home_partition        INTEGER NOT NULL DEFAULT 0,
    flow_id               BLOB,
    namespace             TEXT    NOT NULL DEFAULT '',
    lane_id               TEXT    NOT NULL,
    execution_kind        TEXT    NOT NULL DEFAULT '',
    payload               BLOB,
    payload_apart         INTEGER NOT NULL DEFAULT 0,
    payload_encoding      TEXT,
    creator_identity      TEXT    NOT NULL DEFAULT '',
    idempotency_key       TEXT,
    policy                TEXT,
    required_capabilities TEXT    NOT NULL DEFAULT '',
    created_at_ms         INTEGER NOT NULL DEFAULT 0,
    priority              INTEGER NOT NULL DEFAULT 0,
    tags                  TEXT    NOT NULL DEFAULT '{}',
    attempt_index         INTEGER NOT NULL DEFAULT 0,
    lifecycle_phase       TEXT    NOT NULL DEFAULT 'submitted',
    ownership_state       TEXT    NOT NULL DEFAULT 'unowned',
    eligibility_state     TEXT    NOT NULL DEFAULT 'eligible_now',
    public_state          TEXT    NOT NULL DEFAULT 'waiting',
    attempt_state         TEXT    NOT NULL DEFAULT 'pending_first_attempt',
    blocking_reason       TEXT    NOT NULL DEFAULT 'none',
    not_before_ms         INTEGER,
    deadline_at_ms        INTEGER,
    started_at_ms         INTEGER,
    terminal_at_ms        INTEGER,
    result                BLOB,
    result_apart          INTEGER NOT NULL DEFAULT 0,
    failure_reason        TEXT,
    failure_category      TEXT,
    cancellation_reason   TEXT,
    cancelled_by          TEXT,
    retry_count           INTEGER NOT NULL DEFAULT 0,
    reclaim_count         INTEGER NOT NULL DEFAULT 0,
    holds_key             INTEGER NOT NULL DEFAULT 0,
    lease_epoch           INTEGER NOT NULL DEFAULT 0,
    version               INTEGER NOT NULL DEFAULT 0,
    last_event            INTEGER NOT NULL DEFAULT 0,
    raw_fields            TEXT    NOT NULL DEFAULT '{}',
    PRIMARY KEY (execution_id, partition_key)
);

-- Serves claims in their exact order. Its predicate is what `ExecutionRow::is_claimable` says, its
-- rank what `ExecutionRow::rank` says.
CREATE INDEX ff_exec_claim ON ff_exec_core (
    lane_id, namespace, required_capabilities, (created_at_ms - priority * 600000), execution_id
) WHERE eligibility_state = 'eligible_now' AND lifecycle_phase IN ('submitted', 'runnable');

CREATE INDEX ff_exec_created ON ff_exec_core (created_at_ms, execution_id);

CREATE INDEX ff_exec_flow ON ff_exec_core (flow_id) WHERE flow_id IS NOT NULL;

-- Executions that no event has told of yet, because they were put here with SQL.
CREATE INDEX ff_exec_unannounced ON ff_exec_core (execution_id) WHERE version = 0;

-- Payloads and results that are too large to be carried along with their row.
CREATE TABLE ff_blob (
    execution_id BLOB NOT NULL,
    part         TEXT NOT NULL,
    bytes        BLOB NOT NULL,
    PRIMARY KEY (execution_id, part)
);

CREATE TABLE ff_attempt (
    partition_key       INTEGER NOT NULL DEFAULT 0,
    execution_id        BLOB    NOT NULL,
    attempt_index       INTEGER NOT NULL,
    attempt_type        TEXT    NOT NULL DEFAULT 'initial',
    lease_epoch         INTEGER NOT NULL DEFAULT 0,
    worker_id           TEXT,
    worker_instance_id  TEXT,
    lease_expires_at_ms INTEGER,
    started_at_ms       INTEGER,
    terminal_at_ms      INTEGER,
    outcome             TEXT,
    failure_reason      TEXT,
    failure_category    TEXT,
    retry_at_ms         INTEGER,
    progress_pct        INTEGER,
    progress_message    TEXT,
    PRIMARY KEY (execution_id, attempt_index, partition_key)
) WITHOUT ROWID;

CREATE TABLE ff_flow_core (
    partition_key     INTEGER NOT NULL DEFAULT 0,
    flow_id           BLOB    NOT NULL,
    namespace         TEXT    NOT NULL DEFAULT '',
    graph_revision    INTEGER NOT NULL DEFAULT 0,
    public_flow_state TEXT    NOT NULL DEFAULT 'open',
    created_at_ms     INTEGER NOT NULL DEFAULT 0,
    terminal_at_ms    INTEGER,
    raw_fields        TEXT    NOT NULL DEFAULT '{}',
    PRIMARY KEY (partition_key, flow_id)
) WITHOUT ROWID;

CREATE TABLE ff_edge (
    partition_key  INTEGER NOT NULL DEFAULT 0,
    flow_id        BLOB    NOT NULL,
    edge_id        BLOB    NOT NULL,
    upstream_eid   BLOB    NOT NULL,
    downstream_eid BLOB    NOT NULL,
    policy         TEXT    NOT NULL DEFAULT '{}',
    policy_version INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, flow_id, edge_id)
) WITHOUT ROWID;

CREATE INDEX ff_edge_downstream ON ff_edge (downstream_eid, flow_id);

CREATE TABLE ff_edge_group (
    partition_key  INTEGER NOT NULL DEFAULT 0,
    flow_id        BLOB    NOT NULL,
    downstream_eid BLOB    NOT NULL,
    policy         TEXT    NOT NULL DEFAULT '{}',
    k_target       INTEGER NOT NULL DEFAULT 0,
    success_count  INTEGER NOT NULL DEFAULT 0,
    fail_count     INTEGER NOT NULL DEFAULT 0,
    skip_count     INTEGER NOT NULL DEFAULT 0,
    running_count  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, flow_id, downstream_eid)
) WITHOUT ROWID;

CREATE INDEX ff_edge_group_downstream ON ff_edge_group (downstream_eid);

CREATE TABLE ff_cancel_backlog (
    partition_key       INTEGER NOT NULL DEFAULT 0,
    flow_id             BLOB    NOT NULL,
    requested_at_ms     INTEGER NOT NULL DEFAULT 0,
    requester           TEXT    NOT NULL DEFAULT '',
    reason              TEXT    NOT NULL DEFAULT '',
    cancellation_policy TEXT    NOT NULL DEFAULT '',
    status              TEXT    NOT NULL DEFAULT 'pending',
    PRIMARY KEY (partition_key, flow_id)
) WITHOUT ROWID;

CREATE TABLE ff_cancel_backlog_member (
    partition_key INTEGER NOT NULL DEFAULT 0,
    flow_id       BLOB    NOT NULL,
    execution_id  TEXT    NOT NULL,
    PRIMARY KEY (partition_key, flow_id, execution_id)
) WITHOUT ROWID;

CREATE TABLE ff_lane (
    lane_id       TEXT NOT NULL PRIMARY KEY,
    lane_state    TEXT NOT NULL DEFAULT 'active',
    paused_reason TEXT,
    paused_by     TEXT,
    paused_at_ms  INTEGER
) WITHOUT ROWID;

CREATE TABLE ff_timer (
    due_at_ms INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    subject   BLOB    NOT NULL,
    members   BLOB    NOT NULL,
    PRIMARY KEY (due_at_ms, kind, subject)
) WITHOUT ROWID;

CREATE TABLE ff_idempotency (
    namespace       TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    execution_id    BLOB    NOT NULL,
    home_partition  INTEGER NOT NULL DEFAULT 0,
    fingerprint     BLOB    NOT NULL,
    expires_at_ms   INTEGER,
    PRIMARY KEY (namespace, idempotency_key)
) WITHOUT ROWID;

-- The log. `seq` is dense; `previous` chains the events of one execution, newest first from
-- `ff_exec_core.last_event`, so that histories need no index.
CREATE TABLE ff_event (
    seq            INTEGER PRIMARY KEY,
    at_ms          INTEGER NOT NULL,
    event_type     TEXT    NOT NULL,
    namespace      TEXT    NOT NULL DEFAULT '',
    lane_id        TEXT,
    execution_kind TEXT,
    execution_id   BLOB,
    home_partition INTEGER,
    flow_id        BLOB,
    from_state     TEXT,
    to_state       TEXT,
    version        INTEGER NOT NULL DEFAULT 0,
    attempt_index  INTEGER NOT NULL DEFAULT 0,
    lease_epoch    INTEGER NOT NULL DEFAULT 0,
    lease_ended    INTEGER NOT NULL DEFAULT 0,
    by_whom        TEXT,
    details        TEXT,
    previous       INTEGER NOT NULL DEFAULT 0
);

-- The same log with its ids as text, for the views below.
CREATE VIEW ff_event_text AS
SELECT seq AS event_id, 0 AS partition_key, at_ms, event_type, namespace, lease_ended, details,
       lease_epoch, execution_id AS execution_blob, flow_id AS flow_blob,
       lower(substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-' || substr(h, 13, 4) || '-' ||
             substr(h, 17, 4) || '-' || substr(h, 21, 12)) AS subject_id
FROM (SELECT *, hex(coalesce(execution_id, flow_id)) AS h FROM ff_event);

CREATE VIEW ff_operator_event AS
SELECT event_id, partition_key, subject_id AS execution_id, event_type, details,
       at_ms AS occurred_at_ms, namespace, NULL AS instance_tag
FROM ff_event_text
WHERE event_type IN ('priority_changed', 'replayed', 'flow_cancel_requested');

CREATE VIEW ff_lease_event AS
SELECT event_id, partition_key, subject_id AS execution_id, NULL AS lease_id,
       CASE event_type WHEN 'claimed' THEN 'acquired' WHEN 'lease_expired' THEN 'expired'
            WHEN 'completed' THEN 'released' WHEN 'failed' THEN 'released'
            WHEN 'retry_scheduled' THEN 'released' WHEN 'delayed' THEN 'released'
            ELSE 'revoked' END AS event_type,
       at_ms AS occurred_at_ms, namespace, NULL AS instance_tag
FROM ff_event_text
WHERE event_type = 'claimed' OR lease_ended = 1;

CREATE VIEW ff_completion_event AS
SELECT event_id, partition_key, subject_id AS execution_id, flow_blob AS flow_id,
       event_type AS outcome, at_ms AS occurred_at_ms, namespace, NULL AS instance_tag
FROM ff_event_text
WHERE event_type IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
  AND execution_blob IS NOT NULL;
