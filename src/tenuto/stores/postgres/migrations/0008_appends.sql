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
    last_turn := head.turns;
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
CREATE FUNCTION append_plain(ops batch[], here bytea) RETURNS appended[] LANGUAGE plpgsql AS $$
DECLARE
    plain appended[];
    pushing int;
BEGIN
    WITH grown AS (
        UPDATE sessions s SET
            version = s.version + 1, updated_at = greatest(o.now, s.updated_at), expires_at = deadline(s, o.now),
            shelf = greatest(o.now, s.updated_at) >> 26, due = deadline(s, o.now) >> 28,
            turns = s.turns + 1 + coalesce(o.offsets[cardinality(o.words)], 0),
            messages = least(s.messages + cardinality(o.words), s.max_messages),
            first_seq = s.first_seq + greatest(s.messages + cardinality(o.words) - s.max_messages, 0),
            last_seq = s.last_seq + cardinality(o.words),
            tokens = s.tokens + o.tokens, cost_nanos = s.cost_nanos + o.cost_nanos
          FROM unnest(ops) WITH ORDINALITY AS o
         WHERE o.space = here AND o.once IS NULL AND o.producer IS NULL AND cardinality(o.words) > 0
           AND s.key = o.key AND (o.whole OR s.owner = o.owner)
           AND (s.expires_at IS NULL OR s.expires_at > o.now)
           AND has_room(s, cardinality(o.words))
           AND sound(s)
        RETURNING s AS head, o.ordinality::int AS nth, o.words, o.offsets,
                  s.turns - coalesce(o.offsets[cardinality(o.words)], 0) AS number
    ), said AS (
        INSERT INTO messages (ref, seq, turn, space, body)
        SELECT (head).ref, seq, turn, (head).space, placed(seq, turn, body)
          FROM grown, unnest(words, offsets) WITH ORDINALITY AS word (body, step, place),
               LATERAL (SELECT (head).last_seq - cardinality(words) + place, number + step) AS its (seq, turn)
    )
    SELECT array_agg(ROW(nth, 'appended', NULL, head, false, false, number, cardinality(words), NULL)::appended),
           max(cardinality(words)) FILTER (WHERE (head).messages = (head).max_messages)
      INTO plain, pushing FROM grown;
    IF pushing > 0 THEN
        PERFORM push_out(ARRAY(SELECT head FROM unnest(plain)), pushing);
    END IF;
    RETURN plain;
END
$$;

-- `news` is what caches are told if anything changed, `spaces` whose calls these are, in order.
CREATE FUNCTION append_batches(news text, spaces bytea[], ops batch[]) RETURNS SETOF appended LANGUAGE plpgsql AS $$
DECLARE
    here bytea;
    plain appended[];
    op batch;
    answer appended;
    place int := 0;
    count int := 0;
    done int[] := '{}';
    changed boolean := false;
BEGIN
    FOREACH here IN ARRAY spaces LOOP
        PERFORM set_config('tenuto.space', here::text, true);
        plain := append_plain(ops, here);
        CONTINUE WHEN plain IS NULL;
        RETURN QUERY SELECT * FROM unnest(plain);
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
            answer := append_batch(op);
            answer.nth := place;
            changed := changed OR answer.code IN ('appended');
            RETURN NEXT answer;
        END LOOP;
    END IF;
    IF changed THEN
        PERFORM pg_notify(current_schema(), news);
    END IF;
END
$$;
