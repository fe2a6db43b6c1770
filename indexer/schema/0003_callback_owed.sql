-- Consumers that still have to be called, oldest first: few, among ever more that are done.
CREATE INDEX request_callback_owed ON chain.request (settled_block, id)
    WHERE status = 'fulfilled' AND delivery = 2 AND callback_delivered_block IS NULL;
