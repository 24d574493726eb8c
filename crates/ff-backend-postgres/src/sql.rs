//! The statements that write, one for all rows of a table: arrays in, `unnest`ed side by side.

pub(crate) const INSERT_EXECUTIONS: &str = "INSERT INTO ff_exec_core (partition_key, execution_id, \
    flow_id, namespace, lane_id, execution_kind, payload, payload_encoding, creator_identity, \
    idempotency_key, policy, required_capabilities, created_at_ms, priority, tags, \
    lifecycle_phase, eligibility_state, public_state, blocking_reason, not_before_ms, \
    deadline_at_ms, holds_key, version) \
    SELECT u.c1, u.c2, u.c3, u.c4, u.c5, u.c6, u.c7, u.c8, u.c9, u.c10, u.c11, u.c12, u.c13, \
    u.c14, u.c15::jsonb, u.c16, u.c17, u.c18, u.c19, u.c20, u.c21, u.c22, u.c23 \
    FROM unnest($1::int2[], $2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], \
    $7::bytea[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::int8[], \
    $14::int4[], $15::text[], $16::text[], $17::text[], $18::text[], $19::text[], $20::int8[], \
    $21::int8[], $22::bool[], $23::int8[]) AS u(c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, \
    c12, c13, c14, c15, c16, c17, c18, c19, c20, c21, c22, c23)";

pub(crate) const MOVE_EXECUTIONS: &str = "UPDATE ff_exec_core AS e SET lifecycle_phase = u.phase, \
    ownership_state = u.ownership, eligibility_state = u.eligibility, public_state = u.state, \
    attempt_state = u.attempt, blocking_reason = u.blocking, started_at_ms = u.started, \
    terminal_at_ms = u.ended, result = u.result, lease_epoch = u.epoch, version = u.version \
    FROM unnest($1::int2[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], \
    $7::text[], $8::text[], $9::int8[], $10::int8[], $11::bytea[], $12::int8[], $13::int8[]) \
    AS u(partition_key, id, phase, ownership, eligibility, state, attempt, blocking, started, \
    ended, result, epoch, version) \
    WHERE e.partition_key = u.partition_key AND e.execution_id = u.id";

pub(crate) const REWRITE_EXECUTIONS: &str = "UPDATE ff_exec_core AS e SET \
    lifecycle_phase = u.phase, ownership_state = u.ownership, eligibility_state = u.eligibility, \
    public_state = u.state, attempt_state = u.attempt, blocking_reason = u.blocking, \
    started_at_ms = u.started, terminal_at_ms = u.ended, result = u.result, \
    lease_epoch = u.epoch, version = u.version, priority = u.priority, tags = u.tags::jsonb, \
    attempt_index = u.attempt_index, not_before_ms = u.not_before, deadline_at_ms = u.deadline, \
    failure_reason = u.failure_reason, failure_category = u.failure_category, \
    cancellation_reason = u.cancellation_reason, cancelled_by = u.cancelled_by, \
    retry_count = u.retries, reclaim_count = u.reclaims, holds_key = u.holds_key, \
    raw_fields = u.raw_fields::jsonb \
    FROM unnest($1::int2[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], \
    $7::text[], $8::text[], $9::int8[], $10::int8[], $11::bytea[], $12::int8[], $13::int8[], \
    $14::int4[], $15::text[], $16::int4[], $17::int8[], $18::int8[], $19::text[], $20::text[], \
    $21::text[], $22::text[], $23::int4[], $24::int4[], $25::bool[], $26::text[]) \
    AS u(partition_key, id, phase, ownership, eligibility, state, attempt, blocking, started, \
    ended, result, epoch, version, priority, tags, attempt_index, not_before, deadline, \
    failure_reason, failure_category, cancellation_reason, cancelled_by, retries, reclaims, \
    holds_key, raw_fields) \
    WHERE e.partition_key = u.partition_key AND e.execution_id = u.id";

pub(crate) const INSERT_ATTEMPTS: &str = "INSERT INTO ff_attempt (partition_key, execution_id, \
    attempt_index, attempt_type, lease_epoch, worker_id, worker_instance_id, \
    lease_expires_at_ms, started_at_ms, terminal_at_ms, outcome, failure_reason, \
    failure_category, retry_at_ms, progress_pct, progress_message) \
    SELECT * FROM unnest($1::int2[], $2::uuid[], $3::int4[], $4::text[], $5::int8[], $6::text[], \
    $7::text[], $8::int8[], $9::int8[], $10::int8[], $11::text[], $12::text[], $13::text[], \
    $14::int8[], $15::int4[], $16::text[])";

