-- The mark of the event before the floor, by which cursors that stand there are known to belong to
-- this log. 0 where it is not known.
ALTER TABLE ff_event_shard ADD COLUMN floor_mark bigint NOT NULL DEFAULT 0;

-- What cursors are sealed with. It protects nothing that a reader of this database could not read.
INSERT INTO ff_meta (name, value)
VALUES ('log_secret', replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
