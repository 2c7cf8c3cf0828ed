-- The second wall between tenants: a row is visible only while the connection names the row's space, whatever
-- the statement asks for. The functions name it for each call, and it is forgotten at the end of the transaction.
-- IS NOT DISTINCT FROM is `=` that no index is used for: rows are looked up by their keys, and the wall only checks.
DO $$
DECLARE
    kept text;
BEGIN
    FOREACH kept IN ARRAY ARRAY['sessions', 'messages', 'keyed', 'marks', 'state'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', kept);
        -- The tables' owner, too, stands before the wall.
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', kept);
        EXECUTE format(
            'CREATE POLICY own_space ON %I USING (space IS NOT DISTINCT FROM current_setting(''tenuto.space'', true)::bytea)',
            kept
        );
    END LOOP;
END
$$;

-- The sweep looks for expired heads of all tenants. It removes each one under the space it found there.
CREATE POLICY upkeep ON sessions FOR SELECT USING (current_setting('tenuto.upkeep', true) = 'on');
