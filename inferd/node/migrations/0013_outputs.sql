-- Large outputs are in files that are named after their digests; the row is committed after its file. Without both the
-- output was deleted after its time.
ALTER TABLE node.result ALTER COLUMN output DROP NOT NULL;
ALTER TABLE node.result ADD COLUMN file_bytes bigint;      -- how long the output is where it is in a file
ALTER TABLE node.result ADD CHECK (output IS NULL OR file_bytes IS NULL);
CREATE INDEX result_in_file ON node.result (digest) WHERE file_bytes IS NOT NULL;
CREATE INDEX result_output_age ON node.result (computed_at, request_id) WHERE output IS NOT NULL OR file_bytes IS NOT NULL;
