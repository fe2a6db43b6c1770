-- Who else of a quorum signed what is posted, beside `worker`, the one of the lowest address; by rising address.
ALTER TABLE node.tx_item ADD COLUMN others bytea[];

-- The workers of one owner count once in a quorum: an owner that changes is read anew, too.
CREATE OR REPLACE FUNCTION node.touch_all_for_changed_workers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched SELECT NULL WHERE EXISTS (
        SELECT FROM changed JOIN before USING (signer)
        WHERE (changed.enabled AND changed.staked) <> (before.enabled AND before.staked)
           OR changed.owner <> before.owner);
    RETURN NULL;
END $$;
