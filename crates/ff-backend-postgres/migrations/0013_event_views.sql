-- The contract's event tables show what the reference's do: the time that the caller gave, the
-- instance tag of the execution, a reclaim as such, and a wait for children as a lease given back.
CREATE OR REPLACE VIEW ff_operator_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       coalesce(execution_id, flow_id)::text AS execution_id, event_type,
       details - 'asked_at_ms' - 'actor' AS details,
       coalesce((details->>'asked_at_ms')::bigint, at_ms) AS occurred_at_ms, namespace,
       (SELECT coalesce(e.tags->>'cairn.instance_id', e.raw_fields->'tags'->>'cairn.instance_id')
        FROM ff_exec_core AS e WHERE e.partition_key = ff_event.partition_key
        AND e.execution_id = ff_event.execution_id) AS instance_tag
FROM ff_event
WHERE event_type IN ('priority_changed', 'replayed', 'flow_cancel_requested');

CREATE OR REPLACE VIEW ff_lease_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       execution_id::text AS execution_id, NULL::text AS lease_id,
       CASE WHEN event_type = 'claimed' AND details->>'kind' = 'reclaimed' THEN 'reclaimed'
            WHEN event_type = 'claimed' THEN 'acquired'
            WHEN event_type = 'lease_expired' THEN 'expired'
            WHEN event_type IN ('completed', 'failed', 'retry_scheduled', 'delayed', 'suspended',
                                'waiting_children', 'held') THEN 'released'
            ELSE 'revoked' END AS event_type,
       coalesce((details->>'asked_at_ms')::bigint, at_ms) AS occurred_at_ms, namespace,
       (SELECT coalesce(e.tags->>'cairn.instance_id', e.raw_fields->'tags'->>'cairn.instance_id')
        FROM ff_exec_core AS e WHERE e.partition_key = ff_event.partition_key
        AND e.execution_id = ff_event.execution_id) AS instance_tag
FROM ff_event
WHERE event_type = 'claimed' OR lease_ended;

CREATE OR REPLACE VIEW ff_completion_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       execution_id::text AS execution_id, flow_id,
       CASE event_type WHEN 'completed' THEN 'success' ELSE event_type END AS outcome,
       coalesce((details->>'asked_at_ms')::bigint, at_ms) AS occurred_at_ms, namespace,
       (SELECT coalesce(e.tags->>'cairn.instance_id', e.raw_fields->'tags'->>'cairn.instance_id')
        FROM ff_exec_core AS e WHERE e.partition_key = ff_event.partition_key
        AND e.execution_id = ff_event.execution_id) AS instance_tag
FROM ff_event
WHERE event_type IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
  AND execution_id IS NOT NULL;

CREATE OR REPLACE VIEW ff_signal_event AS
SELECT seq * 65536 + shard AS event_id, partition_key::integer AS partition_key,
       execution_id::text AS execution_id, details->>'signal_id' AS signal_id,
       details->>'waitpoint_id' AS waitpoint_id, details->>'source_identity' AS source_identity,
       at_ms AS delivered_at_ms, namespace,
       (SELECT coalesce(e.tags->>'cairn.instance_id', e.raw_fields->'tags'->>'cairn.instance_id')
        FROM ff_exec_core AS e WHERE e.partition_key = ff_event.partition_key
        AND e.execution_id = ff_event.execution_id) AS instance_tag
FROM ff_event
WHERE event_type = 'signal_delivered';
