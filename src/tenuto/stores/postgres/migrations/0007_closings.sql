-- How turns end, and how their leases are renewed, many to a call.

CREATE TYPE closing AS (
    key bytea, space bytea, owner bytea, whole boolean, now bigint,
    incarnation text, turn text, number bigint, reply bytea[], producer bytea, producer_seq bigint,
    tokens bigint, cost_nanos bigint, abandoned boolean, changes json, trace bytea
);

CREATE TYPE appended AS (
    nth int, code text, detail bigint, head sessions, created boolean, expired boolean,
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
    head.tokens := head.tokens + op.tokens;
    head.cost_nanos := head.cost_nanos + op.cost_nanos;
    IF op.changes IS NOT NULL THEN
        head := apply(head, op.changes);
    END IF;
    IF op.trace IS NOT NULL THEN
        PERFORM keep_traces(ARRAY[(head.ref, op.number, head.space, op.trace)::traces]);
    END IF;
    done.code := 'appended';
    done.number := op.number;
    done.head := keep(head, op.now);
    RETURN done;
END
$$;

-- Plain endings of one space, all in one statement; every other one is left to `finish_turn`.
CREATE FUNCTION finish_plain(ops closing[], here bytea) RETURNS appended[] LANGUAGE plpgsql AS $$
DECLARE
    plain appended[];
    pushing int;
BEGIN
    WITH closed AS (
        UPDATE sessions s SET
            version = s.version + 1, updated_at = greatest(o.now, s.updated_at), expires_at = deadline(s, o.now),
            shelf = greatest(o.now, s.updated_at) >> 26, due = deadline(s, o.now) >> 28,
            messages = least(s.messages + cardinality(o.reply), s.max_messages),
            first_seq = s.first_seq + greatest(s.messages + cardinality(o.reply) - s.max_messages, 0),
            last_seq = s.last_seq + cardinality(o.reply),
            tokens = s.tokens + o.tokens, cost_nanos = s.cost_nanos + o.cost_nanos,
            lease = NULL, lease_until = NULL, closed = o.turn
          FROM unnest(ops) WITH ORDINALITY AS o
         WHERE o.space = here AND o.producer IS NULL AND o.changes IS NULL AND NOT o.abandoned
           AND s.key = o.key AND (o.whole OR s.owner = o.owner)
           AND (s.expires_at IS NULL OR s.expires_at > o.now)
           AND s.incarnation = o.incarnation AND s.lease = o.turn AND s.turns >= o.number
           AND has_room(s, cardinality(o.reply))
           AND sound(s)
        RETURNING s AS head, o.ordinality::int AS nth, o.number, o.reply
    ), said AS (
        INSERT INTO messages (ref, seq, turn, space, body)
        SELECT (head).ref, seq, number, (head).space, placed(seq, number, body)
          FROM closed, unnest(reply) WITH ORDINALITY AS word (body, place),
               LATERAL (SELECT (head).last_seq - cardinality(reply) + place) AS its (seq)
    ), noted AS (
        UPDATE keyed SET
            finished = true,
            reply_first = CASE WHEN reply = '{}' THEN 0 ELSE (head).last_seq - cardinality(reply) + 1 END,
            reply_last = CASE WHEN reply = '{}' THEN -1 ELSE (head).last_seq END
          FROM closed WHERE keyed.ref = (head).ref AND keyed.key = (head).lease_key
    )
    SELECT array_agg(ROW(nth, 'appended', NULL, head, false, false, number, cardinality(reply), NULL)::appended),
           max(cardinality(reply)) FILTER (WHERE (head).messages = (head).max_messages)
      INTO plain, pushing FROM closed;
    IF pushing > 0 THEN
        PERFORM push_out(ARRAY(SELECT head FROM unnest(plain)), pushing);
    END IF;
    RETURN plain;
END
$$;

-- `news` is what caches are told if anything changed, `spaces` whose calls these are, in order; `traced` tells whether
-- any of them brought a trace.
CREATE FUNCTION finish_turns(news text, spaces bytea[], ops closing[], traced boolean) RETURNS SETOF appended
LANGUAGE plpgsql AS $$
DECLARE
    here bytea;
    plain appended[];
    op closing;
    answer appended;
    place int := 0;
    count int := 0;
    done int[] := '{}';
    changed boolean := false;
BEGIN
    FOREACH here IN ARRAY spaces LOOP
        PERFORM set_config('tenuto.space', here::text, true);
        plain := finish_plain(ops, here);
        CONTINUE WHEN plain IS NULL;
        RETURN QUERY SELECT * FROM unnest(plain);
        IF traced THEN
            PERFORM keep_traces(ARRAY(
                SELECT ROW((head).ref, number, here, trace)::traces
                  FROM unnest(plain), LATERAL (SELECT (ops[nth]).trace) AS its (trace) WHERE trace IS NOT NULL
            ));
        END IF;
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
            answer := finish_turn(op);
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
         WHERE key = op.key AND incarnation = op.incarnation AND lease = op.turn
           AND (op.whole OR owner = op.owner) AND (expires_at IS NULL OR expires_at > op.now)
        RETURNING lease_until INTO until;
        RETURN NEXT until;
    END LOOP;
END
$$;
