-- Turns and appends, many to a call: a batch is one statement, one transaction and one flush to disk. Callers sort
-- a batch by key, so that two batches take their locks in the same order.

-- Messages between two sequence numbers, oldest first, joined by commas.
CREATE FUNCTION span(a_ref bigint, first bigint, last bigint) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT string_agg(body, ',' ORDER BY seq) FROM messages WHERE ref = a_ref AND seq BETWEEN first AND last
$$;

-- What a producer may send next.
CREATE FUNCTION expected(a_ref bigint, a_producer bytea) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT seq FROM marks WHERE ref = a_ref AND producer = a_producer), 0) + 1
$$;

CREATE FUNCTION mark(head sessions, a_producer bytea, number bigint) RETURNS void LANGUAGE sql AS $$
    INSERT INTO marks (ref, seq, space, producer) VALUES (head.ref, number, head.space, a_producer)
    ON CONFLICT (ref, producer) DO UPDATE SET seq = excluded.seq
$$;

-- A message with its place in the log; the caller sends it without the opening brace.
CREATE FUNCTION placed(seq bigint, turn bigint, body bytea) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT ('{"seq":' || seq || ',"turn":' || turn || ',')::bytea || body
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

CREATE TYPE opening AS (
    key bytea, space bytea, owner bytea, whole boolean, now bigint,
    id text, turn text, words bytea[], lease bigint, size bigint, made json,
    once bytea, fingerprint bytea, producer bytea, producer_seq bigint,
    rekeep boolean, idle bigint, touch text, max_messages bigint, max_turns bigint, again boolean
);

CREATE TYPE began AS (
    code text, detail bigint, head sessions, created boolean, expired boolean, last_active bigint,
    turn text, number bigint, added int, past bytea, words bytea, reply bytea
);

-- The newest messages before the words, newest first. The words themselves are known to the caller.
CREATE FUNCTION past(head sessions, added int, size bigint) RETURNS bytea LANGUAGE sql STABLE AS $$
    SELECT string_agg(body, ',') FROM (
        SELECT body FROM messages
         WHERE ref = head.ref AND seq >= greatest(head.first_seq, head.window_start) AND seq <= head.last_seq - added
         ORDER BY seq DESC LIMIT size - added
    ) newest
$$;

-- A turn whose key came before: finished, or to be resumed. Without a code it may go on.
CREATE FUNCTION known_turn(head sessions, op opening, answer began) RETURNS began LANGUAGE plpgsql AS $$
DECLARE
    known keyed;
BEGIN
    SELECT * INTO known FROM keyed WHERE ref = head.ref AND key = op.once;
    IF NOT FOUND THEN
        RETURN answer;
    ELSIF known.fingerprint <> op.fingerprint THEN
        answer.code := 'reused';
        RETURN answer;
    END IF;
    answer.code := CASE WHEN known.finished THEN 'finished' ELSE 'resumed' END;
    answer.turn := known.turn;
    answer.number := known.number;
    answer.words := span(head.ref, known.words_first, known.words_last);
    answer.reply := span(head.ref, known.reply_first, known.reply_last);
    RETURN answer;
END
$$;

CREATE FUNCTION begin_turn(op opening) RETURNS began LANGUAGE plpgsql AS $$
DECLARE
    answer began;
    place found;
    head sessions;
