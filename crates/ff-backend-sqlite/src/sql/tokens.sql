-- API tokens, known by their hash alone.
CREATE TABLE ff_api_token (
    token_id        BLOB    NOT NULL PRIMARY KEY,
    token_hash      BLOB    NOT NULL,
    name            TEXT    NOT NULL,
    scopes          TEXT    NOT NULL,
    namespaces      TEXT    NOT NULL,
    created_by      TEXT    NOT NULL,
    created_at_ms   INTEGER NOT NULL,
    expires_at_ms   INTEGER,
    last_used_at_ms INTEGER,
    revoked_at_ms   INTEGER
) WITHOUT ROWID;
