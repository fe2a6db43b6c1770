-- What the chain says. One writer; headers, logs, derived rows and the cursor commit together.
CREATE SCHEMA chain;

CREATE DOMAIN chain.uint256 AS numeric(78, 0)
    CHECK (VALUE >= 0 AND VALUE < 115792089237316195423570985008687907853269984665640564039457584007913129639936);

-- Which deployment on which chain this database is an index of.
CREATE TABLE chain.source (
    singleton    boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    chain_id     bigint NOT NULL,
    genesis_hash bytea  NOT NULL,
    start_block  bigint NOT NULL,
    requests     bytea  NOT NULL,
    results      bytea  NOT NULL,
    registry     bytea  NOT NULL,
    stakes       bytea  NOT NULL
);

-- The newest block whose rows are all here.
CREATE TABLE chain.cursor (
    singleton        boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    block_number     bigint NOT NULL,
    block_hash       bytea  NOT NULL,
    timestamp_s      bigint NOT NULL,
    base_fee_wei     chain.uint256 NOT NULL,
    gas_limit        bigint NOT NULL,
    finalized_number bigint NOT NULL,
    updated_at       timestamptz NOT NULL DEFAULT now()
);

-- Canonical headers from some way below the finalized block (the indexer's window) to the cursor.
CREATE TABLE chain.block (
    number       bigint PRIMARY KEY,
    hash         bytea  NOT NULL,
    parent_hash  bytea  NOT NULL,
    timestamp_s  bigint NOT NULL,
    base_fee_wei chain.uint256 NOT NULL,
    gas_used     bigint NOT NULL,
    gas_limit    bigint NOT NULL
);

-- Every log of the deployment on the canonical chain, as the chain has it. All other tables derive from these rows.
CREATE TABLE chain.log (
    block_hash   bytea    NOT NULL,
    log_index    integer  NOT NULL,
    block_number bigint   NOT NULL,
    timestamp_s  bigint   NOT NULL,   -- of its block, whose header may be pruned
    tx_hash      bytea    NOT NULL,
    tx_index     integer  NOT NULL,
    address      bytea    NOT NULL,
    kind         text     NOT NULL,   -- the event's name
    request_id   bigint,              -- what it says something of; null also where no request can have the id
    worker       bytea,               -- whose row it changes, not whom it pays
    topics       bytea[]  NOT NULL,
    data         bytea    NOT NULL,
    PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX log_block_number ON chain.log (block_number);
CREATE INDEX log_request ON chain.log (request_id, block_number, log_index) WHERE request_id IS NOT NULL;
CREATE INDEX log_worker ON chain.log (worker, block_number, log_index) WHERE worker IS NOT NULL;

-- Logs of ours that could not be read; counted and replayable, never in the way.
CREATE TABLE chain.quarantine (
    block_hash   bytea    NOT NULL,
    log_index    integer  NOT NULL,
    block_number bigint   NOT NULL,
    tx_hash      bytea    NOT NULL,
    tx_index     integer  NOT NULL,
    address      bytea    NOT NULL,
    topics       bytea[]  NOT NULL,
    data         bytea    NOT NULL,
    reason       text     NOT NULL,
    PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX quarantine_block_number ON chain.quarantine (block_number);

CREATE TYPE chain.request_status AS ENUM ('pending', 'fulfilled', 'refunded');

CREATE TABLE chain.request (
    id                  bigint  PRIMARY KEY,
    commitment          bytea   NOT NULL,   -- 20 bytes
    requester           bytea   NOT NULL,
    model_id            bytea   NOT NULL,
    input_kind          smallint NOT NULL,  -- 0 inline, 1 URI
    input               bytea   NOT NULL,
    max_tokens          bigint  NOT NULL,
    memory_mb           bigint  NOT NULL,
    callback_gas_limit  bigint  NOT NULL,
    quorum              smallint NOT NULL,
    batchable           boolean NOT NULL,
    delivery            smallint NOT NULL,  -- 0 event, 1 stored, 2 callback
    fee_wei             chain.uint256 NOT NULL,   -- now held
    deadline_s          bigint  NOT NULL,         -- now in force
    submitted_deadline_s bigint NOT NULL,         -- part of the commitment
    cancel_requested    boolean NOT NULL DEFAULT false,
    created_block       bigint  NOT NULL,
    created_block_hash  bytea   NOT NULL,
    created_log_index   integer NOT NULL,
    created_tx_hash     bytea   NOT NULL,
    created_at_s        bigint  NOT NULL,         -- timestamp of that block
    status              chain.request_status NOT NULL DEFAULT 'pending',
    digest              bytea,                    -- of the fulfilled result
    worker              bytea,                    -- who is named for it
    settled_block       bigint,
    settled_tx_hash     bytea
);
CREATE INDEX request_pending_deadline ON chain.request (deadline_s) WHERE status = 'pending';
CREATE INDEX request_requester ON chain.request (requester, id);
CREATE INDEX request_settled_tx ON chain.request (settled_tx_hash) WHERE settled_tx_hash IS NOT NULL;

CREATE TABLE chain.worker (
    signer           bytea   PRIMARY KEY,
    owner            bytea   NOT NULL,
    models           bytea[] NOT NULL,
    endpoint         bytea   NOT NULL,
    slots            bigint  NOT NULL,
    memory_mb        bigint  NOT NULL,
    enabled          boolean NOT NULL,
    staked           boolean NOT NULL,
    stake_wei        chain.uint256 NOT NULL,
    unbonding_wei    chain.uint256 NOT NULL,
    registered_block bigint  NOT NULL
);

-- Who was paid how much by which transaction; `role` is 'worker' or 'poster'.
CREATE TABLE chain.payment (
    block_hash   bytea   NOT NULL,
    log_index    integer NOT NULL,
    block_number bigint  NOT NULL,
    tx_hash      bytea   NOT NULL,
    role         text    NOT NULL CHECK (role IN ('worker', 'poster')),
    account      bytea   NOT NULL,          -- who is credited
    worker       bytea,                     -- whose signature earned it
    results      bigint  NOT NULL,          -- of the group; its poster's row says it again
    amount_wei   chain.uint256 NOT NULL,
    PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX payment_block_number ON chain.payment (block_number);
