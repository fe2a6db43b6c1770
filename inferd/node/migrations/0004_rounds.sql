-- A decision's numbers in typed columns: rows are copied in, and sentence and leaf are made from them when somebody asks.
ALTER TABLE node.round
    ADD COLUMN policy_version text NOT NULL DEFAULT '';
ALTER TABLE node.decision
    ADD COLUMN lease_ms          bigint,
    ADD COLUMN fee_wei           chain.uint256,
    ADD COLUMN revenue_wei       chain.uint256,
    ADD COLUMN gas_need_wei      chain.uint256,
    ADD COLUMN gas_price_wei     chain.uint256,
    ADD COLUMN margin_ppm        bigint,
    ADD COLUMN delivery_gas      bigint,
    ADD COLUMN deadline_s        bigint,
    ADD COLUMN now_s             double precision,
    ADD COLUMN wait_s            double precision,
    ADD COLUMN budget_ms         bigint,
    ADD COLUMN inclusion_s       double precision,
    ADD COLUMN p90_ms            double precision,
    ADD COLUMN completion_ms     double precision,
    ADD COLUMN registered        bigint,
    ADD COLUMN available         bigint,
    ADD COLUMN available_slots   bigint,
    ADD COLUMN owned_only        boolean,
    ADD COLUMN attempts          bigint,
    ADD COLUMN max_attempts      bigint,
    ADD COLUMN tried             bigint,
    ADD COLUMN memory_mb         bigint,
    ADD COLUMN largest_memory_mb bigint,
    ADD COLUMN "limit"           double precision,
    ADD COLUMN used              double precision,
    ADD COLUMN detail            text,
    ALTER COLUMN leaf DROP NOT NULL;             -- of rows from before; a newer one's is made of its columns
UPDATE node.decision SET
    fee_wei = (inputs ->> 'fee_wei')::numeric, revenue_wei = (inputs ->> 'revenue_wei')::numeric,
    gas_need_wei = (inputs ->> 'gas_need_wei')::numeric,
    gas_price_wei = (inputs ->> 'gas_price_wei')::numeric,
    margin_ppm = round((inputs ->> 'gas_margin')::numeric * 1000000),
    delivery_gas = (inputs ->> 'delivery_gas')::bigint, deadline_s = (inputs ->> 'deadline_s')::bigint,
    now_s = coalesce(inputs ->> 'now_s', inputs ->> 'block_timestamp_s')::double precision,
    wait_s = (inputs ->> 'wait_s')::double precision, budget_ms = (inputs ->> 'budget_ms')::bigint,
    inclusion_s = (inputs ->> 'inclusion_s')::double precision,
    p90_ms = coalesce(inputs ->> 'p90_ms', inputs ->> 'best_p90_ms')::double precision,
    completion_ms = (inputs ->> 'completion_ms')::double precision,
    registered = coalesce(inputs ->> 'registered', inputs ->> 'workers')::bigint,
    available = (inputs ->> 'available')::bigint,
    available_slots = (inputs ->> 'available_slots')::bigint,
    attempts = (inputs ->> 'attempts')::bigint, max_attempts = (inputs ->> 'max_attempts')::bigint,
    tried = (inputs ->> 'tried')::bigint, memory_mb = (inputs ->> 'memory_mb')::bigint,
    largest_memory_mb = (inputs ->> 'largest_memory_mb')::bigint,
    detail = coalesce(inputs ->> 'unsupported', inputs ->> 'bad_input', left(inputs ->> 'model', 10) || '…');
ALTER TABLE node.decision DROP COLUMN sentence, DROP COLUMN inputs;
ALTER TABLE node.refusal DROP COLUMN sentence;

-- Requests of which something may have changed since the rounds read them last; NULL = all of them. Written by triggers
-- in the transaction of the change, taken out by the working daemon. Not logged: after a crash of the server the daemon
-- reads everything anew anyway.
CREATE UNLOGGED TABLE node.touched (request_id bigint);

CREATE FUNCTION node.touch_requests() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched SELECT id FROM changed;
    RETURN NULL;
END $$;

CREATE FUNCTION node.touch_work() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched SELECT request_id FROM changed;
    RETURN NULL;
END $$;

CREATE FUNCTION node.touch_all_for_workers() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched SELECT NULL WHERE EXISTS (SELECT FROM changed);
    RETURN NULL;
END $$;

CREATE FUNCTION node.touch_all() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO node.touched VALUES (NULL);
    RETURN NULL;
END $$;

DO $$
DECLARE
    source record;
BEGIN
    FOR source IN
        SELECT * FROM (VALUES ('chain.request', 'node.touch_requests'), ('node.lease', 'node.touch_work'),
                              ('node.result', 'node.touch_work'), ('node.tx_item', 'node.touch_work'),
                              ('node.refusal', 'node.touch_work')) AS sources (name, touch)
    LOOP
        EXECUTE format('CREATE TRIGGER touch_insert AFTER INSERT ON %s REFERENCING NEW TABLE AS changed
                        FOR EACH STATEMENT EXECUTE FUNCTION %s()', source.name, source.touch);
        EXECUTE format('CREATE TRIGGER touch_update AFTER UPDATE ON %s REFERENCING NEW TABLE AS changed
                        FOR EACH STATEMENT EXECUTE FUNCTION %s()', source.name, source.touch);
        EXECUTE format('CREATE TRIGGER touch_delete AFTER DELETE ON %s REFERENCING OLD TABLE AS changed
                        FOR EACH STATEMENT EXECUTE FUNCTION %s()', source.name, source.touch);
        EXECUTE format('CREATE TRIGGER touch_truncate AFTER TRUNCATE ON %s
                        FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all()', source.name);
    END LOOP;
    -- Whether a stored result can be posted depends on its worker.
    CREATE TRIGGER touch_insert AFTER INSERT ON chain.worker REFERENCING NEW TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all_for_workers();
    CREATE TRIGGER touch_update AFTER UPDATE ON chain.worker REFERENCING NEW TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all_for_workers();
    CREATE TRIGGER touch_delete AFTER DELETE ON chain.worker REFERENCING OLD TABLE AS changed
        FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all_for_workers();
    CREATE TRIGGER touch_truncate AFTER TRUNCATE ON chain.worker
        FOR EACH STATEMENT EXECUTE FUNCTION node.touch_all();
END $$;
