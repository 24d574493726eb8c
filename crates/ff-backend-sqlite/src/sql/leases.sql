-- Tells leases of the same attempt and epoch apart, of which a restore of the file makes two.
ALTER TABLE ff_attempt ADD COLUMN lease_nonce INTEGER NOT NULL DEFAULT 0;
