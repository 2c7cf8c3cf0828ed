-- How turns begin, many to a call: a batch is one statement, one transaction and one flush to disk. Callers sort a
-- batch, so that two batches take their locks in the same order.

CREATE TYPE opening AS (
    key bytea, space bytea, owner bytea, whole boolean, now bigint,
    id text, turn text, words bytea[], lease bigint, size bigint, made json,
    once bytea, fingerprint bytea, producer bytea, producer_seq bigint,
    rekeep boolean, idle bigint, touch text, max_messages bigint, max_turns bigint, again boolean
);

CREATE TYPE began AS (
    nth int, code text, detail bigint, head sessions, created boolean, expired boolean,
    turn text, number bigint, added int, past bytea, words bytea, reply bytea
);

-- The newest messages before the words, newest first. The words themselves are known to the caller.
CREATE FUNCTION past(head sessions, added int, size bigint) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT string_agg(body, ',') FROM (
            SELECT body FROM messages
             WHERE ref = head.ref AND seq >= greatest(head.first_seq, head.window_start)
               AND seq <= head.last_seq - added
             ORDER BY seq DESC LIMIT size - added
        ) newest
    );
END
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
        head.last_active := head.updated_at;
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

-- Plain turns of one space, all in one statement: the session is there and free, the key is new, no producer came
-- along, and no cap wants a closer look. Every other turn is left to `begin_turn`.
--
-- A statement that waited for a lock sees the head as it became meanwhile, and the keys as they were before. So the
-- head's last key must be among them; otherwise there may be newer ones, and the turn is not plain. (Not by EXISTS: of a
-- table that was small when it was vacuumed, the planner would read all of it.)
CREATE TYPE opened AS (head sessions, nth int, added int, size bigint);

CREATE FUNCTION begin_plain(ops opening[], here bytea) RETURNS opened[] LANGUAGE plpgsql AS $$
DECLARE
    plain opened[];
    last_key bigint;
    pushing int;
BEGIN
    WITH opened AS (
        UPDATE sessions s SET
            version = s.version + 1, last_active = s.updated_at, updated_at = greatest(o.now, s.updated_at),
            expires_at = deadline(s, o.now),
            shelf = greatest(o.now, s.updated_at) >> 26, due = deadline(s, o.now) >> 28,
            turns = s.turns + 1, messages = least(s.messages + cardinality(o.words), s.max_messages),
            first_seq = s.first_seq + greatest(s.messages + cardinality(o.words) - s.max_messages, 0),
            last_seq = s.last_seq + cardinality(o.words),
            keyed = s.keyed + CASE WHEN o.once IS NULL THEN 0 ELSE 1 END,
            lease = o.turn, lease_until = o.now + o.lease, lease_key = o.once
          FROM unnest(ops) WITH ORDINALITY AS o
         WHERE o.space = here AND o.producer IS NULL
           AND s.key = o.key AND (o.whole OR s.owner = o.owner)
           AND (s.expires_at IS NULL OR s.expires_at > o.now) AND (s.lease IS NULL OR s.lease_until <= o.now)
           AND has_room(s, cardinality(o.words))
           AND (NOT o.rekeep OR (s.idle, s.touch, s.max_messages, s.max_turns)
                IS NOT DISTINCT FROM (o.idle, o.touch, o.max_messages, o.max_turns))
           AND sound(s)
           AND (o.once IS NULL OR (SELECT k.nth FROM keyed k WHERE k.ref = s.ref AND k.key = o.once) IS NULL)
           AND (o.once IS NULL OR s.keyed = 0
                OR (SELECT k.nth FROM keyed k WHERE k.ref = s.ref AND k.nth = s.keyed) IS NOT NULL)
        RETURNING s AS head, o.ordinality::int AS nth, o.words, o.size, o.once, o.fingerprint
    ), said AS (
        INSERT INTO messages (ref, seq, turn, space, body)
        SELECT (head).ref, seq, (head).turns, (head).space, placed(seq, (head).turns, body)
          FROM opened, unnest(words) WITH ORDINALITY AS word (body, place),
               LATERAL (SELECT (head).last_seq - cardinality(words) + place) AS its (seq)
    ), noted AS (
        INSERT INTO keyed (ref, nth, space, key, fingerprint, turn, number, words_first, words_last, finished)
        SELECT (head).ref, (head).keyed, (head).space, once, fingerprint, (head).lease, (head).turns,
               (head).last_seq - cardinality(words) + 1, (head).last_seq, false
          FROM opened WHERE once IS NOT NULL
    )
    SELECT array_agg(ROW(head, nth, cardinality(words), size)::opened), max((head).keyed),
           max(cardinality(words)) FILTER (WHERE (head).messages = (head).max_messages)
      INTO plain, last_key, pushing FROM opened;
    IF pushing > 0 THEN
        PERFORM push_out(ARRAY(SELECT head FROM unnest(plain)), pushing);
    END IF;
    IF last_key > 1000 THEN
        DELETE FROM keyed USING unnest(plain) WHERE keyed.ref = (head).ref AND keyed.nth <= (head).keyed - 1000;
    END IF;
    RETURN plain;
END
$$;

-- `news` is what caches are told if anything changed, `spaces` whose calls these are, in order. `known` has for each call
-- the version and the incarnation whose messages its caller holds, or null: to a plain turn that finds the session so,
-- they are not sent.
CREATE FUNCTION begin_turns(
    news text, spaces bytea[], ops opening[], known text[]
) RETURNS SETOF began LANGUAGE plpgsql AS $$
DECLARE
    here bytea;
    plain opened[];
    op opening;
    answer began;
    place int := 0;
    count int := 0;
    done int[] := '{}';
    changed boolean := false;
BEGIN
    FOREACH here IN ARRAY spaces LOOP
        PERFORM set_config('tenuto.space', here::text, true);
        plain := begin_plain(ops, here);
        CONTINUE WHEN plain IS NULL;
        -- A statement of its own: it sees what others committed while the first one waited for their locks.
        RETURN QUERY SELECT nth, 'opened', NULL::bigint, head, false, false, (head).lease, (head).turns, added,
                            past, NULL::bytea, NULL::bytea
          FROM unnest(plain), LATERAL (
            SELECT string_agg(body, ',') FROM (
                SELECT body FROM messages
                 WHERE ref = (head).ref AND seq >= greatest((head).first_seq, (head).window_start)
                   AND seq <= (head).last_seq - added
                 ORDER BY seq DESC LIMIT CASE
                     WHEN known[nth] = ((head).version - 1) || ' ' || (head).incarnation THEN 0
                     ELSE greatest(size - added, 0)
                 END
            ) newest
          ) AS before (past);
        changed := true;
        count := count + cardinality(plain);
        IF count < cardinality(ops) THEN
            done := done || ARRAY(SELECT nth FROM unnest(plain));
        END IF;
    END LOOP;
    IF count < cardinality(ops) THEN
        FOREACH op IN ARRAY ops LOOP
            place := place + 1;
            CONTINUE WHEN place = ANY (done);
            answer := begin_turn(op);
            answer.nth := place;
            changed := changed OR answer.code IN ('opened', 'resumed');
            RETURN NEXT answer;
        END LOOP;
    END IF;
    IF changed THEN
        PERFORM pg_notify(current_schema(), news);
    END IF;
END
$$;