pub(crate) const UPDATE_ATTEMPTS: &str = "UPDATE ff_attempt AS a SET attempt_type = u.kind, \
    lease_epoch = u.epoch, worker_id = u.worker, worker_instance_id = u.instance, \
    lease_expires_at_ms = u.expires, started_at_ms = u.started, terminal_at_ms = u.ended, \
    outcome = u.outcome, failure_reason = u.reason, failure_category = u.category, \
    retry_at_ms = u.retry, progress_pct = u.percent, progress_message = u.message \
    FROM unnest($1::int2[], $2::uuid[], $3::int4[], $4::text[], $5::int8[], $6::text[], \
    $7::text[], $8::int8[], $9::int8[], $10::int8[], $11::text[], $12::text[], $13::text[], \
    $14::int8[], $15::int4[], $16::text[]) AS u(partition_key, id, index, kind, epoch, worker, \
    instance, expires, started, ended, outcome, reason, category, retry, percent, message) \
    WHERE a.partition_key = u.partition_key AND a.execution_id = u.id \
    AND a.attempt_index = u.index";

pub(crate) const DELETE_ATTEMPTS: &str = "DELETE FROM ff_attempt AS a \
    USING unnest($1::int2[], $2::uuid[], $3::int4[]) AS u(partition_key, id, index) \
    WHERE a.partition_key = u.partition_key AND a.execution_id = u.id \
    AND a.attempt_index = u.index";

pub(crate) const PUT_TIMERS: &str = "INSERT INTO ff_timer (due_at_ms, kind, subject, members) \
    SELECT * FROM unnest($1::int8[], $2::text[], $3::uuid[], $4::bytea[]) \
    ON CONFLICT (due_at_ms, kind, subject) DO UPDATE SET members = excluded.members";

pub(crate) const DELETE_TIMERS: &str = "DELETE FROM ff_timer AS t \
    USING unnest($1::int8[], $2::text[], $3::uuid[]) AS u(due_at_ms, kind, subject) \
    WHERE t.due_at_ms = u.due_at_ms AND t.kind = u.kind AND t.subject = u.subject";

pub(crate) const INSERT_IDEMPOTENCY: &str = "INSERT INTO ff_idempotency (namespace, \
    idempotency_key, partition_key, execution_id, fingerprint, expires_at_ms) \
    SELECT * FROM unnest($1::text[], $2::text[], $3::int2[], $4::uuid[], $5::bytea[], $6::int8[])";

pub(crate) const UPDATE_IDEMPOTENCY: &str = "UPDATE ff_idempotency AS i SET \
    partition_key = u.partition_key, execution_id = u.id, fingerprint = u.fingerprint, \
    expires_at_ms = u.expires \
    FROM unnest($1::text[], $2::text[], $3::int2[], $4::uuid[], $5::bytea[], $6::int8[]) \
    AS u(namespace, word, partition_key, id, fingerprint, expires) \
    WHERE i.namespace = u.namespace AND i.idempotency_key = u.word";

pub(crate) const DELETE_IDEMPOTENCY: &str = "DELETE FROM ff_idempotency AS i \
    USING unnest($1::text[], $2::text[]) AS u(namespace, word) \
    WHERE i.namespace = u.namespace AND i.idempotency_key = u.word";

pub(crate) const INSERT_LANES: &str = "INSERT INTO ff_lane (lane_id, lane_state, paused_reason, \
    paused_by, paused_at_ms) \
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[])";

pub(crate) const UPDATE_LANES: &str = "UPDATE ff_lane AS l SET lane_state = u.state, \
    paused_reason = u.reason, paused_by = u.whom, paused_at_ms = u.at \
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int8[]) \
    AS u(lane, state, reason, whom, at) WHERE l.lane_id = u.lane";

pub(crate) const INSERT_FLOW: &str = "INSERT INTO ff_flow_core (partition_key, flow_id, namespace, \
    graph_revision, public_flow_state, created_at_ms, terminal_at_ms, raw_fields) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8::text::jsonb)";

/// Namespace and creation stay as they are; they are named so that both statements take the same.
pub(crate) const UPDATE_FLOW: &str = "UPDATE ff_flow_core SET namespace = $3, graph_revision = $4, \
    public_flow_state = $5, created_at_ms = $6, terminal_at_ms = $7, raw_fields = $8::text::jsonb \
    WHERE partition_key = $1 AND flow_id = $2";

