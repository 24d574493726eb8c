-- Who is told of events outside, and how far that has come.
CREATE TABLE ff_webhook (
    webhook_id           uuid    NOT NULL PRIMARY KEY,
    namespace            text    NOT NULL,
    name                 text    NOT NULL,
    url                  text    NOT NULL,
    event_types          jsonb    NOT NULL,
    lane_id              text,
    state                text    NOT NULL,
    secret               bytea   NOT NULL,
    old_secret           bytea,
    old_secret_until_ms  bigint,
    created_by           text    NOT NULL,
    created_at_ms        bigint NOT NULL,
    log_cursor           text    NOT NULL,
    attempts             bigint NOT NULL,
    delivered            bigint NOT NULL,
    last_delivered_at_ms bigint,
    failures             integer NOT NULL,
    failing_since_ms     bigint,
    next_attempt_at_ms   bigint,
    last_error           text,
    owner_id             uuid,
    owned_until_ms       bigint
);

CREATE INDEX ff_webhook_by_namespace ON ff_webhook (namespace, webhook_id);

-- The last attempts of each webhook.
CREATE TABLE ff_webhook_delivery (
    webhook_id  uuid    NOT NULL,
    slot        integer NOT NULL,
    number      bigint NOT NULL,
    event_id    text    NOT NULL,
    event_type  text    NOT NULL,
    at_ms       bigint NOT NULL,
    status      integer,
    duration_ms bigint NOT NULL,
    error       text,
    PRIMARY KEY (webhook_id, slot)
);
