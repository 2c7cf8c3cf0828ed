-- One session of each space from behind one on, in order of their keys: whose sessions there are. Heads are looked up
-- across the walls, as the sweep does it; each is one step in an index, however many sessions a space has.
CREATE FUNCTION list_spaces(behind bytea, size bigint) RETURNS SETOF sessions LANGUAGE plpgsql STABLE AS $$
DECLARE
    head sessions;
BEGIN
    PERFORM set_config('tenuto.upkeep', 'on', true);
    FOR nth IN 1..size LOOP
        SELECT * INTO head FROM sessions
         WHERE space > behind AND set_aside_at IS NULL ORDER BY space LIMIT 1;
        EXIT WHEN NOT FOUND;
        behind := head.space;
        RETURN NEXT head;
    END LOOP;
END
$$;
