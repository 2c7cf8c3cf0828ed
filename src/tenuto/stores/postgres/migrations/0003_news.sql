-- How caches hear of changes, and how a writer knows that they have.

CREATE SEQUENCE strict_changes AS int CYCLE;

-- The number of a strict change. Changes are told in the order of their numbers, because the lock is held until commit.
CREATE FUNCTION next_strict() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('tenuto strict changes'), hashtext(current_schema()));
    RETURN nextval('strict_changes');
END
$$;

-- Tell caches what changed, once for a batch: each NOTIFY holds a lock of the whole database until its commit.
CREATE FUNCTION announce(writer text, changed bytea[], news int DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    sign text := writer || coalesce('!' || lpad(to_hex(news), 8, '0'), '');
    hex text := '';
    key bytea;
BEGIN
    FOREACH key IN ARRAY changed LOOP
        hex := hex || encode(key, 'hex');
        -- A payload has less than 8000 bytes.
        IF length(hex) >= 7680 THEN
            PERFORM pg_notify(current_schema(), sign || hex);
            hex := '';
        END IF;
    END LOOP;
    IF hex <> '' THEN
        PERFORM pg_notify(current_schema(), sign || hex);
    END IF;
END
$$;

-- A listener vouches for its cache by a lock on the number of the last strict change it has heard of; the lock ends
-- with its connection. A new listener starts from the last number there is, with nobody in between.
CREATE FUNCTION vouch() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    heard int;
BEGIN
    PERFORM set_config('application_name', 'tenuto listener', false);
    PERFORM pg_advisory_xact_lock(hashtext('tenuto strict changes'), hashtext(current_schema()));
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO heard FROM strict_changes;
    PERFORM pg_advisory_lock_shared(hashtext('tenuto listeners ' || current_schema()), heard);
    RETURN heard;
END
$$;

CREATE FUNCTION vouch_on(heard int, before int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_lock_shared(hashtext('tenuto listeners ' || current_schema()), heard);
    PERFORM pg_advisory_unlock_shared(hashtext('tenuto listeners ' || current_schema()), before);
END
$$;

-- Whether every listener has heard of a strict change.
CREATE FUNCTION heard_by_all(news int) RETURNS boolean LANGUAGE sql AS $$
    SELECT NOT EXISTS (
        SELECT FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND objid::bigint < news AND objsubid = 2
           AND classid = hashtext('tenuto listeners ' || current_schema())::oid
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
$$;
