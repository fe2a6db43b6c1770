-- Up to which final block the tables were compared with the chain once more.
CREATE TABLE chain.recheck (
    singleton    boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    block_number bigint NOT NULL,
    block_hash   bytea  NOT NULL
);

-- Settled requests whose rows and logs were deleted after the retention time: not missing, but forgotten.
CREATE TABLE chain.forgotten (
    request_id    bigint PRIMARY KEY,
    settled_block bigint NOT NULL
);

-- How many settled requests there are up to a block that no reorganisation can take, so that nobody
-- has to count them: those that are here, and those that are forgotten.
CREATE TABLE chain.tally (
    singleton           boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    to_block            bigint NOT NULL DEFAULT -1,
    fulfilled           bigint NOT NULL DEFAULT 0,
    refunded            bigint NOT NULL DEFAULT 0,
    forgotten_fulfilled bigint NOT NULL DEFAULT 0,
    forgotten_refunded  bigint NOT NULL DEFAULT 0
);
INSERT INTO chain.tally DEFAULT VALUES;

-- Oldest settled first, for retention; newest, for counts.
CREATE INDEX request_settled ON chain.request (settled_block, id) INCLUDE (status)
    WHERE settled_block IS NOT NULL;
-- What was created in a range of blocks, for `inferd index verify`.
CREATE INDEX request_created ON chain.request (created_block);
