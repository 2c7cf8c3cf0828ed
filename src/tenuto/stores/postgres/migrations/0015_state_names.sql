-- A drawer is a digest. What users and chats keep must be found without knowing its names: `scope` and `namespace` stand
-- beside each value of theirs. The tenant's own state is not looked for, and has neither.
ALTER TABLE state ADD scope text, ADD namespace text;
ALTER TABLE state ALTER scope SET STATISTICS 0, ALTER namespace SET STATISTICS 0;

CREATE INDEX state_of_space ON state (space, owner, drawer, name) WHERE namespace IS NOT NULL;

-- The spaces in which users or chats have kept something. Upkeep looks here across the walls, and sees no word.
CREATE TABLE state_spaces (space bytea PRIMARY KEY);

ALTER TABLE state_spaces ENABLE ROW LEVEL SECURITY;
ALTER TABLE state_spaces FORCE ROW LEVEL SECURITY;
CREATE POLICY own_space ON state_spaces USING (space IS NOT DISTINCT FROM current_setting('tenuto.space', true)::bytea);
CREATE POLICY upkeep ON state_spaces FOR SELECT USING (current_setting('tenuto.upkeep', true) = 'on');

-- The new version; or, under `conflict`, the one that was found. The function of this name that takes no scope stays:
-- processes that began before call it until they end.
CREATE FUNCTION write_state(
    a_space bytea, an_owner bytea, a_drawer bytea, a_name bytea, a_scope text, a_namespace text,
    a_key text, a_value bytea, if_version bigint, OUT written bigint, OUT conflict bigint
) LANGUAGE plpgsql AS $$
DECLARE
    found_version bigint;
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    IF a_namespace IS NOT NULL THEN
        INSERT INTO state_spaces VALUES (a_space) ON CONFLICT DO NOTHING;
    END IF;
    LOOP
        SELECT version INTO found_version FROM state WHERE drawer = a_drawer AND name = a_name FOR UPDATE;
        IF if_version <> coalesce(found_version, 0) THEN
            conflict := coalesce(found_version, 0);
            RETURN;
        ELSIF found_version IS NOT NULL THEN
            UPDATE state SET value = a_value, version = version + 1, scope = a_scope, namespace = a_namespace
             WHERE drawer = a_drawer AND name = a_name RETURNING version INTO written;
            RETURN;
        END IF;
        INSERT INTO state (drawer, name, space, owner, version, key, value, scope, namespace)
        VALUES (a_drawer, a_name, a_space, an_owner, 1, a_key, a_value, a_scope, a_namespace)
        ON CONFLICT DO NOTHING RETURNING version INTO written;
        EXIT WHEN written IS NOT NULL;
    END LOOP;
END
$$;

-- Values of users and chats from behind a place on, up to an owner; without the values themselves.
CREATE TYPE state_name AS (space bytea, owner bytea, drawer bytea, name bytea, scope text, namespace text, key text);

CREATE FUNCTION list_state_names(
    a_space bytea, an_owner bytea, a_drawer bytea, a_name bytea, last_owner bytea, size bigint
) RETURNS SETOF state_name LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    RETURN QUERY SELECT space, owner, drawer, name, scope, namespace, key FROM state
     WHERE space = a_space AND (owner, drawer, name) > (an_owner, a_drawer, a_name) AND owner <= last_owner
       AND namespace IS NOT NULL
     ORDER BY owner, drawer, name LIMIT size;
END
$$;

-- One value's name of each space in which users or chats keep something, from behind one on, in order of their keys.
-- Each is looked at from inside its own walls; where all of it went since, it is passed over.
CREATE FUNCTION list_state_spaces(behind bytea, size bigint) RETURNS SETOF state_name LANGUAGE plpgsql STABLE AS $$
DECLARE
    told bigint := 0;
    one state_name;
BEGIN
    PERFORM set_config('tenuto.upkeep', 'on', true);
    WHILE told < size LOOP
        SELECT space INTO behind FROM state_spaces WHERE space > behind ORDER BY space LIMIT 1;
        EXIT WHEN NOT FOUND;
        PERFORM set_config('tenuto.space', behind::text, true);
        SELECT space, owner, drawer, name, scope, namespace, key INTO one FROM state
         WHERE space = behind AND namespace IS NOT NULL LIMIT 1;
        IF FOUND THEN
            told := told + 1;
            RETURN NEXT one;
        END IF;
    END LOOP;
END
$$;
