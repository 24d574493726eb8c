-- Tells leases of the same attempt and epoch apart, of which a restore of the database makes two.
ALTER TABLE ff_attempt ADD COLUMN lease_nonce bigint NOT NULL DEFAULT 0;
