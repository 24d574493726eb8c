-- ff_submit with the rules of every other submission. Words in braces are filled in from
-- ff_core::limits when this file is applied; what an operator may move is read from ff_meta, where
-- each engine stores its own settings.

CREATE OR REPLACE FUNCTION ff_submit(
    lane            text,
    kind            text,
    payload         bytea   DEFAULT '',
    namespace       text    DEFAULT 'default',
    priority        integer DEFAULT 0,
    delay_ms        bigint  DEFAULT 0,
    idempotency_key text    DEFAULT NULL,
    tags            jsonb   DEFAULT '{}',
    creator         text    DEFAULT ''
) RETURNS text LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    now_ms      bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
    until_ms    bigint;
    new_id      uuid := ff_uuid7();
    home        smallint;
    partitions  integer := coalesce(
        (SELECT value::integer FROM ff_meta WHERE name = 'flow_partitions'), {partitions});
    most_bytes  bigint := coalesce(
        (SELECT value::bigint FROM ff_meta WHERE name = 'payload_bytes'), {payload_bytes});
    known       ff_idempotency%ROWTYPE;
    -- What ff_core::engine::prepare calls the fingerprint of a submission without an encoding.
    body        bytea := sha256(
        int8send(octet_length(lane)) || convert_to(lane, 'UTF8') ||
        int8send(octet_length(kind)) || convert_to(kind, 'UTF8') || int8send(0) ||
        int8send(octet_length(payload)) || payload);
BEGIN
    IF lane IS NULL OR lane !~ '^[\x20-\x7e]+$' OR octet_length(lane) > {lane_bytes} THEN
        RAISE EXCEPTION 'ff_submit: the lane must be 1 to {lane_bytes} printable ASCII characters';
    ELSIF kind IS NULL OR octet_length(kind) NOT BETWEEN 1 AND {kind_bytes} THEN
        RAISE EXCEPTION 'ff_submit: the kind must be 1 to {kind_bytes} bytes long';
    ELSIF namespace IS NULL OR octet_length(namespace) NOT BETWEEN 1 AND {name_bytes}
        OR namespace ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'ff_submit: the namespace must be 1 to {name_bytes} bytes long and have no '
            'control characters';
    ELSIF payload IS NULL OR octet_length(payload) > most_bytes THEN
        RAISE EXCEPTION 'ff_submit: the payload must not be longer than % bytes', most_bytes;
    ELSIF delay_ms IS NULL OR delay_ms NOT BETWEEN 0 AND {horizon_ms} THEN
        RAISE EXCEPTION 'ff_submit: the delay must be between 0 and {horizon_ms} milliseconds';
    ELSIF octet_length(idempotency_key) NOT BETWEEN 1 AND {key_bytes} THEN
        RAISE EXCEPTION 'ff_submit: the idempotency key must be 1 to {key_bytes} bytes long';
    ELSIF creator IS NULL OR octet_length(creator) > {name_bytes} THEN
        RAISE EXCEPTION 'ff_submit: the creator must not be longer than {name_bytes} bytes';
    ELSIF jsonb_typeof(tags) IS DISTINCT FROM 'object' THEN
        RAISE EXCEPTION 'ff_submit: the tags must be an object of strings';
    ELSIF (SELECT count(*) FROM jsonb_each(tags)) > {tags} THEN
        RAISE EXCEPTION 'ff_submit: there must not be more than {tags} tags';
    ELSIF EXISTS (SELECT 1 FROM jsonb_each(tags) AS t WHERE jsonb_typeof(t.value) <> 'string'
        OR octet_length(t.value #>> '{}') > {tag_value_bytes}) THEN
        RAISE EXCEPTION 'ff_submit: a tag must be a string of at most {tag_value_bytes} bytes';
    ELSIF EXISTS (SELECT 1 FROM jsonb_object_keys(tags) AS t(name)
        WHERE octet_length(t.name) > {tag_key_bytes}
        OR t.name !~ '^[a-z][a-z0-9_]*\.[a-z0-9_][a-z0-9_.]*$') THEN
        RAISE EXCEPTION 'ff_submit: a tag''s key must look like team.name, in lower case, of at '
            'most {tag_key_bytes} bytes';
    END IF;
    home := ff_crc16(convert_to(lane, 'UTF8')) % partitions;
    IF idempotency_key IS NOT NULL THEN
        -- A key that holds is only looked at: the transaction that ends its execution must not wait.
        SELECT * INTO known FROM ff_idempotency AS i WHERE i.namespace = ff_submit.namespace
            AND i.idempotency_key = ff_submit.idempotency_key
            AND (i.expires_at_ms IS NULL OR i.expires_at_ms > now_ms);
        IF NOT FOUND THEN
            INSERT INTO ff_idempotency AS i (namespace, idempotency_key, partition_key, execution_id,
                fingerprint, expires_at_ms)
            VALUES (ff_submit.namespace, ff_submit.idempotency_key, home, new_id,
                body, now_ms + {key_ttl_ms})
            ON CONFLICT ON CONSTRAINT ff_idempotency_pkey DO UPDATE SET
                partition_key = excluded.partition_key, execution_id = excluded.execution_id,
                fingerprint = excluded.fingerprint, expires_at_ms = excluded.expires_at_ms
            WHERE i.expires_at_ms <= now_ms;
            SELECT * INTO known FROM ff_idempotency AS i WHERE i.namespace = ff_submit.namespace
                AND i.idempotency_key = ff_submit.idempotency_key;
        END IF;
        IF known.execution_id <> new_id THEN
            IF known.fingerprint <> body THEN
                RAISE EXCEPTION 'ff_submit: the idempotency key % stands for other work',
                    idempotency_key;
            END IF;
            RETURN '{fp:' || known.partition_key || '}:' || known.execution_id;
        END IF;
        INSERT INTO ff_timer (due_at_ms, kind, subject, members)
        VALUES (known.expires_at_ms, 'idempotency', new_id,
            int2send(home) || uuid_send(new_id) || int8send(0));
    END IF;
    until_ms := CASE WHEN delay_ms > 0 THEN now_ms + delay_ms END;
    INSERT INTO ff_exec_core (partition_key, execution_id, namespace, lane_id, execution_kind,
        payload, creator_identity, idempotency_key, created_at_ms, priority, tags,
        lifecycle_phase, eligibility_state, public_state, blocking_reason, not_before_ms)
    VALUES (home, new_id, namespace, lane, kind, payload, creator, idempotency_key, now_ms,
        least(greatest(priority, {priority_min}), {priority_max}), tags, 'runnable',
        CASE WHEN until_ms IS NULL THEN 'eligible_now' ELSE 'not_eligible_until_time' END,
        CASE WHEN until_ms IS NULL THEN 'waiting' ELSE 'delayed' END,
        CASE WHEN until_ms IS NULL THEN 'waiting_for_worker' ELSE 'waiting_for_delay' END,
        until_ms);
    IF until_ms IS NOT NULL THEN
        INSERT INTO ff_timer (due_at_ms, kind, subject, members)
        VALUES (until_ms, 'ready', new_id, int2send(home) || uuid_send(new_id) || int8send(0));
    END IF;
    PERFORM ff_announce(lane);
    RETURN '{fp:' || home || '}:' || new_id;
END
$$;
