-- A copy from one store to another reads and writes the records of all tenants as they are. It says so for each of its
-- transactions; nothing else does, so that all other statements still stand before the walls.
DO $$
DECLARE
    kept text;
BEGIN
    FOREACH kept IN ARRAY ARRAY['sessions', 'messages', 'keyed', 'marks', 'traces', 'state', 'state_spaces'] LOOP
        EXECUTE format('CREATE POLICY copying ON %I USING (current_setting(''tenuto.copying'', true) = ''on'')', kept);
    END LOOP;
END
$$;
