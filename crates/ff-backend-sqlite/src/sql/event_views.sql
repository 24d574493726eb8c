-- The contract's event tables show what the reference's do: the time that the caller gave, the
-- instance tag of the execution, a reclaim as such, and a wait for children as a lease given back.
DROP VIEW ff_operator_event;
DROP VIEW ff_lease_event;
DROP VIEW ff_completion_event;
DROP VIEW ff_signal_event;
DROP VIEW ff_event_text;

-- The log with its ids as text, for the views below.
CREATE VIEW ff_event_text AS
SELECT seq AS event_id, 0 AS partition_key, at_ms, event_type, namespace, lease_ended, details,
       lease_epoch, execution_id AS execution_blob, flow_id AS flow_blob,
       coalesce(json_extract(details, '$.asked_at_ms'), at_ms) AS asked_at_ms,
       (SELECT coalesce(json_extract(e.tags, '$."cairn.instance_id"'),
                        json_extract(e.raw_fields, '$.tags."cairn.instance_id"'))
        FROM ff_exec_core AS e
        WHERE e.partition_key = 0 AND e.execution_id = l.execution_id) AS instance_tag,
       lower(substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-' || substr(h, 13, 4) || '-' ||
             substr(h, 17, 4) || '-' || substr(h, 21, 12)) AS subject_id
FROM (SELECT *, hex(coalesce(execution_id, flow_id)) AS h FROM ff_event) AS l;

CREATE VIEW ff_operator_event AS
SELECT event_id, partition_key, subject_id AS execution_id, event_type,
       json_remove(details, '$.asked_at_ms', '$.actor') AS details,
       asked_at_ms AS occurred_at_ms, namespace,
       instance_tag
FROM ff_event_text
WHERE event_type IN ('priority_changed', 'replayed', 'flow_cancel_requested');

CREATE VIEW ff_lease_event AS
SELECT event_id, partition_key, subject_id AS execution_id, NULL AS lease_id,
       CASE WHEN event_type = 'claimed' AND json_extract(details, '$.kind') = 'reclaimed'
            THEN 'reclaimed'
            WHEN event_type = 'claimed' THEN 'acquired'
            WHEN event_type = 'lease_expired' THEN 'expired'
            WHEN event_type IN ('completed', 'failed', 'retry_scheduled', 'delayed', 'suspended',
                                'waiting_children', 'held') THEN 'released'
            ELSE 'revoked' END AS event_type,
       asked_at_ms AS occurred_at_ms, namespace, instance_tag
FROM ff_event_text
WHERE event_type = 'claimed' OR lease_ended = 1;

CREATE VIEW ff_completion_event AS
SELECT event_id, partition_key, subject_id AS execution_id, flow_blob AS flow_id,
       CASE event_type WHEN 'completed' THEN 'success' ELSE event_type END AS outcome,
       asked_at_ms AS occurred_at_ms, namespace, instance_tag
FROM ff_event_text
WHERE event_type IN ('completed', 'failed', 'cancelled', 'expired', 'skipped')
  AND execution_blob IS NOT NULL;

CREATE VIEW ff_signal_event AS
SELECT event_id, partition_key, subject_id AS execution_id,
       json_extract(details, '$.signal_id') AS signal_id,
       json_extract(details, '$.waitpoint_id') AS waitpoint_id,
       json_extract(details, '$.source_identity') AS source_identity,
       at_ms AS delivered_at_ms, namespace, instance_tag
FROM ff_event_text
WHERE event_type = 'signal_delivered';
