-- What each worker's leases came to, for each model, since it was first seen. node.service_stat forgets on purpose, this
-- does not.
CREATE TABLE node.reputation (
    worker     bytea NOT NULL,
    model_id   bytea NOT NULL,
    good       bigint NOT NULL DEFAULT 0,    -- valid results within their lease
    late       bigint NOT NULL DEFAULT 0,    -- valid results after it that were still of use
    failed     bigint NOT NULL DEFAULT 0,    -- said so, or broke off
    timeouts   bigint NOT NULL DEFAULT 0,    -- nothing within the lease
    lies       bigint NOT NULL DEFAULT 0,    -- answers that are not what they say they are
    first_at   timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (worker, model_id)
);
INSERT INTO node.reputation (worker, model_id, good, failed)
SELECT worker, model_id, completed, failed FROM node.service_stat;

-- The newest failures that count against a worker; one for each lease, so that none counts twice.
CREATE TABLE node.worker_failure (
    lease_id   bigint PRIMARY KEY,
    worker     bytea NOT NULL,
    model_id   bytea NOT NULL,
    request_id bigint NOT NULL,
    failure    text NOT NULL,                -- kind: reason, as in node.lease
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX worker_failure_newest ON node.worker_failure (worker, at DESC);

-- Workers that the operator gives no work; what they have in hand is not taken from them.
CREATE TABLE node.worker_suspension (
    worker       bytea PRIMARY KEY,
    reason       text NOT NULL,
    suspended_by text NOT NULL,
    at           timestamptz NOT NULL DEFAULT now()
);
