-- The mark of the event before the log's floor, by which cursors that stand there are known to belong
-- to this log (0 where it is not known), and what cursors are sealed with. It protects nothing that a
-- reader of this file could not read.
INSERT INTO ff_meta (name, value) VALUES ('log_floor_mark', 0), ('log_secret', randomblob(32));
