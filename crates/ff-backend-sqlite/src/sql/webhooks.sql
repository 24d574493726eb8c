-- Who is told of events outside, and how far that has come.
CREATE TABLE ff_webhook (
    webhook_id           BLOB    NOT NULL PRIMARY KEY,
    namespace            TEXT    NOT NULL,
    name                 TEXT    NOT NULL,
    url                  TEXT    NOT NULL,
    event_types          TEXT    NOT NULL,
    lane_id              TEXT,
    state                TEXT    NOT NULL,
    secret               BLOB    NOT NULL,
    old_secret           BLOB,
    old_secret_until_ms  INTEGER,
    created_by           TEXT    NOT NULL,
    created_at_ms        INTEGER NOT NULL,
    log_cursor           TEXT    NOT NULL,
    attempts             INTEGER NOT NULL,
    delivered            INTEGER NOT NULL,
    last_delivered_at_ms INTEGER,
    failures             INTEGER NOT NULL,
    failing_since_ms     INTEGER,
    next_attempt_at_ms   INTEGER,
    last_error           TEXT,
    owner_id             BLOB,
    owned_until_ms       INTEGER
) WITHOUT ROWID;

CREATE INDEX ff_webhook_by_namespace ON ff_webhook (namespace, webhook_id);

-- The last attempts of each webhook.
CREATE TABLE ff_webhook_delivery (
    webhook_id  BLOB    NOT NULL,
    slot        INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    event_id    TEXT    NOT NULL,
    event_type  TEXT    NOT NULL,
    at_ms       INTEGER NOT NULL,
    status      INTEGER,
    duration_ms INTEGER NOT NULL,
    error       TEXT,
    PRIMARY KEY (webhook_id, slot)
) WITHOUT ROWID;
