-- Deliveries beyond the event, and terms of models.
ALTER TABLE chain.request
    ADD COLUMN under_terms boolean NOT NULL DEFAULT false,  -- its model asks for a proof or a window
    ADD COLUMN callback_delivered_block bigint,             -- when the consumer was called
    ADD COLUMN callback_failures integer NOT NULL DEFAULT 0,
    ADD COLUMN callback_failure bytea;                      -- what it last returned instead

-- Which contract holds back payments; empty is none, and so another deployment than any of now.
ALTER TABLE chain.source ADD COLUMN disputes bytea NOT NULL DEFAULT '';

-- A poster is paid for what a whole transaction settled.
ALTER TABLE chain.payment ALTER COLUMN results DROP NOT NULL;
COMMENT ON COLUMN chain.payment.results IS 'of a worker''s group; null for a poster';
