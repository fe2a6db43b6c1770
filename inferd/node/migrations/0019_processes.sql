-- A node may be split over processes. Each of them says here what the others go by, and that it lives: what is older
-- than some seconds does not count.
CREATE TABLE node.process (
    id     text PRIMARY KEY,                 -- one for each time that a process takes up its roles
    holder text NOT NULL,
    roles  text[] NOT NULL,
    told   jsonb NOT NULL,
    at     timestamptz NOT NULL DEFAULT now()
);

-- Who has the job computed, where the round that granted the lease does not: the process's id, NULL until one takes it.
ALTER TABLE node.lease ADD COLUMN dispatcher text;
-- What the round reckoned with, for that process.
ALTER TABLE node.lease ADD COLUMN p90_ms double precision;
ALTER TABLE node.lease ADD COLUMN p99_ms double precision;
ALTER TABLE node.lease ADD COLUMN inclusion_s double precision;
-- How many more workers it asks beside, for a quorum; and who not, 20 bytes each.
ALTER TABLE node.lease ADD COLUMN beside smallint;
ALTER TABLE node.lease ADD COLUMN excluded bytea;