pub(crate) const UPDATE_EDGE_GROUPS: &str = "UPDATE ff_edge_group AS g SET \
    success_count = u.succeeded, fail_count = u.failed, skip_count = u.skipped, \
    running_count = u.running \
    FROM unnest($1::int2[], $2::uuid[], $3::uuid[], $4::int4[], $5::int4[], $6::int4[], \
    $7::int4[]) AS u(partition_key, flow, downstream, succeeded, failed, skipped, running) \
    WHERE g.partition_key = u.partition_key AND g.flow_id = u.flow \
    AND g.downstream_eid = u.downstream";

pub(crate) const INSERT_BACKLOG: &str = "INSERT INTO ff_cancel_backlog (partition_key, flow_id, \
    requested_at_ms, requester, reason, cancellation_policy, status) \
    VALUES ($1, $2, $3, $4, $5, $6, $7)";

pub(crate) const DELETE_BACKLOG: &str =
    "DELETE FROM ff_cancel_backlog WHERE partition_key = $1 AND flow_id = $2";

pub(crate) const INSERT_BACKLOG_MEMBERS: &str = "INSERT INTO ff_cancel_backlog_member \
    (partition_key, flow_id, execution_id) \
    SELECT * FROM unnest($1::int2[], $2::uuid[], $3::text[])";

pub(crate) const DELETE_BACKLOG_MEMBERS: &str = "DELETE FROM ff_cancel_backlog_member AS m \
    USING unnest($1::int2[], $2::uuid[], $3::text[]) AS u(partition_key, flow, id) \
    WHERE m.partition_key = u.partition_key AND m.flow_id = u.flow AND m.execution_id = u.id";

pub(crate) const PURGE_EVENTS: &str = "DELETE FROM ff_event AS e \
    USING unnest($1::int2[], $2::uuid[]) AS u(partition_key, id) \
    WHERE e.execution_id = u.id AND e.partition_key = u.partition_key";

pub(crate) const PURGE_ATTEMPTS: &str = "DELETE FROM ff_attempt AS a \
    USING unnest($1::int2[], $2::uuid[]) AS u(partition_key, id) \
    WHERE a.execution_id = u.id AND a.partition_key = u.partition_key";

pub(crate) const PURGE_EXECUTIONS: &str = "DELETE FROM ff_exec_core AS e \
    USING unnest($1::int2[], $2::uuid[]) AS u(partition_key, id) \
    WHERE e.execution_id = u.id AND e.partition_key = u.partition_key";

pub(crate) const LOCK_SHARDS: &str =
    "SELECT shard FROM ff_event_shard WHERE shard = ANY($1) ORDER BY shard FOR UPDATE";

/// The counters of the touched shards go up, and the events take the places between.
pub(crate) const APPEND_EVENTS: &str = "WITH place AS ( \
      UPDATE ff_event_shard AS s SET head = s.head + n.many \
      FROM unnest($1::int2[], $2::int8[]) AS n(shard, many) WHERE s.shard = n.shard \
      RETURNING s.shard, s.head - n.many AS base \
    ), written AS ( \
      INSERT INTO ff_event (shard, seq, at_ms, event_type, namespace, lane_id, execution_kind, \
      execution_id, partition_key, flow_id, from_state, to_state, version, attempt_index, \
      lease_epoch, lease_ended, by_whom, details) \
      SELECT u.c1, place.base + u.c2, u.c3, u.c4, u.c5, u.c6, u.c7, u.c8, u.c9, u.c10, u.c11, \
      u.c12, u.c13, u.c14, u.c15, u.c16, u.c17, u.c18::jsonb \
      FROM unnest($3::int2[], $4::int8[], $5::int8[], $6::text[], $7::text[], $8::text[], \
      $9::text[], $10::uuid[], $11::int2[], $12::uuid[], $13::text[], $14::text[], $15::int8[], \
      $16::int4[], $17::int8[], $18::bool[], $19::text[], $20::text[]) \
      AS u(c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17, c18) \
      JOIN place ON place.shard = u.c1 \
    ) SELECT shard, base FROM place";

/// Below the floor only the histories of living executions remain.
pub(crate) const TRIM_EVENTS: &str = "DELETE FROM ff_event AS e USING ff_event_shard AS s \
    WHERE s.shard = $1 AND e.shard = s.shard AND e.seq >= s.floor AND e.seq < $2 \
    AND e.execution_id IS NULL";

pub(crate) const RAISE_FLOOR: &str =
    "UPDATE ff_event_shard SET floor = greatest(floor, $2) WHERE shard = $1";
