-- For how many blocks a decision's margin on gas is.
ALTER TABLE node.decision ADD COLUMN horizon_blocks bigint;

-- Whether a stored result can be posted depends on its worker being enabled and staked, and on nothing else of it: only
-- where that changes is everything read anew. Whether it has results here must not be asked: one that commits meanwhile
-- is not seen.
CREATE OR REPLACE FUNCTION node.touch_all_for_workers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched SELECT NULL WHERE EXISTS (SELECT FROM changed WHERE enabled AND staked);
    RETURN NULL;
END $$;

CREATE FUNCTION node.touch_all_for_changed_workers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched SELECT NULL WHERE EXISTS (
        SELECT FROM changed JOIN before USING (signer)
        WHERE (changed.enabled AND changed.staked) <> (before.enabled AND before.staked));
    RETURN NULL;
END $$;

DROP TRIGGER touch_update ON chain.worker;
CREATE TRIGGER touch_update AFTER UPDATE ON chain.worker REFERENCING OLD TABLE AS before NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all_for_changed_workers();
