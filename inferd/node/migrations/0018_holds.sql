-- Payments that are held back: their release, and disputes over results that were found to be lies.
ALTER TABLE node.tx_intent
    DROP CONSTRAINT tx_intent_kind_check,
    ADD CONSTRAINT tx_intent_kind_check CHECK (kind IN ('post', 'refund', 'deliver', 'release', 'close', 'dispute')),
    ADD COLUMN value_wei chain.uint256 NOT NULL DEFAULT 0;  -- sent along: the bond of a dispute
ALTER TABLE node.tx_attempt
    ADD COLUMN value_wei chain.uint256 NOT NULL DEFAULT 0;  -- 0 also of one without effect, whatever its intent's
DROP INDEX node.tx_intent_spent_on_work;
CREATE INDEX tx_intent_spent_on_work ON node.tx_intent (closed_at) WHERE kind <> 'refund';
-- What was staked of late.
CREATE INDEX tx_intent_dispute ON node.tx_intent (id) WHERE kind = 'dispute';
-- Bonds of forgotten transactions that opened a dispute.
ALTER TABLE node.gas_ledger ADD COLUMN bonds_wei chain.uint256 NOT NULL DEFAULT 0;