BEGIN
    place := find_or_make(op.key, op.space, op.owner, op.whole, op.now, op.id, op.turn, op.made, op.producer_seq);
    head := place.head;
    answer.code := place.code;
    answer.detail := place.detail;
    answer.head := head;
    answer.created := place.created;
    answer.expired := place.expired;
    IF place.code IS NOT NULL THEN
        RETURN answer;
    ELSIF NOT place.created THEN
        answer.last_active := head.updated_at;
        IF op.once IS NOT NULL THEN
            answer := known_turn(head, op, answer);
            IF answer.code IN ('reused', 'finished') THEN
                RETURN answer;
            END IF;
        END IF;
        -- A call that is sent again may find the lease it took the first time.
        IF head.lease IS NOT NULL AND head.lease_until > op.now AND NOT (op.again AND head.lease = op.turn) THEN
            answer.code := 'busy';
            answer.detail := head.lease_until - op.now;
            RETURN answer;
        END IF;
    END IF;
    answer.added := 0;
    IF answer.code = 'resumed' THEN
        UPDATE keyed SET turn = op.turn WHERE ref = head.ref AND key = op.once;
    ELSE
        answer.code := 'opened';
        answer.number := head.turns + 1;
        answer.added := cardinality(op.words);
        IF op.producer IS NOT NULL THEN
            answer.detail := expected(head.ref, op.producer);
            IF op.producer_seq > answer.detail THEN
                answer.code := 'gap';
                RETURN answer;
            ELSIF op.producer_seq = answer.detail THEN
                PERFORM mark(head, op.producer, op.producer_seq);
            ELSIF answer.added > 0 THEN
                answer.code := 'resumed';
                answer.added := 0;
            END IF;
        END IF;
        IF answer.added > 0 THEN
            head := add(head, op.words, ARRAY[answer.number]);
        END IF;
        head.turns := answer.number;
        IF op.once IS NOT NULL THEN
            head := remember(head, op.once, op.fingerprint, op.turn, answer.number, answer.added, false);
        END IF;
    END IF;
    answer.turn := op.turn;
    head.lease := op.turn;
    head.lease_until := op.now + op.lease;
    head.lease_key := op.once;
    IF op.rekeep THEN
        head.idle := op.idle;
        head.touch := op.touch;
        head.max_messages := op.max_messages;
        head.max_turns := op.max_turns;
    END IF;
    head := keep(head, op.now);
    answer.head := head;
    IF op.size > answer.added AND head.messages > answer.added THEN
        answer.past := past(head, answer.added, op.size);
    END IF;
    RETURN answer;
END
$$;

CREATE FUNCTION begin_turns(writer text, ops opening[]) RETURNS SETOF began LANGUAGE plpgsql AS $$
DECLARE
    op opening;
    answer began;
    changed bytea[] := '{}';
BEGIN
    FOREACH op IN ARRAY ops LOOP
        answer := begin_turn(op);
        IF answer.code IN ('opened', 'resumed') THEN
            changed := changed || op.key;
        END IF;
        RETURN NEXT answer;
    END LOOP;
    PERFORM announce(writer, changed);
END
$$;

CREATE TYPE closing AS (
    key bytea, space bytea, owner bytea, whole boolean, now bigint,
    incarnation text, turn text, number bigint, reply bytea[], producer bytea, producer_seq bigint,
    tokens bigint, cost_nanos bigint, abandoned boolean, changes json
);

CREATE TYPE appended AS (
    code text, detail bigint, head sessions, created boolean, expired boolean,
    number bigint, added int, words bytea
);

CREATE FUNCTION finish_turn(op closing) RETURNS appended LANGUAGE plpgsql AS $$
DECLARE
    done appended;
    head sessions;
BEGIN
    done.code := 'lost';
    head := reach(op.key, op.space, op.owner, op.whole, op.now);
    IF head.ref IS NULL THEN
        IF head.set_aside_at IS NOT NULL THEN
            done.code := 'corrupt';
        END IF;
        RETURN done;
    ELSIF head.incarnation <> op.incarnation THEN
        RETURN done;
    ELSIF head.lease IS DISTINCT FROM op.turn THEN
        IF head.closed = op.turn
           OR EXISTS (SELECT FROM keyed WHERE ref = head.ref AND finished AND turn = op.turn) THEN
            done.code := 'duplicate';
            done.head := head;
        END IF;
        RETURN done;
    END IF;
    done.added := cardinality(op.reply);
    IF done.added > 0 AND op.producer IS NOT NULL THEN
        done.detail := expected(head.ref, op.producer);
        IF op.producer_seq > done.detail THEN
            done.code := 'gap';
            RETURN done;
        ELSIF op.producer_seq < done.detail THEN
            done.added := 0;
        ELSE
            PERFORM mark(head, op.producer, op.producer_seq);
        END IF;
    END IF;
    IF done.added > 0 THEN
        head := add(head, op.reply, ARRAY[op.number]);
        head.turns := greatest(head.turns, op.number);
    END IF;
    IF NOT op.abandoned THEN
        head.closed := op.turn;
        IF head.lease_key IS NOT NULL AND done.added > 0 THEN
            UPDATE keyed SET finished = true, reply_first = head.last_seq - done.added + 1, reply_last = head.last_seq
             WHERE ref = head.ref AND key = head.lease_key;
        ELSIF head.lease_key IS NOT NULL THEN
            UPDATE keyed SET finished = true, reply_first = 0, reply_last = -1
             WHERE ref = head.ref AND key = head.lease_key;
        END IF;
    END IF;
    head.lease := NULL;
    head.lease_until := NULL;
    head.lease_key := NULL;
    head.tokens := head.tokens + op.tokens;
    head.cost_nanos := head.cost_nanos + op.cost_nanos;
    IF op.changes IS NOT NULL THEN
        head := apply(head, op.changes);
    END IF;
    done.code := 'appended';
    done.number := op.number;
    done.head := keep(head, op.now);
    RETURN done;
