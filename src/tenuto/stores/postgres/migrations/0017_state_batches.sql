-- Several values of one drawer in one step.

CREATE FUNCTION read_states(a_space bytea, a_drawer bytea, names bytea[]) RETURNS SETOF state
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    RETURN QUERY SELECT * FROM state WHERE drawer = a_drawer AND name = ANY (names);
END
$$;

-- All or none of the changes; one without a value removes. `done` has the new versions, and 1 or 0 for a removal; or
-- `conflict` has the version that was found at the change `place`. In order of names, so that two calls never wait for
-- each other.
CREATE FUNCTION change_states(
    a_space bytea, an_owner bytea, a_drawer bytea, a_scope text, a_namespace text,
    names bytea[], keys text[], contents bytea[], if_versions bigint[],
    OUT done bigint[], OUT place int, OUT conflict bigint
) LANGUAGE plpgsql AS $$
DECLARE
    found_version bigint;
    written bigint;
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    done := array_fill(0::bigint, ARRAY[cardinality(names)]);
    IF a_namespace IS NOT NULL AND cardinality(array_remove(keys, NULL)) > 0 THEN
        INSERT INTO state_spaces VALUES (a_space) ON CONFLICT DO NOTHING;
    END IF;
    FOR place IN SELECT n FROM generate_subscripts(names, 1) AS n ORDER BY names[n] LOOP
        LOOP
            written := NULL;
            SELECT version INTO found_version FROM state WHERE drawer = a_drawer AND name = names[place] FOR UPDATE;
            IF if_versions[place] <> coalesce(found_version, 0) THEN
                conflict := coalesce(found_version, 0);
                RAISE EXCEPTION SQLSTATE 'TN409';
            ELSIF contents[place] IS NULL THEN
                DELETE FROM state WHERE drawer = a_drawer AND name = names[place];
                written := CASE WHEN found_version IS NULL THEN 0 ELSE 1 END;
            ELSIF found_version IS NOT NULL THEN
                UPDATE state SET value = contents[place], version = version + 1, scope = a_scope, namespace = a_namespace
                 WHERE drawer = a_drawer AND name = names[place] RETURNING version INTO written;
            ELSE
                INSERT INTO state (drawer, name, space, owner, version, key, value, scope, namespace)
                VALUES (a_drawer, names[place], a_space, an_owner, 1, keys[place], contents[place], a_scope, a_namespace)
                ON CONFLICT DO NOTHING RETURNING version INTO written;
            END IF;
            EXIT WHEN written IS NOT NULL;
        END LOOP;
        done[place] := written;
    END LOOP;
EXCEPTION WHEN SQLSTATE 'TN409' THEN
    done := NULL;
END
$$;
