-- Content that requests name by URI, fetched once. A row is about the request's input (the hash of the content, then the
-- URI), whoever asks with it; one that has none yet was not tried.
CREATE TABLE node.input (
    key            bytea PRIMARY KEY,          -- sha256 of the request's input
    state          text NOT NULL CHECK (state IN ('trying', 'here', 'lost')),
    content        bytea,
    tries          integer NOT NULL,
    trouble        text,                       -- how the last try failed, in words
    next_try_at    timestamptz,
    newest_request bigint NOT NULL,            -- the newest request that its tries were for
    changed_at     timestamptz NOT NULL DEFAULT now(),
    CHECK ((content IS NOT NULL) = (state = 'here')),
    CHECK ((next_try_at IS NOT NULL) = (state = 'trying'))
);
CREATE INDEX input_changed ON node.input (changed_at);

CREATE INDEX request_by_uri ON chain.request (sha256(input)) WHERE input_kind = 1 AND status = 'pending';

CREATE FUNCTION node.touch_inputs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched SELECT r.id FROM changed c JOIN chain.request r
        ON sha256(r.input) = c.key AND r.input_kind = 1 AND r.status = 'pending';
    RETURN NULL;
END $$;

CREATE TRIGGER touch_insert AFTER INSERT ON node.input REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION node.touch_inputs();
CREATE TRIGGER touch_update AFTER UPDATE ON node.input REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION node.touch_inputs();
CREATE TRIGGER touch_delete AFTER DELETE ON node.input REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION node.touch_inputs();
