-- Speed is learnt from the tokens of an output now: what the old columns held has no tokens, and is learnt again.
ALTER TABLE node.service_stat
    DROP COLUMN weight,
    DROP COLUMN mean_ms,
    DROP COLUMN mean_square_ms2,
    ADD COLUMN successes    double precision NOT NULL DEFAULT 0,  -- ended leases, older ones counting less
    ADD COLUMN failures     double precision NOT NULL DEFAULT 0,
    ADD COLUMN observations double precision NOT NULL DEFAULT 0,  -- effective number of service times
    ADD COLUMN fit_weight   double precision NOT NULL DEFAULT 0,  -- sums of the fit: x in tokens, y in ms
    ADD COLUMN fit_x        double precision NOT NULL DEFAULT 0,
    ADD COLUMN fit_xx       double precision NOT NULL DEFAULT 0,
    ADD COLUMN fit_y        double precision NOT NULL DEFAULT 0,
    ADD COLUMN fit_xy       double precision NOT NULL DEFAULT 0,
    ADD COLUMN error_square double precision NOT NULL DEFAULT 0,
    ADD COLUMN log_factor   double precision NOT NULL DEFAULT 0,  -- calibrates the p90
    ADD COLUMN peak_ms      double precision NOT NULL DEFAULT 0,
    ADD COLUMN peak_at_s    double precision NOT NULL DEFAULT 0;

-- Output lengths per model, and per requester with it, learnt with forgetting. Weights by bin of an eighth of an octave,
-- each as 4 bytes of IEEE 754, little endian: rounds read many rows, and parse them off the event loop.
CREATE TABLE node.length_stat (
    model_id   bytea NOT NULL,
    tenant     bytea NOT NULL,              -- the requester; empty = all of the model's
    ended      bytea NOT NULL DEFAULT '',   -- outputs that ended by themselves; empty = none yet
    cut        bytea NOT NULL DEFAULT '',   -- outputs that reached their limit
    log_factor double precision NOT NULL DEFAULT 0,
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (model_id, tenant)
);
CREATE INDEX length_stat_updated ON node.length_stat (updated_at);

-- The leaf under which a decision was anchored, so that a changed row is told from its neighbours.
ALTER TABLE node.decision
    ADD COLUMN leaf_version smallint;       -- of the leaf's encoding; NULL with a leaf = by a release that stored no columns

-- What rounds saw, so that they can be computed once more.
ALTER TABLE node.round
    ADD COLUMN snapshot_digest bytea;       -- keccak256 of the uncompressed encoding; in the leaves; NULL = not recorded
CREATE TABLE node.round_snapshot (
    round_id bigint PRIMARY KEY REFERENCES node.round (id) ON DELETE CASCADE,
    encoding bytea NOT NULL                 -- zlib over scheduler/recording.py
);
ALTER TABLE node.round_snapshot ALTER COLUMN encoding SET STORAGE EXTERNAL;
