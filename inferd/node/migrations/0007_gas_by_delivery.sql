-- Results of a post by what their delivery adds to its gas: the model is fitted to mixed posts too.
ALTER TABLE node.gas_observation ADD COLUMN stored integer NOT NULL DEFAULT 0;
ALTER TABLE node.gas_observation ADD COLUMN callbacks integer NOT NULL DEFAULT 0;
