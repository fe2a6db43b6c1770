-- What is large of what a process tells is kept apart from what it tells every second: what each of its workers offers, of
-- which only what has changed is written and read, and what people are shown of all workers.
ALTER TABLE node.process ADD COLUMN version bigint NOT NULL DEFAULT 0;  -- of the newest of its offers
ALTER TABLE node.process ADD COLUMN pool jsonb;

CREATE TABLE node.process_offers (
    process text NOT NULL REFERENCES node.process ON DELETE CASCADE,
    worker  bytea NOT NULL,
    version bigint NOT NULL,                 -- grows with each change of any of the process's
    models  jsonb NOT NULL,
    PRIMARY KEY (process, worker)
);
