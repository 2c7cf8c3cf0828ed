-- Changes that are rarer than turns, one to a call.

CREATE FUNCTION patch_session(
    writer text, a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint,
    changes json, if_version bigint
) RETURNS told LANGUAGE plpgsql AS $$
DECLARE
    answer told;
    head sessions;
BEGIN
    head := reach(a_key, a_space, an_owner, whole, now);
    IF head.ref IS NULL THEN
        RETURN unreached(head, a_key, an_owner, whole, now);
    ELSIF if_version <> head.version THEN
        answer.code := 'version';
        answer.detail := head.version;
        RETURN answer;
    END IF;
    answer.code := 'changed';
    answer.head := keep(apply(head, changes), now);
    PERFORM announce(writer, ARRAY[a_key]);
    RETURN answer;
END
$$;

CREATE FUNCTION reset_session(
    writer text, a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint, sparing text[]
) RETURNS told LANGUAGE plpgsql AS $$
DECLARE
    answer told;
    head sessions;
BEGIN
    head := reach(a_key, a_space, an_owner, whole, now);
    IF head.ref IS NULL THEN
        RETURN unreached(head, a_key, an_owner, whole, now);
    END IF;
    DELETE FROM messages WHERE ref = head.ref;
    DELETE FROM keyed WHERE ref = head.ref;
    DELETE FROM traces WHERE ref = head.ref;
    head.context := '{}';
    head.metadata := coalesce(
        (SELECT json_object_agg(name, value) FROM json_each(head.metadata) AS its (name, value)
          WHERE name = ANY (sparing)),
        '{}'
    );
    UPDATE sessions SET context = head.context, metadata = head.metadata WHERE ref = head.ref;
    head.keyed := 0;
    head.messages := 0;
    head.first_seq := head.last_seq + 1;
    head.window_start := head.last_seq + 1;
    head.lease := NULL;
    head.lease_until := NULL;
    head.lease_key := NULL;
    head.closed := NULL;
    answer.code := 'changed';
    answer.head := keep(head, now);
    answer.news := next_strict();
    PERFORM announce(writer, ARRAY[a_key], answer.news);
    RETURN answer;
END
$$;

CREATE FUNCTION truncate_session(
    writer text, a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint,
    after bigint, if_version bigint, sparing bigint[], within text
) RETURNS told LANGUAGE plpgsql AS $$
DECLARE
    answer told;
    head sessions;
    gone bigint;
    first_gone bigint;
BEGIN
    head := reach(a_key, a_space, an_owner, whole, now);
    IF head.ref IS NULL THEN
        RETURN unreached(head, a_key, an_owner, whole, now);
    ELSIF if_version <> head.version THEN
        answer.code := 'version';
        answer.detail := head.version;
        RETURN answer;
    ELSIF within IS NOT NULL AND head.lease IS DISTINCT FROM within THEN
        answer.code := 'lost';
        RETURN answer;
    END IF;
    WITH cut AS (
        DELETE FROM messages WHERE ref = head.ref AND seq > after AND seq <> ALL (sparing) RETURNING turn
    )
    SELECT count(*), min(turn) INTO gone, first_gone FROM cut;
    DELETE FROM traces WHERE ref = head.ref AND number >= first_gone;
    head.messages := head.messages - gone;
    IF after < head.first_seq THEN
        -- The log begins with what was spared, or with what comes.
        head.first_seq := coalesce(
            (SELECT min(seq) FROM messages WHERE ref = head.ref AND seq >= head.first_seq), head.last_seq + 1
        );
    END IF;
    -- The key of a turn that goes on has no reply yet, and stays whatever words it came with.
    DELETE FROM keyed
     WHERE ref = head.ref AND words_first > after AND (within IS NULL OR key IS DISTINCT FROM head.lease_key);
    head.keyed := coalesce((SELECT max(nth) FROM keyed WHERE ref = head.ref), 0);
    UPDATE keyed SET finished = false, reply_first = 0, reply_last = -1
     WHERE ref = head.ref AND finished AND reply_last > after;
    IF within IS NULL THEN
        head.lease := NULL;
        head.lease_until := NULL;
        head.lease_key := NULL;
        head.closed := NULL;
    END IF;
    answer.code := 'changed';
    answer.head := keep(head, now);
    answer.news := next_strict();
    PERFORM announce(writer, ARRAY[a_key], answer.news);
    RETURN answer;
