-- What this node decided, computed and sent. Keyed by (request_id, commitment): a reorganisation can hand an id to
-- another request, never a commitment. What is "ready", "waiting" or "settled" is derived from these rows and
-- chain.request, not stored twice.
CREATE SCHEMA node;

-- One working daemon per database. `epoch` fences: a write by an older epoch is refused.
CREATE TABLE node.leader (
    role        text PRIMARY KEY,
    epoch       bigint NOT NULL,
    holder      text NOT NULL,
    acquired_at timestamptz NOT NULL DEFAULT now()
);

-- One row per scheduling round that decided something.
CREATE TABLE node.round (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    block_number bigint NOT NULL,
    block_hash   bytea NOT NULL,
    base_fee_wei chain.uint256 NOT NULL,
    policy       text NOT NULL,
    pending      integer NOT NULL,
    assigned     integer NOT NULL,
    kept         integer NOT NULL,
    refused      integer NOT NULL,
    duration_us  bigint NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now()
);

-- Why each request was assigned, kept waiting (written when the reason changes) or turned away.
CREATE TABLE node.decision (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    round_id    bigint NOT NULL REFERENCES node.round (id),
    request_id  bigint NOT NULL,
    commitment  bytea NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('assign', 'keep', 'refuse')),
    reason      text NOT NULL,
    sentence    text NOT NULL,
    worker      bytea,
    score       double precision,
    inputs      jsonb NOT NULL,
    leaf        bytea NOT NULL,              -- keccak256 of the canonical encoding
    intent_id   bigint                       -- the transaction that anchors it
);
CREATE INDEX decision_request ON node.decision (request_id, commitment, id DESC);
CREATE INDEX decision_round ON node.decision (round_id);
CREATE INDEX decision_unanchored ON node.decision (id) WHERE intent_id IS NULL;

-- Requests this node will never serve. A refusal is about the deadline then in force: a
-- reorganisation can undo the cancellation that made it infeasible.
CREATE TABLE node.refusal (
    request_id   bigint NOT NULL,
    commitment   bytea NOT NULL,
    deadline_s   bigint NOT NULL,
    reason       text NOT NULL,
    sentence     text NOT NULL,
    block_number bigint NOT NULL,
    decided_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (request_id, commitment)
);

-- A worker's temporary right to compute a request. `id` is the fencing epoch: it only grows.
CREATE TABLE node.lease (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    request_id  bigint NOT NULL,
    commitment  bytea NOT NULL,
    worker      bytea NOT NULL,
    attempt     integer NOT NULL,
    state       text NOT NULL CHECK (state IN ('active', 'done', 'failed', 'expired')),
    leased_at   timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    failure     text
);
CREATE UNIQUE INDEX lease_active ON node.lease (request_id, commitment) WHERE state = 'active';
CREATE INDEX lease_request ON node.lease (request_id, commitment);
CREATE INDEX lease_expiry ON node.lease (expires_at) WHERE state = 'active';

CREATE TABLE node.result (
    request_id  bigint NOT NULL,
    commitment  bytea NOT NULL,
    worker      bytea NOT NULL,
    lease_id    bigint NOT NULL,
    digest      bytea NOT NULL,              -- keccak256(output)
    output      bytea NOT NULL,
    media_type  text NOT NULL,
    manifest    jsonb NOT NULL,              -- model, back end, sampling, token counts
    signature   bytea NOT NULL,              -- 64 bytes, EIP-2098, over a group of this one item
    compute_ms  bigint NOT NULL,
    computed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (request_id, commitment, worker)
);

