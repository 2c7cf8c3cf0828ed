-- What all changes of a session share: find and lock its head, tell why there is none, make one, write it back.
-- Outcomes are returned as codes and never raised, so that one call cannot spoil a batch of them.

-- `news` is the number of a change that caches must have heard of before it is acknowledged.
CREATE TYPE told AS (code text, detail bigint, head sessions, news int);

-- Whether the head can be read; a damaged one is found before anything is built on it.
CREATE FUNCTION sound(head sessions) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT json_typeof(head.scope) = 'object' AND json_typeof(head.context) = 'object'
       AND json_typeof(head.attributes) = 'object' AND json_typeof(head.metadata) = 'object'
$$;

-- The head, locked, if the caller reaches it. Otherwise `ref` is null, and `unreached` tells why. Rows out of
-- reach are not locked: a lock is a write, and a stranger could tell by the time it takes.
CREATE FUNCTION reach(a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint) RETURNS sessions
LANGUAGE plpgsql AS $$
DECLARE
    head sessions;
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    SELECT * INTO head FROM sessions
     WHERE key = a_key
       AND (whole OR owner = an_owner) AND (expires_at IS NULL OR expires_at > now)
       FOR UPDATE;
    IF head.ref IS NOT NULL AND NOT sound(head) THEN
        UPDATE sessions SET key = NULL, set_aside_at = now, set_aside_why = 'head' WHERE ref = head.ref;
        PERFORM announce('--------', ARRAY[a_key]);
        head.ref := NULL;
        head.set_aside_at := now;
    END IF;
    RETURN head;
END
$$;

-- Why a head was not reached: absent, expired, foreign, corrupt; or it appeared in this very moment.
CREATE FUNCTION unreached(missed sessions, a_key bytea, an_owner bytea, whole boolean, now bigint) RETURNS told
LANGUAGE plpgsql AS $$
DECLARE
    why told;
    head sessions;
BEGIN
    SELECT * INTO head FROM sessions WHERE key = a_key;
    why.head := head;
    why.code := CASE
        WHEN missed.set_aside_at IS NOT NULL THEN 'corrupt'
        WHEN head.ref IS NULL THEN 'absent'
        WHEN head.expires_at <= now THEN 'expired'
        WHEN NOT whole AND head.owner <> an_owner THEN 'foreign'
        ELSE 'appeared'
    END;
    RETURN why;
END
$$;

-- Remove a record with everything of it, unless somebody touched it since it was found expired.
CREATE FUNCTION remove(a_ref bigint, expired_by bigint DEFAULT NULL) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM sessions WHERE ref = a_ref AND (expired_by IS NULL OR expires_at <= expired_by);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM messages WHERE ref = a_ref;
    DELETE FROM keyed WHERE ref = a_ref;
    DELETE FROM marks WHERE ref = a_ref;
    DELETE FROM traces WHERE ref = a_ref;
    RETURN true;
END
$$;

-- A new head, or nulls when somebody else made one at the same time.
CREATE FUNCTION make(
    a_key bytea, a_space bytea, an_owner bytea, an_id text, an_incarnation text, now bigint, given json
) RETURNS sessions LANGUAGE plpgsql AS $$
DECLARE
    head sessions;
BEGIN
    INSERT INTO sessions (
        version, updated_at, shelf, created_at, key, space, owner, incarnation, id, scope, title, folded,
        context, attributes, metadata, touch, idle, max_messages, max_turns
    ) VALUES (
        0, now, now >> 26, now, a_key, a_space, an_owner, an_incarnation, an_id,
        given->'scope', given->>'title', given->>'folded', given->'context', given->'attributes', given->'metadata',
        given->>'touch', (given->>'idle')::bigint, (given->>'max_messages')::bigint, (given->>'max_turns')::bigint
    ) ON CONFLICT (key) DO NOTHING
    RETURNING * INTO head;
    RETURN head;
END
$$;

CREATE TYPE found AS (code text, detail bigint, head sessions, created boolean, expired boolean);

-- The head, locked, made where it may be; `code` tells why there is none. Nothing is made for a producer that does
-- not begin at 1, and an expired record makes room only for a new one.
CREATE FUNCTION find_or_make(
    a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint,
    an_id text, an_incarnation text, given json, producer_seq bigint
) RETURNS found LANGUAGE plpgsql AS $$
DECLARE
    place found;
    why told;
BEGIN
    LOOP
        place.created := false;
        place.expired := false;
        place.head := reach(a_key, a_space, an_owner, whole, now);
        EXIT WHEN (place.head).ref IS NOT NULL;
        why := unreached(place.head, a_key, an_owner, whole, now);
        CONTINUE WHEN why.code = 'appeared';
        IF given IS NULL OR why.code IN ('foreign', 'corrupt') THEN
            place.code := why.code;
            place.head := why.head;
            EXIT;
        ELSIF producer_seq > 1 THEN
            place.code := 'gap';
            place.detail := 1;
            EXIT;
        END IF;
        place.expired := why.code = 'expired';
        CONTINUE WHEN place.expired AND NOT remove((why.head).ref, now);
        place.head := make(a_key, a_space, an_owner, an_id, an_incarnation, now, given);
        place.created := (place.head).ref IS NOT NULL;
        EXIT WHEN place.created;
    END LOOP;
    RETURN place;
