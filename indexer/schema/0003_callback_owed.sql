-- Settlement asks in each block which consumers are still to be called: nearly none of all requests.
CREATE INDEX request_callback_owed ON chain.request (settled_block, id)
    WHERE status = 'fulfilled' AND delivery = 2 AND callback_delivered_block IS NULL
        AND callback_failures = 0;
