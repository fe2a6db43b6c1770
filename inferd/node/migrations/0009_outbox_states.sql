-- More of an intent's life as states. `unknown`: sent and not answered, or its nonce spent by what nobody shows. `final`:
-- closed, in a block that no reorganisation takes away; `outcome` says how it ended.
ALTER TABLE node.tx_intent
    DROP CONSTRAINT tx_intent_state_check,
    ADD CONSTRAINT tx_intent_state_check CHECK (state IN ('planned', 'signed', 'unknown', 'broadcast', 'mined', 'confirmed',
                                                          'failed', 'cancelled', 'final')),
    ADD COLUMN diagnosis       text,             -- why a mined transaction failed, as its replay tells
    ADD COLUMN cancel_asked_at timestamptz;      -- the operator wants its nonce spent on nothing
ALTER TABLE node.tx_attempt
    DROP CONSTRAINT tx_attempt_state_check,
    ADD CONSTRAINT tx_attempt_state_check CHECK (state IN ('signed', 'unknown', 'broadcast', 'mined', 'replaced', 'dropped'));
DROP INDEX node.tx_intent_live_key, node.tx_intent_live;
CREATE UNIQUE INDEX tx_intent_live_key ON node.tx_intent (key)
    WHERE state IN ('planned', 'signed', 'unknown', 'broadcast', 'mined');
CREATE INDEX tx_intent_live ON node.tx_intent (id) WHERE state IN ('planned', 'signed', 'unknown', 'broadcast', 'mined');
-- No chain takes a day back.
UPDATE node.tx_intent SET state = 'final'
WHERE state IN ('confirmed', 'failed', 'cancelled') AND closed_at < now() - interval '1 day';
-- What a reorganisation may open again.
CREATE INDEX tx_intent_watched ON node.tx_intent (id) WHERE state IN ('confirmed', 'failed', 'cancelled');
-- What was spent of late, by what is mined.
DROP INDEX node.tx_intent_refund, node.tx_intent_spending;
CREATE INDEX tx_intent_spent_on_refunds ON node.tx_intent (closed_at) WHERE kind = 'refund';
CREATE INDEX tx_intent_spent_on_work ON node.tx_intent (closed_at) WHERE kind IN ('post', 'deliver');
-- What was given up, whatever came of its request.
CREATE INDEX tx_item_given_up ON node.tx_item (intent_id) WHERE outcome = 'abandoned';

-- A step that is not in the list is a fault of the program: the transaction fails. The lists are INTENT_STEPS and
-- ATTEMPT_STEPS of settlement/state.py.
CREATE FUNCTION node.refuse_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state || '>' || NEW.state <> ALL (TG_ARGV) THEN
        RAISE check_violation USING MESSAGE =
            format('%I of %s may not go from %s to %s', TG_TABLE_NAME, to_jsonb(OLD) ->> TG_ARGV[0], OLD.state, NEW.state);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER step BEFORE UPDATE OF state ON node.tx_intent FOR EACH ROW WHEN (OLD.state <> NEW.state)
    EXECUTE FUNCTION node.refuse_step(
        'id', 'planned>signed', 'planned>cancelled', 'signed>unknown', 'signed>broadcast', 'signed>mined',
        'signed>cancelled', 'unknown>broadcast', 'unknown>mined', 'unknown>cancelled', 'broadcast>unknown',
        'broadcast>mined', 'broadcast>cancelled', 'mined>broadcast', 'mined>confirmed', 'mined>failed',
        'mined>cancelled', 'confirmed>broadcast', 'confirmed>final', 'failed>broadcast', 'failed>final',
        'cancelled>broadcast', 'cancelled>final');
CREATE TRIGGER step BEFORE UPDATE OF state ON node.tx_attempt FOR EACH ROW WHEN (OLD.state <> NEW.state)
    EXECUTE FUNCTION node.refuse_step(
        'hash', 'signed>unknown', 'signed>broadcast', 'signed>mined', 'signed>replaced', 'signed>dropped',
        'unknown>broadcast', 'unknown>mined', 'unknown>replaced', 'unknown>dropped', 'broadcast>mined',
        'broadcast>replaced', 'broadcast>dropped', 'replaced>broadcast', 'replaced>mined', 'replaced>dropped',
        'dropped>unknown', 'dropped>broadcast', 'dropped>mined', 'dropped>replaced', 'mined>broadcast',
        'mined>replaced');

-- What the operator asks of settlement by a command. The daemon that works here does it, and says what came of it.
CREATE TABLE node.settlement_order (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    act       text NOT NULL CHECK (act IN ('retry', 'cancel')),
    intent_id bigint NOT NULL,
    asked_by  text NOT NULL,
    asked_at  timestamptz NOT NULL DEFAULT now(),
    done_at   timestamptz,
    answer    text
);
CREATE INDEX settlement_order_open ON node.settlement_order (id) WHERE done_at IS NULL;
