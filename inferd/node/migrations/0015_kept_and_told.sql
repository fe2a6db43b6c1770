-- What is kept for a transaction until it is mined, and again where a reorganisation takes it: `data_fee_wei` alone
-- cannot tell once it holds what was paid.
ALTER TABLE node.tx_attempt ADD COLUMN kept_data_fee_wei chain.uint256 NOT NULL DEFAULT 0;
UPDATE node.tx_attempt SET kept_data_fee_wei = data_fee_wei WHERE data_fee_wei > 0;
-- Whether the worker's own word was written, and what it tells was counted: a writer whose commit was not answered
-- comes again with the same.
ALTER TABLE node.lease ADD COLUMN told boolean NOT NULL DEFAULT false;
UPDATE node.lease SET told = true WHERE state IN ('done', 'failed');
