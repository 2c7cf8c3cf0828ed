-- Taking words back: other ones in their place, or everything of a person gone.

-- What a message or trace shall read from now on; `opening` is what it begins with, by which it is known.
CREATE TYPE rewording AS (place bigint, opening bytea, body bytea);

CREATE FUNCTION starts(body bytea, opening bytea) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT substr(body, 1, octet_length(opening)) = opening
$$;

-- Other bodies in the place of messages. Of two for one place the later one holds.
CREATE FUNCTION reword(head sessions, words rewording[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    WITH fitting AS (
        SELECT DISTINCT ON (kept.seq) kept.seq, placed(kept.seq, kept.turn, given.body) AS body
          FROM unnest(words) WITH ORDINALITY AS given (place, opening, body, nth)
          JOIN messages kept ON kept.ref = head.ref AND kept.seq = given.place
         WHERE starts(kept.body, placed(kept.seq, kept.turn, given.opening))
         ORDER BY kept.seq, given.nth DESC
    )
    UPDATE messages SET body = fitting.body FROM fitting
     WHERE messages.ref = head.ref AND messages.seq = fitting.seq;
    RETURN FOUND;
END
$$;

CREATE FUNCTION retell(head sessions, told rewording[]) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    WITH fitting AS (
        SELECT DISTINCT ON (kept.number) kept.number, given.body
          FROM unnest(told) WITH ORDINALITY AS given (place, opening, body, nth)
          JOIN traces kept ON kept.ref = head.ref AND kept.number = given.place
         WHERE starts(kept.body, given.opening)
         ORDER BY kept.number, given.nth DESC
    )
    UPDATE traces SET body = fitting.body FROM fitting
     WHERE traces.ref = head.ref AND traces.number = fitting.number;
    RETURN FOUND;
END
$$;

-- It is no activity: neither deadline nor place in listings moves, and a running turn goes on.
CREATE FUNCTION rewrite_session(
    writer text, a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint,
    words rewording[], told rewording[]
) RETURNS told LANGUAGE plpgsql AS $$
DECLARE
    answer told;
    head sessions;
    reworded boolean;
    retold boolean;
BEGIN
    head := reach(a_key, a_space, an_owner, whole, now);
    IF head.ref IS NULL THEN
        RETURN unreached(head, a_key, an_owner, whole, now);
    END IF;
    reworded := reword(head, words);
    retold := retell(head, told);
    answer.code := 'changed';
    IF reworded OR retold THEN
        head.version := head.version + 1;
        UPDATE sessions SET version = head.version WHERE ref = head.ref;
        answer.news := next_strict();
        PERFORM announce(writer, ARRAY[a_key], answer.news);
    END IF;
    answer.head := head;
    RETURN answer;
END
$$;

CREATE TYPE erased AS (
    heads sessions[], messages bigint, traces bigint, states bigint, quarantined bigint, more boolean, news int
);

-- Remove up to `size` sessions of an owner, least recently changed first, whether or not they have expired; where that
-- leaves none, also what was set aside as unreadable, and all state.
CREATE FUNCTION erase_owner(writer text, a_space bytea, an_owner bytea, size bigint) RETURNS erased
LANGUAGE plpgsql AS $$
DECLARE
    answer erased;
    refs bigint[];
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    refs := ARRAY(
        SELECT ref FROM sessions WHERE owner = an_owner AND set_aside_at IS NULL
         ORDER BY shelf, updated_at, key LIMIT size + 1
    );
    answer.more := cardinality(refs) > size;
    refs := refs[:size::int];
    IF NOT answer.more THEN
        refs := refs || ARRAY(SELECT ref FROM sessions WHERE owner = an_owner AND set_aside_at IS NOT NULL);
    END IF;
    -- Locked in the order in which batches of turns lock them.
    PERFORM FROM sessions WHERE ref = ANY (refs) ORDER BY key FOR UPDATE;
    answer.heads := ARRAY(
        SELECT kept FROM sessions kept WHERE ref = ANY (refs) AND set_aside_at IS NULL ORDER BY updated_at, key
    );
    DELETE FROM messages WHERE ref = ANY (refs);
    GET DIAGNOSTICS answer.messages = ROW_COUNT;
    DELETE FROM traces WHERE ref = ANY (refs);
    GET DIAGNOSTICS answer.traces = ROW_COUNT;
    DELETE FROM keyed WHERE ref = ANY (refs);
    DELETE FROM marks WHERE ref = ANY (refs);
    DELETE FROM sessions WHERE ref = ANY (refs);
    GET DIAGNOSTICS answer.quarantined = ROW_COUNT;
    answer.quarantined := answer.quarantined - cardinality(answer.heads);
    answer.states := 0;
    IF NOT answer.more THEN
        DELETE FROM state WHERE owner = an_owner;
        GET DIAGNOSTICS answer.states = ROW_COUNT;
    END IF;
    IF cardinality(answer.heads) > 0 THEN
        answer.news := next_strict();
        PERFORM announce(writer, ARRAY(SELECT key FROM unnest(answer.heads)), answer.news);
    END IF;
    RETURN answer;
END
$$;