END
$$;

CREATE FUNCTION finish_turns(writer text, ops closing[]) RETURNS SETOF appended LANGUAGE plpgsql AS $$
DECLARE
    op closing;
    done appended;
    changed bytea[] := '{}';
BEGIN
    FOREACH op IN ARRAY ops LOOP
        done := finish_turn(op);
        IF done.code = 'appended' THEN
            changed := changed || op.key;
        END IF;
        RETURN NEXT done;
    END LOOP;
    PERFORM announce(writer, changed);
END
$$;

CREATE TYPE batch AS (
    key bytea, space bytea, owner bytea, whole boolean, now bigint,
    id text, batch text, words bytea[], offsets bigint[], made json,
    once bytea, fingerprint bytea, producer bytea, producer_seq bigint, tokens bigint, cost_nanos bigint
);

CREATE FUNCTION append_batch(op batch) RETURNS appended LANGUAGE plpgsql AS $$
DECLARE
    done appended;
    place found;
    head sessions;
    known keyed;
    last_turn bigint;
BEGIN
    place := find_or_make(op.key, op.space, op.owner, op.whole, op.now, op.id, op.batch, op.made, op.producer_seq);
    head := place.head;
    done.code := place.code;
    done.detail := place.detail;
    done.head := head;
    done.created := place.created;
    done.expired := place.expired;
    IF place.code IS NOT NULL THEN
        RETURN done;
    ELSIF op.once IS NOT NULL AND NOT place.created THEN
        SELECT * INTO known FROM keyed WHERE ref = head.ref AND key = op.once;
        IF FOUND THEN
            done.code := CASE WHEN known.fingerprint = op.fingerprint THEN 'duplicate' ELSE 'reused' END;
            done.words := span(head.ref, known.words_first, known.words_last);
            RETURN done;
        END IF;
    END IF;
    IF op.producer IS NOT NULL THEN
        done.detail := expected(head.ref, op.producer);
        IF op.producer_seq <> done.detail THEN
            done.code := CASE WHEN op.producer_seq > done.detail THEN 'gap' ELSE 'duplicate' END;
            RETURN done;
        END IF;
        PERFORM mark(head, op.producer, op.producer_seq);
    END IF;
    done.code := 'appended';
    done.added := cardinality(op.words);
    done.number := head.turns + 1;
    last_turn := done.number;
    IF done.added > 0 THEN
        last_turn := done.number + op.offsets[done.added];
        IF last_turn = done.number THEN
            head := add(head, op.words, ARRAY[done.number]);
        ELSE
            head := add(head, op.words, ARRAY(SELECT done.number + step FROM unnest(op.offsets) AS step));
        END IF;
    END IF;
    head.turns := last_turn;
    IF op.once IS NOT NULL THEN
        head := remember(head, op.once, op.fingerprint, op.batch, last_turn, done.added, true);
    END IF;
    head.tokens := head.tokens + op.tokens;
    head.cost_nanos := head.cost_nanos + op.cost_nanos;
    done.head := keep(head, op.now);
    RETURN done;
END
$$;

CREATE FUNCTION append_batches(writer text, ops batch[]) RETURNS SETOF appended LANGUAGE plpgsql AS $$
DECLARE
    op batch;
    done appended;
    changed bytea[] := '{}';
BEGIN
    FOREACH op IN ARRAY ops LOOP
        done := append_batch(op);
        IF done.code = 'appended' THEN
            changed := changed || op.key;
        END IF;
        RETURN NEXT done;
    END LOOP;
    PERFORM announce(writer, changed);
END
$$;

CREATE TYPE renewal AS (
    key bytea, space bytea, owner bytea, whole boolean, now bigint, incarnation text, turn text, lease bigint
);

-- Longer leases, by call: the new end, or null for a turn that is lost.
CREATE FUNCTION renew_turns(ops renewal[]) RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    op renewal;
    until bigint;
BEGIN
    FOREACH op IN ARRAY ops LOOP
        PERFORM set_config('tenuto.space', op.space::text, true);
        UPDATE sessions SET lease_until = op.now + op.lease
         WHERE key = op.key AND set_aside_at IS NULL AND incarnation = op.incarnation AND lease = op.turn
           AND (op.whole OR owner = op.owner) AND (expires_at IS NULL OR expires_at > op.now)
        RETURNING lease_until INTO until;
        RETURN NEXT until;
    END LOOP;
END
$$;
