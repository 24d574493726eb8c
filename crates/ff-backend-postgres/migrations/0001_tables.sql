-- FlowFabric on PostgreSQL. Plain tables; `partition_key` leads the keys of what belongs to an
-- execution or a flow, so that a sharded Postgres can distribute by it. State words are spelled in
-- ff_core::rows::spelling. Words that are part of keys are compared byte by byte, whatever the
-- database's language is.

CREATE TABLE ff_meta (
    name  text NOT NULL PRIMARY KEY,
    value text NOT NULL
);

INSERT INTO ff_meta (name, value) VALUES ('history_id', gen_random_uuid()::text);

-- A claim writes a new version of the row, its end another one: room for both on the page keeps the
-- end from touching any index.
CREATE TABLE ff_exec_core (
    partition_key         smallint NOT NULL,
    execution_id          uuid     NOT NULL,
    flow_id               uuid,
    namespace             text     COLLATE "C" NOT NULL DEFAULT '',
    lane_id               text     COLLATE "C" NOT NULL,
    execution_kind        text     NOT NULL DEFAULT '',
    payload               bytea,
    payload_encoding      text,
    creator_identity      text     NOT NULL DEFAULT '',
    idempotency_key       text,
    policy                text,
    required_capabilities text     COLLATE "C" NOT NULL DEFAULT '',
    created_at_ms         bigint   NOT NULL DEFAULT 0,
    priority              integer  NOT NULL DEFAULT 0,
    tags                  jsonb    NOT NULL DEFAULT '{}',
    attempt_index         integer  NOT NULL DEFAULT 0,
    lifecycle_phase       text     NOT NULL DEFAULT 'submitted',
    ownership_state       text     NOT NULL DEFAULT 'unowned',
    eligibility_state     text     NOT NULL DEFAULT 'eligible_now',
    public_state          text     NOT NULL DEFAULT 'waiting',
    attempt_state         text     NOT NULL DEFAULT 'pending_first_attempt',
    blocking_reason       text     NOT NULL DEFAULT 'none',
    not_before_ms         bigint,
    deadline_at_ms        bigint,
    started_at_ms         bigint   DEFAULT NULL,
    terminal_at_ms        bigint,
    result                bytea,
    failure_reason        text,
    failure_category      text,
    cancellation_reason   text,
    cancelled_by          text,
    retry_count           integer  NOT NULL DEFAULT 0,
    reclaim_count         integer  NOT NULL DEFAULT 0,
    holds_key             boolean  NOT NULL DEFAULT false,
    lease_epoch           bigint   NOT NULL DEFAULT 0,
    version               bigint   NOT NULL DEFAULT 0,
    raw_fields            jsonb    NOT NULL DEFAULT '{}',
    -- Whether the log tells of it. Rows that the engine did not write itself have no event yet.
    announced             boolean  NOT NULL DEFAULT false,
    PRIMARY KEY (partition_key, execution_id)
) WITH (fillfactor = 50);

ALTER TABLE ff_exec_core ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE ff_exec_core ALTER COLUMN result SET STORAGE EXTERNAL;

-- Serves claims in their exact order: its rank is what `ExecutionRow::rank` says. Of what makes an
-- execution claimable, only what a claim moves and the end does not is part of the index. Numbers
-- stand for lane, namespace and capabilities, which whoever reads must compare too.
CREATE INDEX ff_exec_claim ON ff_exec_core (
    hashtextextended(lane_id, 0),
    hashtextextended(required_capabilities, hashtextextended(namespace, 0)),
    (created_at_ms - priority::bigint * 600000), execution_id
) WHERE eligibility_state = 'eligible_now';

-- Lists are sorted by id within a millisecond; the index is smaller without the ids.
CREATE INDEX ff_exec_created ON ff_exec_core (created_at_ms);

CREATE INDEX ff_exec_flow ON ff_exec_core (partition_key, flow_id) WHERE flow_id IS NOT NULL;

CREATE INDEX ff_exec_unannounced ON ff_exec_core (execution_id) WHERE NOT announced;

CREATE TABLE ff_attempt (
    partition_key       smallint NOT NULL,
    execution_id        uuid     NOT NULL,
    attempt_index       integer  NOT NULL,
    attempt_type        text     NOT NULL DEFAULT 'initial',
    lease_epoch         bigint   NOT NULL DEFAULT 0,
    worker_id           text,
    worker_instance_id  text,
    lease_expires_at_ms bigint,
    started_at_ms       bigint,
    terminal_at_ms      bigint,
    outcome             text,
    failure_reason      text,
    failure_category    text,
    retry_at_ms         bigint,
    progress_pct        integer,
    progress_message    text,
    PRIMARY KEY (partition_key, execution_id, attempt_index)
) WITH (fillfactor = 50);

CREATE TABLE ff_flow_core (
    partition_key     smallint NOT NULL,
    flow_id           uuid     NOT NULL,
    namespace         text     NOT NULL DEFAULT '',
    graph_revision    bigint   NOT NULL DEFAULT 0,
    public_flow_state text     NOT NULL DEFAULT 'open',
    created_at_ms     bigint   NOT NULL DEFAULT 0,
    terminal_at_ms    bigint,
    raw_fields        jsonb    NOT NULL DEFAULT '{}',
    PRIMARY KEY (partition_key, flow_id)
);

