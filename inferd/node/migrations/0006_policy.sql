-- Which policies order requests, since when, and who said so. The newest row is in force. The settings file adds a row
-- whenever it says something else than its last row does.
CREATE TABLE node.policy (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source   text NOT NULL CHECK (source IN ('settings', 'command')),
    policies text[] NOT NULL CHECK (cardinality(policies) > 0),
    shares   integer[] NOT NULL CHECK (cardinality(shares) = cardinality(policies)),
    weights  double precision[] CHECK (cardinality(weights) = 3),   -- fee, wait, slack
    set_by   text NOT NULL,
    set_at   timestamptz NOT NULL DEFAULT now()
);

-- What a requester has taken and is owed, in tokens; written with the leases it was taken by. No row = a full bucket
-- and nothing owed.
CREATE TABLE node.tenant (
    tenant         bytea PRIMARY KEY,
    bucket_tokens  double precision NOT NULL,
    bucket_at_s    double precision NOT NULL,
    deficit_tokens double precision NOT NULL DEFAULT 0 CHECK (deficit_tokens >= 0)
);

-- Which row of node.policy a round went by, and why it went by the fallback instead; the arm of what it assigned.
ALTER TABLE node.round ADD COLUMN policy_id bigint REFERENCES node.policy (id), ADD COLUMN fallback text;
ALTER TABLE node.decision ADD COLUMN arm smallint;
-- The rounds of an experiment, and those that fell back.
CREATE INDEX round_policy ON node.round (policy_id, id);
CREATE INDEX round_fallback ON node.round (created_at) WHERE fallback IS NOT NULL;
-- What posts and deliveries cost of late.
CREATE INDEX tx_intent_spending ON node.tx_intent (created_at) WHERE kind IN ('post', 'deliver');