-- What has to happen on chain, whatever transaction does it.
CREATE TABLE node.tx_intent (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind           text NOT NULL CHECK (kind IN ('post', 'refund')),
    key            bytea NOT NULL,           -- keccak256 of (kind, target, calldata)
    state          text NOT NULL CHECK (state IN ('planned', 'signed', 'broadcast', 'mined', 'confirmed', 'failed', 'cancelled')),
    sender         bytea NOT NULL,
    target         bytea NOT NULL,
    calldata       bytea NOT NULL,
    gas_limit      bigint NOT NULL,
    decisions_root bytea,
    reason         text NOT NULL,            -- why now
    inputs         jsonb NOT NULL,           -- the numbers that decided
    outcome        text,
    created_at     timestamptz NOT NULL DEFAULT now(),
    closed_at      timestamptz
);
CREATE UNIQUE INDEX tx_intent_live_key ON node.tx_intent (key)
    WHERE state IN ('planned', 'signed', 'broadcast', 'mined');
CREATE INDEX tx_intent_live ON node.tx_intent (id) WHERE state IN ('planned', 'signed', 'broadcast', 'mined');

-- Which requests an intent is about; a request is in one live intent at most.
CREATE TABLE node.tx_item (
    intent_id  bigint NOT NULL REFERENCES node.tx_intent (id),
    request_id bigint NOT NULL,
    commitment bytea NOT NULL,
    worker     bytea,
    live       boolean NOT NULL DEFAULT true,
    outcome    text,                         -- settled, refunded, skipped:<reason>, out_of_gas, reverted, refused, missing, abandoned
    PRIMARY KEY (intent_id, request_id, commitment)
);
CREATE UNIQUE INDEX tx_item_live ON node.tx_item (request_id, commitment) WHERE live;
CREATE INDEX tx_item_request ON node.tx_item (request_id, commitment);

-- One signed transaction; committed before it is first sent, so that a crash re-sends the same bytes.
CREATE TABLE node.tx_attempt (
    hash                    bytea PRIMARY KEY,
    intent_id               bigint NOT NULL REFERENCES node.tx_intent (id),
    chain_id                bigint NOT NULL,
    sender                  bytea NOT NULL,
    nonce                   bigint NOT NULL,
    max_fee_wei             chain.uint256 NOT NULL,
    priority_fee_wei        chain.uint256 NOT NULL,
    gas_limit               bigint NOT NULL,
    raw                     bytea NOT NULL,
    state                   text NOT NULL CHECK (state IN ('signed', 'broadcast', 'mined', 'replaced', 'dropped')),
    created_at              timestamptz NOT NULL DEFAULT now(),
    sent_at                 timestamptz,
    sends                   integer NOT NULL DEFAULT 0,
    mined_block             bigint,
    mined_block_hash        bytea,
    status                  smallint,        -- of the receipt
    gas_used                bigint,
    effective_gas_price_wei chain.uint256,
    error                   text             -- last answer of the endpoint that was not a success
);
CREATE INDEX tx_attempt_intent ON node.tx_attempt (intent_id);
CREATE INDEX tx_attempt_nonce ON node.tx_attempt (chain_id, sender, nonce);

CREATE TABLE node.sender (
    chain_id   bigint NOT NULL,
    address    bytea NOT NULL,
    next_nonce bigint NOT NULL,
    PRIMARY KEY (chain_id, address)
);

-- What posts really cost, for fitting gas = a + b*n.
CREATE TABLE node.gas_observation (
    tx_hash  bytea PRIMARY KEY,
    groups   integer NOT NULL,
    items    integer NOT NULL,
    gas_used bigint NOT NULL,
    seen_at  timestamptz NOT NULL DEFAULT now()
);

-- Speed and reliability, learnt with forgetting.
CREATE TABLE node.service_stat (
    worker        bytea NOT NULL,
    model_id      bytea NOT NULL,
    completed     bigint NOT NULL DEFAULT 0,
    failed        bigint NOT NULL DEFAULT 0,
    weight        double precision NOT NULL DEFAULT 0,  -- effective number of observations
    mean_ms       double precision NOT NULL DEFAULT 0,
    mean_square_ms2 double precision NOT NULL DEFAULT 0,
    updated_at    timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (worker, model_id)
);
