-- The newest posts that were mined whole, for the model of their gas.
CREATE INDEX gas_observation_seen ON node.gas_observation (seen_at DESC);
-- Rounds and closed transactions that are old enough to be deleted.
CREATE INDEX round_created ON node.round (created_at);
CREATE INDEX tx_intent_closed ON node.tx_intent (closed_at, id) WHERE closed_at IS NOT NULL;
-- The decisions that a transaction anchors.
CREATE INDEX decision_intent ON node.decision (intent_id) WHERE intent_id IS NOT NULL;
-- What refunds cost of late.
CREATE INDEX tx_intent_refund ON node.tx_intent (created_at) WHERE kind = 'refund';
-- What keeps a request out of a new transaction, and what makes it suspect: few among all items.
CREATE INDEX tx_item_held ON node.tx_item (request_id, commitment)
    WHERE live OR (outcome = 'abandoned' AND worker IS NULL);
CREATE INDEX tx_item_abandoned ON node.tx_item (request_id, commitment, worker) WHERE outcome = 'abandoned';
CREATE INDEX tx_item_unsigned ON node.tx_item (request_id, commitment) WHERE worker IS NULL;
