-- What is told of a session's newest turns: written with a turn's end, gone with the session and with words taken back.
CREATE TABLE traces (
    ref    bigint NOT NULL,
    number bigint NOT NULL,
    space  bytea NOT NULL,
    body   bytea NOT NULL,
    PRIMARY KEY (ref, number)
);

ALTER TABLE traces ALTER body SET STATISTICS 0;
ALTER TABLE traces ENABLE ROW LEVEL SECURITY;
ALTER TABLE traces FORCE ROW LEVEL SECURITY;
CREATE POLICY own_space ON traces USING (space IS NOT DISTINCT FROM current_setting('tenuto.space', true)::bytea);

-- Traces of one space, each in place of an earlier one of its turn; those a hundred turns older go.
CREATE FUNCTION keep_traces(told traces[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO traces SELECT * FROM unnest(told) ON CONFLICT (ref, number) DO UPDATE SET body = excluded.body;
    DELETE FROM traces USING unnest(told) AS new WHERE traces.ref = new.ref AND traces.number <= new.number - 100;
END
$$;

CREATE TYPE traced AS (code text, head sessions, owner json, bodies bytea[]);

-- Traces of the turns from `first` on and before `before`, newest first.
CREATE FUNCTION read_traces(
    a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint, first bigint, before bigint, size bigint
) RETURNS traced LANGUAGE plpgsql STABLE AS $$
DECLARE
    answer traced;
    head sessions;
    missed page;
BEGIN
    PERFORM set_config('tenuto.space', a_space::text, true);
    SELECT * INTO head FROM sessions
     WHERE key = a_key AND (whole OR owner = an_owner) AND (expires_at IS NULL OR expires_at > now);
    IF head.ref IS NULL THEN
        missed := unread(a_key, a_space, now);
        answer.code := missed.code;
        answer.owner := missed.owner;
        RETURN answer;
    END IF;
    answer.code := 'read';
    answer.head := head;
    answer.bodies := ARRAY(
        SELECT body FROM traces WHERE ref = head.ref AND number >= first AND number < before
         ORDER BY number DESC LIMIT size
    );
    RETURN answer;
END
$$;