END
$$;

-- Where the log begins after its caps are applied. Costs what is removed, not what is kept.
CREATE FUNCTION beginning(head sessions) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    over bigint := greatest(head.messages - head.max_messages, 0);
    cut bigint := head.first_seq;
    turn_cut bigint;
BEGIN
    IF over > 0 AND head.last_seq - head.first_seq + 1 = head.messages THEN
        cut := head.first_seq + over;
    ELSIF over > 0 THEN
        -- A truncation left a gap in the numbers.
        SELECT seq INTO cut FROM messages
         WHERE ref = head.ref AND seq >= head.first_seq ORDER BY seq OFFSET over LIMIT 1;
    END IF;
    IF head.max_turns IS NOT NULL AND head.messages > 0 THEN
        SELECT seq INTO turn_cut FROM messages
         WHERE ref = head.ref AND seq >= head.first_seq AND turn > head.turns - head.max_turns ORDER BY seq LIMIT 1;
        cut := greatest(cut, coalesce(turn_cut, head.last_seq + 1));
    END IF;
    RETURN cut;
END
$$;

-- When a session that is touched now will be gone.
CREATE FUNCTION deadline(head sessions, now bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT head.idle + CASE WHEN head.touch = 'never' THEN head.created_at ELSE greatest(now, head.updated_at) END
$$;

-- Every change ends here: caps, counters, version, deadline. Context, attributes and metadata are not written
-- again, because a large value would be copied with every turn; `apply` changes those.
CREATE FUNCTION keep(head sessions, now bigint) RETURNS sessions LANGUAGE plpgsql AS $$
DECLARE
    cut bigint := head.first_seq;
    gone bigint;
BEGIN
    IF head.messages > head.max_messages OR head.max_turns IS NOT NULL THEN
        cut := beginning(head);
    END IF;
    IF cut > head.first_seq THEN
        DELETE FROM messages WHERE ref = head.ref AND seq >= head.first_seq AND seq < cut;
        GET DIAGNOSTICS gone = ROW_COUNT;
        head.messages := head.messages - gone;
        head.first_seq := cut;
    END IF;
    head.version := head.version + 1;
    head.expires_at := deadline(head, now);
    head.updated_at := greatest(now, head.updated_at);
    head.shelf := head.updated_at >> 26;
    head.due := head.expires_at >> 28;
    UPDATE sessions SET
        version = head.version, updated_at = head.updated_at, expires_at = head.expires_at, shelf = head.shelf,
        due = head.due, turns = head.turns, messages = head.messages, first_seq = head.first_seq,
        last_seq = head.last_seq, window_start = head.window_start, tokens = head.tokens,
        cost_nanos = head.cost_nanos, keyed = head.keyed, last_active = head.last_active,
        lease = head.lease, lease_until = head.lease_until, lease_key = head.lease_key, closed = head.closed,
        idle = head.idle, touch = head.touch,
        max_messages = head.max_messages, max_turns = head.max_turns, status = head.status,
        title = head.title, folded = head.folded
     WHERE ref = head.ref;
    RETURN head;
END
$$;

-- An object with a patch applied by key, null removing. Values keep their text.
CREATE FUNCTION merged(old json, patch json) RETURNS json LANGUAGE sql IMMUTABLE AS $$
    SELECT ('{' || coalesce(string_agg(to_json(key)::text || ':' || value::text, ','), '') || '}')::json
      FROM (
        SELECT key, value FROM json_each(old) WHERE NOT key IN (SELECT json_object_keys(patch))
        UNION ALL
        SELECT key, value FROM json_each(patch) WHERE json_typeof(value) <> 'null'
      ) entries
$$;

-- The head with named changes; `keep` must follow.
CREATE FUNCTION apply(head sessions, changes json) RETURNS sessions LANGUAGE plpgsql AS $$
BEGIN
    head.title := coalesce(changes->>'title', head.title);
    head.folded := coalesce(changes->>'folded', head.folded);
    head.status := coalesce(changes->>'status', head.status);
    head.window_start := coalesce((changes->>'window_start')::bigint, head.window_start);
    IF changes->'context' IS NOT NULL THEN
        UPDATE sessions SET context = merged(head.context, changes->'context')
         WHERE ref = head.ref RETURNING context INTO head.context;
    END IF;
    IF changes->'attributes' IS NOT NULL THEN
        UPDATE sessions SET attributes = merged(head.attributes, changes->'attributes')
         WHERE ref = head.ref RETURNING attributes INTO head.attributes;
    END IF;
    IF changes->'metadata' IS NOT NULL THEN
        UPDATE sessions SET metadata = merged(head.metadata, changes->'metadata')
         WHERE ref = head.ref RETURNING metadata INTO head.metadata;
    END IF;
    RETURN head;
END
$$;
