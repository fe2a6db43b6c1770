-- Answers of workers that contradict others, and what proves it to anybody: an item's digest and signature. Outputs are
-- kept up to a size; the digest proves the rest.
CREATE TABLE node.disagreement (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text NOT NULL CHECK (kind IN ('spot', 'canary', 'quorum', 'lie', 'manifest', 'equivocation')),
    request_id   bigint NOT NULL,
    commitment   bytea NOT NULL,
    model_id     bytea NOT NULL,
    accused      bytea NOT NULL,
    digest       bytea NOT NULL,             -- what the accused put its name to
    signature    bytea NOT NULL,             -- its, over a group of this one item
    output       bytea NOT NULL,             -- the beginning
    output_bytes bigint NOT NULL,            -- of the whole
    media_type   text NOT NULL,
    manifest     jsonb NOT NULL,
    decided      boolean NOT NULL,           -- false while it is not known who of them is wrong
    on_chain     boolean NOT NULL,           -- false of a canary that is no request
    reason       text NOT NULL,
    dispute      text NOT NULL DEFAULT 'none'
                 CHECK (dispute IN ('none', 'wanted', 'opened', 'upheld', 'rejected', 'lapsed', 'unneeded')),
    dispute_tx   bytea,
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (request_id, commitment, accused, kind, digest)
);
CREATE INDEX disagreement_newest ON node.disagreement (accused, id DESC);
CREATE INDEX disagreement_wanted ON node.disagreement (id) WHERE dispute = 'wanted';

-- What the others said. A canary's known answer has neither worker nor signature.
CREATE TABLE node.disagreement_side (
    disagreement_id bigint NOT NULL REFERENCES node.disagreement (id) ON DELETE CASCADE,
    place        int NOT NULL,               -- from 0
    worker       bytea,
    digest       bytea NOT NULL,
    signature    bytea,
    output       bytea,                      -- the beginning; NULL where it is not known
    output_bytes bigint,
    media_type   text NOT NULL,
    manifest     jsonb NOT NULL,
    PRIMARY KEY (disagreement_id, place)
);

-- Results that are computed once more by another worker, until that is done.
CREATE TABLE node.spot_check (
    request_id bigint NOT NULL,
    commitment bytea NOT NULL,
    model_id   bytea NOT NULL,
    worker     bytea NOT NULL,               -- whose result is checked
    undecided  boolean NOT NULL DEFAULT false,  -- answers contradict each other: nothing of the request is posted
    held_until timestamptz,                  -- nothing of the request is posted before
    until_at   timestamptz NOT NULL,         -- the deadline, after which it counts as not done
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (request_id, commitment)
);

-- How checks ended, for good.
CREATE TABLE node.check_count (
    worker    bytea NOT NULL,
    model_id  bytea NOT NULL,
    kind      text NOT NULL,                 -- spot, canary
    passed    bigint NOT NULL DEFAULT 0,
    failed    bigint NOT NULL DEFAULT 0,
    undecided bigint NOT NULL DEFAULT 0,
    not_done  bigint NOT NULL DEFAULT 0,     -- nobody was free in time, or the worker gave no answer
    PRIMARY KEY (worker, model_id, kind)
);

-- Questions whose answer the operator knows.
CREATE TABLE node.canary (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    model           text NOT NULL,
    input           bytea NOT NULL,
    max_tokens      bigint NOT NULL,
    expected_digest bytea,                   -- NULL: one of this node's own workers is to compute it
    expected_output bytea,                   -- NULL where only its digest is known
    at              timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX canary_question ON node.canary (model, max_tokens, sha256(input));

-- Which results are checked, and as what canaries come, follows from this key: no worker can tell before.
CREATE TABLE node.check_key (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    key      bytea NOT NULL
);

-- A hedged lease may have two workers that fail.
ALTER TABLE node.worker_failure DROP CONSTRAINT worker_failure_pkey;
ALTER TABLE node.worker_failure ADD PRIMARY KEY (lease_id, worker);

-- Suspended by a check: what it has computed is not posted either.
ALTER TABLE node.worker_suspension ADD COLUMN distrusted boolean NOT NULL DEFAULT false;
CREATE INDEX worker_distrusted ON node.worker_suspension (worker) WHERE distrusted;
-- When the operator gave a worker work again: what was before counts no more against it.
CREATE TABLE node.worker_pardon (
    worker bytea PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A decided disagreement is about it: it is never posted.
ALTER TABLE node.result ADD COLUMN found_wrong boolean NOT NULL DEFAULT false;

-- Whether stored results can be posted depends on it.
CREATE FUNCTION node.touch_all_for_distrusted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched SELECT NULL WHERE EXISTS (SELECT FROM changed WHERE distrusted);
    RETURN NULL;
END $$;
CREATE TRIGGER touch_insert AFTER INSERT ON node.worker_suspension REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all_for_distrusted();
CREATE TRIGGER touch_update AFTER UPDATE ON node.worker_suspension REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all_for_distrusted();
CREATE TRIGGER touch_delete AFTER DELETE ON node.worker_suspension REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all_for_distrusted();