END
$$;

CREATE FUNCTION delete_session(
    writer text, a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint
) RETURNS told LANGUAGE plpgsql AS $$
DECLARE
    answer told;
    head sessions;
BEGIN
    head := reach(a_key, a_space, an_owner, whole, now);
    IF head.ref IS NULL THEN
        RETURN unreached(head, a_key, an_owner, whole, now);
    END IF;
    PERFORM remove(head.ref);
    answer.code := 'changed';
    answer.head := head;
    answer.news := next_strict();
    PERFORM announce(writer, ARRAY[a_key], answer.news);
    RETURN answer;
END
$$;

-- Copy a session under a new key. `taken` and `taken_foreign` speak of the new key, all else of the source.
CREATE FUNCTION fork_session(
    writer text, a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint,
    new_key bytea, new_id text, at bigint, new_title text, new_folded text
) RETURNS told LANGUAGE plpgsql AS $$
DECLARE
    answer told;
    head sessions;
    branch sessions;
    source bigint;
    source_id text;
BEGIN
    head := reach(a_key, a_space, an_owner, whole, now);
    IF head.ref IS NULL THEN
        RETURN unreached(head, a_key, an_owner, whole, now);
    END IF;
    SELECT * INTO branch FROM sessions WHERE key = new_key FOR UPDATE;
    IF branch.expires_at <= now THEN
        PERFORM remove(branch.ref);
    ELSIF branch.ref IS NOT NULL THEN
        answer.head := branch;
        answer.code := CASE WHEN whole OR branch.owner = an_owner THEN 'taken' ELSE 'taken_foreign' END;
        RETURN answer;
    END IF;
    source := head.ref;
    source_id := head.id;
    at := least(at, head.last_seq);
    branch := make(new_key, head.space, head.owner, new_id, new_id, now, json_build_object(
        'scope', head.scope, 'title', coalesce(new_title, head.title), 'folded', coalesce(new_folded, head.folded),
        'context', head.context, 'attributes', head.attributes, 'metadata', head.metadata,
        'touch', head.touch, 'idle', head.idle, 'max_messages', head.max_messages, 'max_turns', head.max_turns
    ));
    IF branch.ref IS NULL THEN
        -- Somebody made it at the same time; the caller looks again.
        answer.code := 'appeared';
        RETURN answer;
    END IF;
    INSERT INTO messages (ref, seq, turn, space, body)
    SELECT branch.ref, seq, turn, space, body FROM messages WHERE ref = source AND seq <= at;
    GET DIAGNOSTICS branch.messages = ROW_COUNT;
    branch.turns := coalesce((SELECT turn FROM messages WHERE ref = branch.ref ORDER BY seq DESC LIMIT 1), 0);
    branch.first_seq := CASE WHEN branch.messages > 0 THEN head.first_seq ELSE at + 1 END;
    branch.last_seq := at;
    branch.window_start := least(head.window_start, at + 1);
    branch.status := head.status;
    UPDATE sessions SET forked_from = source_id, forked_seq = at WHERE ref = branch.ref;
    branch.forked_from := source_id;
    branch.forked_seq := at;
    answer.code := 'changed';
    answer.head := keep(branch, now);
    PERFORM announce(writer, ARRAY[new_key]);
    RETURN answer;
END
$$;

-- Move the deadline of a session that was read, never backwards.
CREATE FUNCTION touch_session(a_ref bigint, a_space bytea, deadline bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    moved bigint;
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    UPDATE sessions SET expires_at = greatest(expires_at, deadline), due = greatest(expires_at, deadline) >> 28
     WHERE ref = a_ref AND expires_at IS NOT NULL RETURNING expires_at INTO moved;
    RETURN moved;
END
$$;

-- Keep an unreadable record out of the way, without what an attempt on it has just added.
CREATE FUNCTION set_aside(
    writer text, a_ref bigint, a_key bytea, a_space bytea, now bigint, why text, without_from bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    UPDATE sessions SET key = NULL, set_aside_at = now, set_aside_why = why WHERE ref = a_ref AND set_aside_at IS NULL;
    IF FOUND THEN
        DELETE FROM messages WHERE ref = a_ref AND seq >= without_from;
        PERFORM announce(writer, ARRAY[a_key]);
    END IF;
END
$$;
