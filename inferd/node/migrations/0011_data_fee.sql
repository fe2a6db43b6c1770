-- What a chain takes for a transaction beside its gas (the data and operator fees of OP-stack rollups): by the
-- receipt where it is mined, and what was kept for it before.
ALTER TABLE node.tx_attempt ADD COLUMN data_fee_wei chain.uint256 NOT NULL DEFAULT 0;
