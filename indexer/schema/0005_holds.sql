-- Payments that are held back while their results can be disputed, and what became of them: a fold of the request's logs.
CREATE TABLE chain.hold (
    request_id         bigint  PRIMARY KEY,
    commitment         bytea   NOT NULL,          -- 20 bytes
    digest             bytea   NOT NULL,          -- of the result that was settled
    workers            bytea[] NOT NULL,
    owners             bytea[] NOT NULL,          -- who is credited for each worker
    payment_wei        chain.uint256 NOT NULL,    -- what the owners share
    poster             bytea   NOT NULL,
    poster_wei         chain.uint256 NOT NULL,
    bond_wei           chain.uint256 NOT NULL,
    disputable_until_s bigint  NOT NULL,          -- the last timestamp at which it can be disputed
    held_block         bigint  NOT NULL,
    held_at_s          bigint  NOT NULL,
    held_tx_hash       bytea   NOT NULL,
    state              text    NOT NULL CHECK (state IN ('held', 'disputed', 'released', 'upheld', 'rejected', 'lapsed')),
    disputer           bytea,
    opened_tx_hash     bytea,
    ruling_until_s     bigint,                    -- the last timestamp at which the arbiter can rule
    slashed_wei        chain.uint256,             -- of all its workers, where the disputer was right
    closed_block       bigint,
    closed_at_s        bigint,
    closed_tx_hash     bytea
);
-- What is due next, among ever more that is paid.
CREATE INDEX hold_due ON chain.hold (disputable_until_s, request_id) WHERE state = 'held';
CREATE INDEX hold_disputed ON chain.hold (ruling_until_s, request_id) WHERE state = 'disputed';
-- Whose it is: strangers' payments can pile up, and nobody need have them paid.
CREATE INDEX hold_poster ON chain.hold (poster) WHERE state IN ('held', 'disputed');
CREATE INDEX hold_owners ON chain.hold USING gin (owners) WHERE state IN ('held', 'disputed');
CREATE INDEX hold_disputer ON chain.hold (disputer) WHERE state = 'disputed';
CREATE INDEX hold_block ON chain.hold (held_block);
CREATE INDEX hold_closed_tx ON chain.hold (closed_tx_hash) WHERE closed_tx_hash IS NOT NULL;

-- What each model asked for from which log on. A request has the newest of before it was made.
CREATE TABLE chain.terms (
    block_hash       bytea    NOT NULL,
    log_index        integer  NOT NULL,
    block_number     bigint   NOT NULL,
    model_id         bytea    NOT NULL,
    verifier         bytea    NOT NULL,           -- all zero = none
    dispute_window_s bigint   NOT NULL,           -- 0 = paid at once
    bond_wei         chain.uint256 NOT NULL,
    min_quorum       smallint NOT NULL,
    PRIMARY KEY (block_hash, log_index)
);
CREATE INDEX terms_model ON chain.terms (model_id, block_number DESC, log_index DESC);
CREATE INDEX terms_block_number ON chain.terms (block_number);

-- Logs that came before there were these tables: `Store.claim` writes their rows.
CREATE INDEX log_held ON chain.log (request_id) WHERE kind = 'PaymentHeld';
CREATE INDEX log_terms ON chain.log (block_number) WHERE kind = 'ModelTermsSet';

-- Who else is of the same owner, among ever more that anybody has registered.
CREATE INDEX worker_owner ON chain.worker (owner);
