-- API tokens, known by their hash alone.
CREATE TABLE ff_api_token (
    token_id        uuid   NOT NULL PRIMARY KEY,
    token_hash      bytea  NOT NULL,
    name            text   NOT NULL,
    scopes          jsonb  NOT NULL,
    namespaces      jsonb  NOT NULL,
    created_by      text   NOT NULL,
    created_at_ms   bigint NOT NULL,
    expires_at_ms   bigint,
    last_used_at_ms bigint,
    revoked_at_ms   bigint
);
