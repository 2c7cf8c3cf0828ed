-- Appends outside a turn, many to a call.

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

-- Plain appends of one space, all in one statement; every other one is left to `append_batch`.
CREATE FUNCTION append_plain(ops batch[], here bytea) RETURNS SETOF appended LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY WITH grown AS (
        UPDATE sessions s SET
            version = s.version + 1, updated_at = greatest(o.now, s.updated_at), expires_at = deadline(s, o.now),
            shelf = greatest(o.now, s.updated_at) >> 26, due = deadline(s, o.now) >> 28,
            turns = s.turns + 1 + coalesce(o.offsets[cardinality(o.words)], 0),
            messages = s.messages + cardinality(o.words), last_seq = s.last_seq + cardinality(o.words),
            tokens = s.tokens + o.tokens, cost_nanos = s.cost_nanos + o.cost_nanos
          FROM unnest(ops) WITH ORDINALITY AS o
         WHERE o.space = here AND o.once IS NULL AND o.producer IS NULL
           AND s.key = o.key AND s.set_aside_at IS NULL AND (o.whole OR s.owner = o.owner)
           AND (s.expires_at IS NULL OR s.expires_at > o.now)
           AND s.max_turns IS NULL
           AND (s.max_messages IS NULL OR s.messages + cardinality(o.words) <= s.max_messages)
           AND sound(s)
        RETURNING s AS head, o.ordinality::int AS nth, o.words, o.offsets,
                  s.turns - coalesce(o.offsets[cardinality(o.words)], 0) AS number
    ), said AS (
        INSERT INTO messages (ref, seq, turn, space, body)
        SELECT (head).ref, seq, turn, (head).space, placed(seq, turn, body)
          FROM grown, unnest(words, offsets) WITH ORDINALITY AS word (body, step, place),
               LATERAL (SELECT (head).last_seq - cardinality(words) + place, number + step) AS its (seq, turn)
    )
    SELECT nth, 'appended', NULL::bigint, head, false, false, number, cardinality(words), NULL::bytea FROM grown;
END
$$;

CREATE FUNCTION append_batches(writer text, ops batch[]) RETURNS SETOF appended LANGUAGE plpgsql AS $$
DECLARE
    here bytea;
    op batch;
    answer appended;
    place int := 0;
    done int[] := '{}';
    changed bytea[] := '{}';
BEGIN
    FOR here IN SELECT DISTINCT space FROM unnest(ops) ORDER BY space LOOP
        PERFORM set_config('tenuto.space', here::text, true);
        FOR answer IN SELECT * FROM append_plain(ops, here) LOOP
            done := done || answer.nth;
            changed := changed || (answer.head).key;
            RETURN NEXT answer;
        END LOOP;
    END LOOP;
    IF cardinality(done) < cardinality(ops) THEN
        FOREACH op IN ARRAY ops LOOP
            place := place + 1;
            CONTINUE WHEN place = ANY (done);
            answer := append_batch(op);
            answer.nth := place;
            IF answer.code = 'appended' THEN
                changed := changed || op.key;
            END IF;
            RETURN NEXT answer;
        END LOOP;
    END IF;
    PERFORM announce(writer, changed);
END
$$;
