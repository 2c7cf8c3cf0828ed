-- A session's log: adding to it, and remembering what came with a key or a producer's number.

-- Messages between two sequence numbers, oldest first, joined by commas.
CREATE FUNCTION span(a_ref bigint, first bigint, last bigint) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (SELECT string_agg(body, ',' ORDER BY seq) FROM messages WHERE ref = a_ref AND seq BETWEEN first AND last);
END
$$;

-- What a producer may send next.
CREATE FUNCTION expected(a_ref bigint, a_producer bytea) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN coalesce((SELECT seq FROM marks WHERE ref = a_ref AND producer = a_producer), 0) + 1;
END
$$;

CREATE FUNCTION mark(head sessions, a_producer bytea, number bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO marks (ref, seq, space, producer) VALUES (head.ref, number, head.space, a_producer)
    ON CONFLICT (ref, producer) DO UPDATE SET seq = excluded.seq;
END
$$;

-- A message with its place in the log; the caller sends it without the opening brace.
CREATE FUNCTION placed(seq bigint, turn bigint, body bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT ('{"seq":' || seq::text || ',"turn":' || turn::text || ',')::bytea || body
$$;

-- Messages at the end of the log; `numbers` are their turns, or one turn for all.
CREATE FUNCTION add(head sessions, bodies bytea[], numbers bigint[]) RETURNS sessions LANGUAGE plpgsql AS $$
DECLARE
    added int := cardinality(bodies);
BEGIN
    IF added = 1 THEN
        INSERT INTO messages (ref, seq, turn, space, body)
        VALUES (head.ref, head.last_seq + 1, numbers[1], head.space,
                placed(head.last_seq + 1, numbers[1], bodies[1]));
    ELSIF added > 1 THEN
        INSERT INTO messages (ref, seq, turn, space, body)
        SELECT head.ref, head.last_seq + nth, number, head.space, placed(head.last_seq + nth, number, body)
          FROM unnest(bodies) WITH ORDINALITY AS given (body, nth),
               LATERAL (SELECT coalesce(numbers[nth::int], numbers[1])) AS its (number);
    END IF;
    head.last_seq := head.last_seq + added;
    head.messages := head.messages + added;
    RETURN head;
END
$$;

-- Whether a head has room for so many messages more, or would make it by letting as many go from the log's beginning.
CREATE FUNCTION has_room(head sessions, added int) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT head.max_turns IS NULL AND (
        head.max_messages IS NULL OR head.messages + added <= head.max_messages
        OR (added <= head.max_messages AND head.messages <= head.max_messages
            AND head.last_seq - head.first_seq + 1 = head.messages)
    )
$$;

-- Let go what was pushed out of such logs: no more than was added.
CREATE FUNCTION push_out(heads sessions[], added int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM messages USING unnest(heads) AS its
     WHERE messages.ref = its.ref AND messages.seq < its.first_seq AND messages.seq >= its.first_seq - added;
END
$$;

-- Remember a keyed write of the log's last `added` messages, and forget the one a thousand before it.
CREATE FUNCTION remember(
    head sessions, a_key bytea, a_fingerprint bytea, a_turn text, a_number bigint, added int, done boolean
) RETURNS sessions LANGUAGE plpgsql AS $$
BEGIN
    head.keyed := head.keyed + 1;
    INSERT INTO keyed (ref, nth, space, key, fingerprint, turn, number, words_first, words_last, finished)
    VALUES (head.ref, head.keyed, head.space, a_key, a_fingerprint, a_turn, a_number,
            head.last_seq - added + 1, head.last_seq, done);
    DELETE FROM keyed WHERE ref = head.ref AND nth <= head.keyed - 1000;
    RETURN head;
END
$$;
