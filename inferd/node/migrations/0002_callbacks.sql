ALTER TABLE node.tx_intent DROP CONSTRAINT tx_intent_kind_check;
ALTER TABLE node.tx_intent ADD CONSTRAINT tx_intent_kind_check CHECK (kind IN ('post', 'refund', 'deliver'));
