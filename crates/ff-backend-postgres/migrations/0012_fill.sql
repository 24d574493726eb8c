-- A page that is filled by half keeps room for the versions that a claim and its end write, but
-- most of them fit where old versions were. Fuller pages make submissions cheaper.

ALTER TABLE ff_exec_core SET (fillfactor = 85);
