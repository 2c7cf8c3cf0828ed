-- Upkeep over many sessions, and the key/value state.

CREATE TYPE removed AS (head sessions, news int);

-- Remove expired sessions of all tenants. Heads are looked up across the walls, then each is removed under its own
-- space; one that is touched or locked at the moment waits for the next sweep.
CREATE FUNCTION sweep_sessions(writer text, now bigint, size bigint) RETURNS SETOF removed LANGUAGE plpgsql AS $$
DECLARE
    head sessions;
    news int;
    changed bytea[] := '{}';
BEGIN
    PERFORM set_config('tenuto.upkeep', 'on', true);
    FOR head IN
        SELECT * FROM sessions
         WHERE set_aside_at IS NULL AND due <= now >> 28 AND expires_at <= now ORDER BY due LIMIT size
    LOOP
        PERFORM set_config('tenuto.space', head.space::text, true);
        PERFORM FROM sessions WHERE ref = head.ref FOR UPDATE SKIP LOCKED;
        IF FOUND AND remove(head.ref, now) THEN
            news := coalesce(news, next_strict());
            changed := changed || head.key;
            RETURN NEXT (head, news)::removed;
        END IF;
    END LOOP;
    PERFORM announce(writer, changed, news);
END
$$;

-- Remove a space's least recently changed sessions beyond a number, oldest first, but not the spared one.
CREATE FUNCTION evict_sessions(writer text, a_space bytea, kept bigint, spared bytea) RETURNS SETOF removed
LANGUAGE plpgsql AS $$
DECLARE
    head sessions;
    news int;
    changed bytea[] := '{}';
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    FOR head IN
        SELECT * FROM (
            SELECT * FROM sessions WHERE space = a_space AND set_aside_at IS NULL
             ORDER BY key IS NOT DISTINCT FROM spared DESC, shelf DESC, updated_at DESC, key DESC OFFSET kept
        ) over ORDER BY updated_at, key
    LOOP
        PERFORM FROM sessions WHERE ref = head.ref AND version = head.version FOR UPDATE SKIP LOCKED;
        IF FOUND AND remove(head.ref) THEN
            news := coalesce(news, next_strict());
            changed := changed || head.key;
            RETURN NEXT (head, news)::removed;
        END IF;
    END LOOP;
    PERFORM announce(writer, changed, news);
END
$$;

CREATE FUNCTION read_state(a_space bytea, a_drawer bytea, a_name bytea) RETURNS SETOF state
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    RETURN QUERY SELECT * FROM state WHERE drawer = a_drawer AND name = a_name;
END
$$;

-- The new version; or, under `conflict`, the one that was found.
CREATE FUNCTION write_state(
    a_space bytea, an_owner bytea, a_drawer bytea, a_name bytea, a_key text, a_value bytea, if_version bigint,
    OUT written bigint, OUT conflict bigint
) LANGUAGE plpgsql AS $$
DECLARE
    found_version bigint;
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    LOOP
        SELECT version INTO found_version FROM state WHERE drawer = a_drawer AND name = a_name FOR UPDATE;
        IF if_version <> coalesce(found_version, 0) THEN
            conflict := coalesce(found_version, 0);
            RETURN;
        ELSIF found_version IS NOT NULL THEN
            UPDATE state SET value = a_value, version = version + 1 WHERE drawer = a_drawer AND name = a_name
            RETURNING version INTO written;
            RETURN;
        END IF;
        INSERT INTO state (drawer, name, space, owner, version, key, value)
        VALUES (a_drawer, a_name, a_space, an_owner, 1, a_key, a_value) ON CONFLICT DO NOTHING RETURNING version INTO written;
        EXIT WHEN written IS NOT NULL;
    END LOOP;
END
$$;

CREATE FUNCTION delete_state(a_space bytea, a_drawer bytea, a_name bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    DELETE FROM state WHERE drawer = a_drawer AND name = a_name;
    RETURN FOUND;
END
$$;

CREATE FUNCTION list_state(a_space bytea, a_drawer bytea, after text, size bigint) RETURNS SETOF state
LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    RETURN QUERY SELECT * FROM state
     WHERE drawer = a_drawer AND left(key, 200) >= left(after, 200) COLLATE "C" AND key > after COLLATE "C"
     ORDER BY left(key, 200), key LIMIT size;
END
$$;
