-- Reading heads and pages, many to a call. Stable functions see one moment: head and page belong together.

CREATE TYPE reading AS (
    key bytea, space bytea, owner bytea, whole boolean, now bigint, size bigint, before bigint, after bigint
);

-- A session that is not reached leaves its scope in `owner`, for the hijack guard.
CREATE TYPE page AS (
    nth int, code text, head sessions, owner json, lines bytea, more_before boolean, more_after boolean
);

-- One message more than asked for tells whether the page is the last.
CREATE FUNCTION lines_before(head sessions, before bigint, size bigint) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT string_agg(body, ',') FROM (
            SELECT body FROM messages
             WHERE ref = head.ref AND seq >= head.first_seq AND seq < before ORDER BY seq DESC LIMIT size + 1
        ) newest
    );
END
$$;

CREATE FUNCTION lines_after(head sessions, after bigint, size bigint) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT string_agg(body, ',') FROM (
            SELECT body FROM messages
             WHERE ref = head.ref AND seq >= greatest(head.first_seq, after + 1) ORDER BY seq LIMIT size + 1
        ) oldest
    );
END
$$;

-- Why a session was not there to be read, for a caller that does not own it or comes too late. All cases take the same
-- steps, lest the time tell them apart: a head's other columns stay where they are, and where there is no row, some
-- other one is fetched.
CREATE FUNCTION unread(a_key bytea, a_space bytea, now bigint) RETURNS page LANGUAGE plpgsql STABLE AS $$
DECLARE
    answer page;
BEGIN
    SELECT code, owner INTO answer.code, answer.owner FROM (
        SELECT CASE WHEN expires_at <= now THEN 'expired' ELSE 'foreign' END AS code, scope AS owner
          FROM sessions WHERE key = a_key
        UNION ALL
        (SELECT 'absent', scope FROM sessions WHERE space = a_space ORDER BY shelf DESC LIMIT 1)
    ) met LIMIT 1;
    answer.code := coalesce(answer.code, 'absent');
    RETURN answer;
END
$$;

-- A page of `size` lines with one line beyond it, if there is one; `size` 0 asks for the head alone.
CREATE FUNCTION read_session(op reading) RETURNS page LANGUAGE plpgsql STABLE AS $$
DECLARE
    answer page;
    head sessions;
BEGIN
    PERFORM set_config('tenuto.space', op.space::text, true);
    SELECT * INTO head FROM sessions
     WHERE key = op.key AND (op.whole OR owner = op.owner) AND (expires_at IS NULL OR expires_at > op.now);
    IF head.ref IS NULL THEN
        RETURN unread(op.key, op.space, op.now);
    END IF;
    answer.code := 'read';
    answer.head := head;
    IF op.size = 0 OR head.messages = 0 THEN
        answer.more_before := false;
        answer.more_after := false;
    ELSIF op.after IS NOT NULL THEN
        answer.lines := lines_after(head, op.after, op.size);
        answer.more_before := head.first_seq <= op.after;
    ELSE
        answer.lines := lines_before(head, coalesce(op.before, head.last_seq + 1), op.size);
        answer.more_after := EXISTS (SELECT FROM messages WHERE ref = head.ref AND seq >= op.before);
    END IF;
    RETURN answer;
END
$$;

CREATE FUNCTION read_sessions(ops reading[]) RETURNS SETOF page LANGUAGE plpgsql STABLE AS $$
DECLARE
    op reading;
    answer page;
    place int := 0;
BEGIN
    FOREACH op IN ARRAY ops LOOP
        place := place + 1;
        answer := read_session(op);
        answer.nth := place;
        RETURN NEXT answer;
    END LOOP;
END
$$;

-- A shelf's sessions behind a place, latest change first.
CREATE FUNCTION list_sessions(
    a_space bytea, an_owner bytea, whole boolean, now bigint,
    behind_time bigint, behind_key bytea, a_title text, a_status text, size bigint
) RETURNS SETOF sessions LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    IF whole THEN
        RETURN QUERY SELECT * FROM sessions
         WHERE space = a_space AND set_aside_at IS NULL AND (expires_at IS NULL OR expires_at > now)
           AND shelf <= behind_time >> 26 AND (updated_at, key) < (behind_time, behind_key)
           AND (a_title IS NULL OR position(a_title IN folded) > 0) AND (a_status IS NULL OR status = a_status)
         ORDER BY shelf DESC, updated_at DESC, key DESC LIMIT size;
    ELSE
        RETURN QUERY SELECT * FROM sessions
         WHERE owner = an_owner AND set_aside_at IS NULL AND (expires_at IS NULL OR expires_at > now)
           AND shelf <= behind_time >> 26 AND (updated_at, key) < (behind_time, behind_key)
           AND (a_title IS NULL OR position(a_title IN folded) > 0) AND (a_status IS NULL OR status = a_status)
         ORDER BY shelf DESC, updated_at DESC, key DESC LIMIT size;
    END IF;
END
$$;

CREATE FUNCTION count_sessions(
    a_space bytea, an_owner bytea, whole boolean, now bigint,
    OUT sessions bigint, OUT messages numeric, OUT tokens numeric, OUT cost_nanos numeric
) LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    IF whole THEN
        SELECT count(*), sum(s.messages), sum(s.tokens), sum(s.cost_nanos)
          INTO sessions, messages, tokens, cost_nanos FROM sessions s
         WHERE s.space = a_space AND s.set_aside_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > now);
    ELSE
        SELECT count(*), sum(s.messages), sum(s.tokens), sum(s.cost_nanos)
          INTO sessions, messages, tokens, cost_nanos FROM sessions s
         WHERE s.owner = an_owner AND s.set_aside_at IS NULL AND (s.expires_at IS NULL OR s.expires_at > now);
    END IF;
END
$$;
