-- When a transaction was mined, in time of the chain: accounts are kept by its days. The header is there as long as a
-- reorganisation could take the block; later any log of the block tells the same. Of a block that has neither, because
-- the node was away for longer than that, the nearest log below it has to do: a time that is a little early.
ALTER TABLE node.tx_attempt ADD COLUMN mined_at_s bigint;

CREATE FUNCTION node.date_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.mined_block IS NULL THEN
        NEW.mined_at_s := NULL;
    ELSE
        NEW.mined_at_s := coalesce(
            (SELECT timestamp_s FROM chain.block WHERE number = NEW.mined_block AND hash = NEW.mined_block_hash),
            (SELECT timestamp_s FROM chain.log WHERE block_hash = NEW.mined_block_hash LIMIT 1),
            (SELECT timestamp_s FROM chain.log WHERE block_number <= NEW.mined_block
             ORDER BY block_number DESC LIMIT 1),
            (SELECT timestamp_s FROM chain.cursor));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER date_attempt BEFORE INSERT OR UPDATE OF mined_block, mined_block_hash ON node.tx_attempt
    FOR EACH ROW EXECUTE FUNCTION node.date_attempt();
UPDATE node.tx_attempt SET mined_block = mined_block WHERE mined_block IS NOT NULL;

CREATE INDEX tx_attempt_mined ON node.tx_attempt (mined_at_s) WHERE mined_at_s IS NOT NULL;
-- Every log that moves credit; they are never forgotten.
CREATE INDEX log_credit ON chain.log (timestamp_s)
    WHERE kind IN ('WorkerPaid', 'PosterPaid', 'Credited', 'CreditTransferred', 'Withdrawn');

-- What forgotten transactions cost, by the hour of the chain: written in the transaction that deletes them.
CREATE TABLE node.gas_ledger (
    hour_s              bigint NOT NULL,          -- its begin
    sender              bytea  NOT NULL,
    kind                text   NOT NULL,          -- post, refund or deliver
    transactions        bigint NOT NULL,
    items               bigint NOT NULL,          -- settled, refunded, or whose contract was called
    gas_wei             chain.uint256 NOT NULL,
    wasted_transactions bigint NOT NULL,          -- closed, and none of their items was done by them
    wasted_gas_wei      chain.uint256 NOT NULL,
    PRIMARY KEY (hour_s, sender, kind)
);