CREATE TABLE ff_edge (
    partition_key  smallint NOT NULL,
    flow_id        uuid     NOT NULL,
    edge_id        uuid     NOT NULL,
    upstream_eid   uuid     NOT NULL,
    downstream_eid uuid     NOT NULL,
    policy         jsonb    NOT NULL DEFAULT '{}',
    policy_version integer  NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, flow_id, edge_id)
);

CREATE INDEX ff_edge_downstream ON ff_edge (partition_key, downstream_eid, flow_id);

CREATE TABLE ff_edge_group (
    partition_key  smallint NOT NULL,
    flow_id        uuid     NOT NULL,
    downstream_eid uuid     NOT NULL,
    policy         jsonb    NOT NULL DEFAULT '{}',
    k_target       integer  NOT NULL DEFAULT 0,
    success_count  integer  NOT NULL DEFAULT 0,
    fail_count     integer  NOT NULL DEFAULT 0,
    skip_count     integer  NOT NULL DEFAULT 0,
    running_count  integer  NOT NULL DEFAULT 0,
    PRIMARY KEY (partition_key, flow_id, downstream_eid)
);

CREATE INDEX ff_edge_group_downstream ON ff_edge_group (partition_key, downstream_eid);

CREATE TABLE ff_cancel_backlog (
    partition_key       smallint NOT NULL,
    flow_id             uuid     NOT NULL,
    requested_at_ms     bigint   NOT NULL DEFAULT 0,
    requester           text     NOT NULL DEFAULT '',
    reason              text     NOT NULL DEFAULT '',
    cancellation_policy text     NOT NULL DEFAULT '',
    status              text     NOT NULL DEFAULT 'pending',
    PRIMARY KEY (partition_key, flow_id)
);

CREATE TABLE ff_cancel_backlog_member (
    partition_key smallint NOT NULL,
    flow_id       uuid     NOT NULL,
    execution_id  text     NOT NULL,
    PRIMARY KEY (partition_key, flow_id, execution_id)
);

CREATE TABLE ff_lane (
    lane_id       text COLLATE "C" NOT NULL PRIMARY KEY,
    lane_state    text NOT NULL DEFAULT 'active',
    paused_reason text,
    paused_by     text,
    paused_at_ms  bigint
);

CREATE TABLE ff_timer (
    due_at_ms bigint NOT NULL,
    kind      text   COLLATE "C" NOT NULL,
    subject   uuid   NOT NULL,
    members   bytea  NOT NULL,
    PRIMARY KEY (due_at_ms, kind, subject)
);

CREATE TABLE ff_idempotency (
    namespace       text     COLLATE "C" NOT NULL,
    idempotency_key text     COLLATE "C" NOT NULL,
    partition_key   smallint NOT NULL,
    execution_id    uuid     NOT NULL,
    fingerprint     bytea    NOT NULL,
    expires_at_ms   bigint,
    PRIMARY KEY (namespace, idempotency_key)
);

-- The log, in shards. `head` is counted up by the last statement of each transaction that writes
-- events, so the numbers of a shard are dense and become visible in their order.
CREATE TABLE ff_event_shard (
    shard smallint NOT NULL PRIMARY KEY,
    floor bigint   NOT NULL DEFAULT 1,
    head  bigint   NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

INSERT INTO ff_event_shard (shard) SELECT generate_series(0, 7);

CREATE TABLE ff_event (
    shard          smallint NOT NULL,
    seq            bigint   NOT NULL,
    at_ms          bigint   NOT NULL,
    event_type     text     NOT NULL,
    namespace      text     NOT NULL DEFAULT '',
    lane_id        text,
    execution_kind text,
    execution_id   uuid,
    partition_key  smallint NOT NULL DEFAULT 0,
    flow_id        uuid,
    from_state     text,
    to_state       text,
    version        bigint   NOT NULL DEFAULT 0,
    attempt_index  integer  NOT NULL DEFAULT 0,
    lease_epoch    bigint   NOT NULL DEFAULT 0,
    lease_ended    boolean  NOT NULL DEFAULT false,
    by_whom        text,
    details        jsonb,
    PRIMARY KEY (shard, seq)
);

CREATE INDEX ff_event_execution ON ff_event (execution_id) WHERE execution_id IS NOT NULL;

CREATE VIEW ff_operator_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       coalesce(execution_id, flow_id)::text AS execution_id, event_type,
       details, at_ms AS occurred_at_ms, namespace, NULL::text AS instance_tag
FROM ff_event
WHERE event_type IN ('priority_changed', 'replayed', 'flow_cancel_requested');

CREATE VIEW ff_lease_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       execution_id::text AS execution_id, NULL::text AS lease_id,
       CASE event_type WHEN 'claimed' THEN 'acquired' WHEN 'lease_expired' THEN 'expired'
            WHEN 'completed' THEN 'released' WHEN 'failed' THEN 'released'
            WHEN 'retry_scheduled' THEN 'released' WHEN 'delayed' THEN 'released'
            ELSE 'revoked' END AS event_type,
       at_ms AS occurred_at_ms, namespace, NULL::text AS instance_tag
FROM ff_event
WHERE event_type = 'claimed' OR lease_ended;

CREATE VIEW ff_completion_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       execution_id::text AS execution_id, flow_id, event_type AS outcome,
       at_ms AS occurred_at_ms, namespace, NULL::text AS instance_tag
FROM ff_event
WHERE event_type IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
  AND execution_id IS NOT NULL;
