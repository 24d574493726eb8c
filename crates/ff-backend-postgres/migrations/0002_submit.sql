-- Submitting from any language, inside any transaction: `SELECT ff_submit('lane', 'kind', '...')`.
-- The execution is claimable as soon as the transaction commits; an engine announces it in the log
-- afterwards, because a place in the log must not be held by a transaction that may stay open.

-- Wakes engines once the transaction has committed. Messages that are alike are sent once.
CREATE FUNCTION ff_announce(lane text) RETURNS void LANGUAGE sql
SET search_path FROM CURRENT AS $$
    SELECT pg_notify(
        'flowfabric_' || replace((SELECT value FROM ff_meta WHERE name = 'history_id'), '-', ''),
        json_build_object('lanes', json_build_object(lane, 1000000), 'due', 0)::text)
$$;

-- CRC-16/XMODEM, which places an execution by its lane.
CREATE FUNCTION ff_crc16(bytes bytea) RETURNS integer LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    crc integer := 0;
BEGIN
    FOR place IN 0 .. length(bytes) - 1 LOOP
        crc := crc # (get_byte(bytes, place) << 8);
        FOR bit IN 1 .. 8 LOOP
            crc := CASE WHEN crc & 32768 = 0 THEN crc << 1 ELSE (crc << 1) # 4129 END & 65535;
        END LOOP;
    END LOOP;
    RETURN crc;
END
$$;

-- A UUID of version 7: new ones sort behind old ones.
CREATE FUNCTION ff_uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
        substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- Returns the id of the execution: a new one, or the one that stands for the idempotency key.
CREATE FUNCTION ff_submit(
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
    known       ff_idempotency%ROWTYPE;
    -- What ff_core::engine::prepare calls the fingerprint of a submission without an encoding.
    body        bytea := sha256(
        int8send(octet_length(lane)) || convert_to(lane, 'UTF8') ||
        int8send(octet_length(kind)) || convert_to(kind, 'UTF8') || int8send(0) ||
        int8send(octet_length(payload)) || payload);
BEGIN
    IF lane IS NULL OR lane !~ '^[\x20-\x7e]{1,64}$' THEN
        RAISE EXCEPTION 'ff_submit: the lane must be 1 to 64 printable ASCII characters';
    ELSIF kind IS NULL OR octet_length(kind) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'ff_submit: the kind must be 1 to 255 bytes long';
    ELSIF namespace IS NULL OR namespace !~ '^[\x20-\x7e]{1,255}$' THEN
        RAISE EXCEPTION 'ff_submit: the namespace must be 1 to 255 printable ASCII characters';
    ELSIF payload IS NULL OR octet_length(payload) > 1048576 THEN
        RAISE EXCEPTION 'ff_submit: the payload must not be longer than 1 MiB';
    ELSIF delay_ms IS NULL OR delay_ms NOT BETWEEN 0 AND 315360000000 THEN
        RAISE EXCEPTION 'ff_submit: the delay must be between 0 and ten years';
    ELSIF octet_length(idempotency_key) NOT BETWEEN 1 AND 255 THEN
        RAISE EXCEPTION 'ff_submit: the idempotency key must be 1 to 255 bytes long';
    ELSIF jsonb_typeof(tags) IS DISTINCT FROM 'object' OR
        EXISTS (SELECT 1 FROM jsonb_each(tags) AS t WHERE jsonb_typeof(t.value) <> 'string') THEN
        RAISE EXCEPTION 'ff_submit: the tags must be an object of strings';
    END IF;
    home := ff_crc16(convert_to(lane, 'UTF8')) % 256;
    IF idempotency_key IS NOT NULL THEN
        -- A key that holds is only looked at: whoever finishes its execution must not wait.
        SELECT * INTO known FROM ff_idempotency AS i WHERE i.namespace = ff_submit.namespace
            AND i.idempotency_key = ff_submit.idempotency_key
            AND (i.expires_at_ms IS NULL OR i.expires_at_ms > now_ms);
        IF NOT FOUND THEN
            INSERT INTO ff_idempotency AS i (namespace, idempotency_key, partition_key, execution_id,
                fingerprint, expires_at_ms)
            VALUES (ff_submit.namespace, ff_submit.idempotency_key, home, new_id,
                body, now_ms + 86400000)
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
        least(greatest(priority, 0), 9000), tags, 'runnable',
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
