-- Records, and the functions that are called for them. Times are microseconds since 1970; keys are digests. What a head,
-- a profile or an entry says is decided above: here are bytes, a revision to compare, and columns to find by.

-- A record that was set aside as unreadable has no key; a new record of the same key may stand beside it.
--
-- A commit changes the columns up to `head` and none that an index holds: so the indexes are spared, and of the new row
-- only what differs is written to the log. `due` is a deadline that lags behind by up to an hour, to that end. Without
-- attachments their columns are null, which takes no room in a row.
CREATE TABLE records (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    revision   bigint NOT NULL,
    deadline   bigint,
    sessions   bigint NOT NULL,
    messages   bigint NOT NULL,
    tokens     bigint NOT NULL,
    cost_nanos bigint NOT NULL,
    attachments bigint,
    attachment_bytes bigint,
    head       bytea NOT NULL,
    due        bigint,
    listed_at  bigint NOT NULL,
    key        bytea,
    space      bytea NOT NULL,
    owner      bytea NOT NULL,
    kind       text NOT NULL,
    status     text NOT NULL,
    drawer     bytea NOT NULL,
    namespace  text NOT NULL,
    name       text COLLATE "C" NOT NULL,
    name_start text COLLATE "C" GENERATED ALWAYS AS (CASE kind WHEN 'value' THEN left(name, 200) ELSE '' END) STORED,
    title      text NOT NULL,
    scope      bytea,
    profile    bytea NOT NULL,
    aside      bytea
) WITH (fillfactor = 60);

CREATE UNIQUE INDEX records_key ON records (key);
CREATE INDEX records_of_site ON records (space, kind, listed_at, key);
CREATE INDEX records_of_owner ON records (owner, kind, listed_at, key);
CREATE INDEX records_due ON records (due) WHERE due IS NOT NULL;
-- A name may be longer than an entry of an index. The start is a column: under row level security an index on left(name)
-- is not entered at a name, since that function may leak what it reads.
CREATE INDEX records_place ON records (space, owner, drawer, name_start) WHERE kind = 'value';

CREATE TABLE entries (
    record bigint NOT NULL,
    number bigint NOT NULL,
    part   "char" NOT NULL,
    space  bytea NOT NULL,
    body   bytea NOT NULL,
    PRIMARY KEY (record, part, number)
);

-- The words by which sessions are found: digests, which differ by space, and the beginning of the owner's key. Those of an
-- owner lie together, and so do those of all owners.
CREATE TABLE words (
    record bigint NOT NULL,
    word   bytea NOT NULL,
    owner  bytea NOT NULL,
    space  bytea NOT NULL,
    CONSTRAINT words_place UNIQUE (word, owner, record)
);
CREATE INDEX words_of_record ON words (record);

-- ANALYZE keeps samples of columns in the catalogue, where they outlive their rows: none of what users said or are called.
ALTER TABLE records ALTER head SET STATISTICS 0, ALTER profile SET STATISTICS 0, ALTER scope SET STATISTICS 0,
    ALTER title SET STATISTICS 0, ALTER name SET STATISTICS 0, ALTER name_start SET STATISTICS 0,
    ALTER namespace SET STATISTICS 0;
ALTER TABLE entries ALTER body SET STATISTICS 0;
ALTER TABLE words ALTER word SET STATISTICS 0;

-- The second wall between tenants: a row is visible only while the transaction names its space, whatever a statement asks
-- for; the tables' owner is bound as well. Calls name keys and no space: so the one record whose key, or those whose owner
-- is named can be read, to find their space. What passes over all tenants (what is due, sites, copies of the store) reads
-- the records of all while 'upkeep' is named. Neither shows entries, changes anything, or outlives the function that names
-- it. No index serves the policies (IS NOT DISTINCT FROM, coalesce): rows are found by their keys, and the wall only checks.
ALTER TABLE records ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE entries ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE words ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY own_space ON records USING (space IS NOT DISTINCT FROM current_setting('tenuto.space', true)::bytea);
CREATE POLICY own_space ON entries USING (space IS NOT DISTINCT FROM current_setting('tenuto.space', true)::bytea);
CREATE POLICY own_space ON words USING (space IS NOT DISTINCT FROM current_setting('tenuto.space', true)::bytea);
CREATE POLICY named ON records FOR SELECT
    USING (coalesce(current_setting('tenuto.named', true)::bytea IN (key, owner), false));
CREATE POLICY upkeep ON records FOR SELECT USING (current_setting('tenuto.space', true) = 'upkeep');

-- Names the space of what follows in this transaction; null names none. Assigned and not performed, it costs a fifth.
CREATE FUNCTION enter(a_space bytea) RETURNS text LANGUAGE sql AS $$
    SELECT set_config('tenuto.space', coalesce(a_space::text, ''), true)
$$;

-- The space of each key in order; null where there is no record. Each search needs the key that was named right before it;
-- as a set it takes a fifth of the time of a loop. With LIMIT and OFFSET the planner joins in no other way, and with its
-- number no name is taken for another one's.
CREATE FUNCTION spaces_of(keys bytea[]) RETURNS bytea[] LANGUAGE plpgsql STABLE AS $$
DECLARE
    spaces bytea[] := ARRAY(
        SELECT its.space FROM unnest(keys) WITH ORDINALITY AS given (key, nth)
         CROSS JOIN LATERAL (SELECT nth, set_config('tenuto.named', given.key::text, true)::bytea AS key OFFSET 0) named
          LEFT JOIN LATERAL (SELECT space FROM records WHERE records.key = named.key LIMIT 1) its ON true
         ORDER BY named.nth
    );
    named text := set_config('tenuto.named', '', true);
BEGIN
    RETURN spaces;
END
$$;

CREATE FUNCTION space_of_owner(an_owner bytea) RETURNS bytea LANGUAGE plpgsql STABLE AS $$
DECLARE
    named text := set_config('tenuto.named', an_owner::text, true);
    a_space bytea := (SELECT space FROM records WHERE owner = an_owner LIMIT 1);
BEGIN
    named := set_config('tenuto.named', '', true);
    RETURN a_space;
END
$$;

-- Feeds. A notification is the number of a strict change, if there was one, and (key, revision) of each change, 24 bytes.
-- It is one for a batch where possible: each NOTIFY takes a lock of the whole database until its commit.

CREATE SEQUENCE strict_changes AS int CYCLE;

-- The number of a strict change. Changes are told in the order of their numbers: the lock is held until the commit.
CREATE FUNCTION next_strict() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('tenuto strict changes'), hashtext(current_schema()));
    RETURN nextval('strict_changes');
END
$$;

CREATE FUNCTION announce(news bytea, strict_number int DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- A payload has less than 8000 bytes.
    FOR start IN 1..length(news) BY 5400 LOOP
        PERFORM pg_notify(
            current_schema(), coalesce(to_hex(strict_number), '') || '!' || encode(substr(news, start, 5400), 'base64')
        );
    END LOOP;
END
$$;

-- A listener confirms by a lock on the number of the last strict change that it has heard of; the lock ends with its
-- connection. A new listener begins at the last number, with no change in between.
CREATE FUNCTION join_feed() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    heard int;
BEGIN
    PERFORM set_config('application_name', 'tenuto listener', false);
    PERFORM pg_advisory_xact_lock(hashtext('tenuto strict changes'), hashtext(current_schema()));
    SELECT CASE WHEN is_called THEN last_value ELSE 0 END INTO heard FROM strict_changes;
    PERFORM pg_advisory_lock_shared(hashtext('tenuto listeners ' || current_schema()), heard);
    RETURN heard;
END
$$;

CREATE FUNCTION confirm_feed(heard int, before int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_lock_shared(hashtext('tenuto listeners ' || current_schema()), heard);
    PERFORM pg_advisory_unlock_shared(hashtext('tenuto listeners ' || current_schema()), before);
END
$$;

CREATE FUNCTION heard_by_all(strict_number int) RETURNS boolean LANGUAGE sql AS $$
    SELECT NOT EXISTS (
        SELECT FROM pg_locks
         WHERE locktype = 'advisory' AND granted AND objid::bigint < strict_number AND objsubid = 2
           AND classid = hashtext('tenuto listeners ' || current_schema())::oid
           AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
$$;

-- Reading one record.

-- A record with its newest messages, newest first, and what is beside it; without a revision there is none. Of the commits
-- in a batch, number 0 has the number of a strict change as its revision, and a negative one is a copy whose source moved.
CREATE TYPE standing AS (
    nth bigint, key bytea, revision bigint, head bytea, profile bytea, deadline bigint,
    numbers bigint[], bodies bytea[], beside_parts "char"[], beside_numbers bigint[], beside_bodies bytea[]
);

-- The record of each key: at most `tail` messages beyond number `message`, pages of keys beyond `page`. Of one moment, and
-- without those that are `done`.
CREATE FUNCTION load_records(
    keys bytea[], tails bigint[], messages bigint[], pages bigint[], done bigint[] DEFAULT '{}'
) RETURNS SETOF standing LANGUAGE plpgsql STABLE AS $$
DECLARE
    entered text;
    spaces bytea[] := spaces_of(keys);
    a_space bytea;
BEGIN
    FOR a_space IN SELECT DISTINCT space FROM unnest(spaces) AS known (space) LOOP
        entered := enter(a_space);
        RETURN QUERY
        SELECT given.nth, given.key, records.revision, records.head, records.profile, records.deadline,
               newest.numbers, newest.bodies, beside.parts, beside.numbers, beside.bodies
          FROM unnest(keys, spaces, tails, messages, pages) WITH ORDINALITY
            AS given (key, space, tail, message, page, nth)
          LEFT JOIN LATERAL (SELECT * FROM records WHERE records.key = given.key LIMIT 1) records ON true
          LEFT JOIN LATERAL (
              SELECT array_agg(its.number) AS numbers, array_agg(its.body) AS bodies
                FROM (
                    SELECT number, body FROM entries
                     WHERE entries.record = records.id AND part = 'm' AND number > given.message
                     ORDER BY number DESC LIMIT given.tail
                ) its
          ) newest ON true
          LEFT JOIN LATERAL (
              SELECT array_agg(its.part) AS parts, array_agg(its.number) AS numbers, array_agg(its.body) AS bodies
                FROM (
                    SELECT part, number, body FROM entries
                     WHERE entries.record = records.id AND part = 'k' AND number > given.page
                    UNION ALL
                    SELECT part, number, body FROM entries WHERE entries.record = records.id AND part = 'p'
                     ORDER BY part, number
                ) its
          ) beside ON true
         WHERE given.space IS NOT DISTINCT FROM a_space AND given.nth <> ALL (done);
    END LOOP;
END
$$;

-- Entries of a part from `first` to `last`: the oldest in order, or with a negative `most` the newest, newest first.
CREATE FUNCTION page_entries(a_key bytea, a_part text, first bigint, last bigint, most bigint)
RETURNS TABLE (revision bigint, numbers bigint[], bodies bytea[]) LANGUAGE plpgsql STABLE AS $$
DECLARE
    entered text;
BEGIN
    entered := enter((spaces_of(ARRAY[a_key]))[1]);
    RETURN QUERY
    SELECT records.revision, page.numbers, page.bodies
      FROM records CROSS JOIN LATERAL (
          SELECT array_agg(its.number) AS numbers, array_agg(its.body) AS bodies
            FROM (
                (SELECT number, body FROM entries
                  WHERE entries.record = records.id AND part = a_part::"char" AND number BETWEEN first AND last
                  ORDER BY number LIMIT greatest(most, 0))
                UNION ALL
                (SELECT number, body FROM entries
                  WHERE entries.record = records.id AND part = a_part::"char" AND number BETWEEN first AND last
                  ORDER BY number DESC LIMIT greatest(-most, 0))
            ) its
      ) page
     WHERE records.key = a_key;
END
$$;

-- Commits. Rows are locked in order of (space, key), so that two batches do not wait for each other in a circle.

CREATE TYPE record_index AS (
    space bytea, owner bytea, kind text, scope bytea, listed_at bigint, status text, title text, drawer bytea,
    namespace text, name text
);

-- The deadline by which a record is found: moved only where it is an hour behind, or ahead.
CREATE FUNCTION lag_behind(due bigint, deadline bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN due <= deadline AND deadline <= due + 3600000000 THEN due ELSE deadline END
$$;

-- A session that several processes change at a time is changed in turn: a turn is a lock on the key, kept beyond the
-- transaction. One that is kept for a second is not waited for: it orders commits, and revisions are compared all the same.
CREATE FUNCTION turn_lock(a_key bytea) RETURNS bigint LANGUAGE sql AS $$
    SELECT hashtextextended('tenuto turns ' || current_schema() || a_key::text, 0)
$$;

CREATE FUNCTION take_turn(a_key bytea) RETURNS void LANGUAGE plpgsql SET lock_timeout = '1s' AS $$
BEGIN
    PERFORM pg_advisory_lock(turn_lock(a_key));
EXCEPTION WHEN lock_not_available THEN
    NULL;
END
$$;

-- The usual commit of a record: a new head, entries, now and then a profile or columns of the index. Each change is made
-- for itself; what is refused comes back as what stands instead. Changes are sorted by key; `nths` are the changes that
-- entries belong to, `parts` a letter for each. Deadline -1 leaves it as it is. A change that is made in turn is alone: the
-- turn stays with the connection if the change is refused, or if it `keeps_turn`.
CREATE FUNCTION commit_heads(
    keys bytea[], heads bytea[], profiles bytea[], places record_index[],
    expected bigint[], revisions bigint[], deadlines bigint[],
    sessions_of bigint[], messages_of bigint[], tokens_of bigint[], costs_of bigint[],
    attachments_of bigint[], attachment_bytes_of bigint[],
    tails bigint[], known_messages bigint[], known_pages bigint[],
    nths bigint[], parts text, numbers bigint[], bodies bytea[],
    has_turn boolean DEFAULT NULL, keeps_turn boolean DEFAULT NULL
) RETURNS SETOF standing LANGUAGE plpgsql AS $$
DECLARE
    entered text;
    spaces bytea[];
    a_space bytea;
    done bigint[] := '{}';
    news bytea := '';
    some_done bigint[];
    some_news bytea;
BEGIN
    IF NOT has_turn THEN
        PERFORM take_turn(keys[1]);
    END IF;
    spaces := spaces_of(keys);
    FOR a_space IN SELECT DISTINCT space FROM unnest(spaces) AS known (space) WHERE space IS NOT NULL ORDER BY 1 LOOP
        entered := enter(a_space);
        WITH changed AS (
            UPDATE records SET
                revision = given.revision, head = given.head, sessions = given.sessions, messages = given.messages,
                tokens = given.tokens, cost_nanos = given.cost_nanos,
                attachments = nullif(given.attachments, 0), attachment_bytes = nullif(given.attachment_bytes, 0),
                deadline = CASE WHEN given.deadline = -1 THEN records.deadline ELSE given.deadline END,
                due = CASE WHEN given.deadline = -1 THEN due ELSE lag_behind(due, given.deadline) END,
                profile = coalesce(given.profile, records.profile),
                listed_at = coalesce(given.listed_at, records.listed_at),
                status = coalesce(given.status, records.status), title = coalesce(given.title, records.title),
                drawer = coalesce(given.drawer, records.drawer),
                namespace = coalesce(given.namespace, records.namespace), name = coalesce(given.name, records.name),
                owner = coalesce(given.owner, records.owner),
                scope = CASE WHEN given.owner IS NULL THEN records.scope ELSE given.scope END
              FROM unnest(
                  keys, spaces, expected, revisions, heads, deadlines, sessions_of, messages_of, tokens_of, costs_of,
                  attachments_of, attachment_bytes_of, profiles, places
              ) WITH ORDINALITY AS given (
                  key, space, expected, revision, head, deadline, sessions, messages, tokens, cost_nanos,
                  attachments, attachment_bytes,
                  profile, same_space, owner, kind, scope, listed_at, status, title, drawer, namespace, name, nth
              )
             WHERE given.space = a_space AND records.key = given.key AND records.revision = given.expected
            RETURNING records.id, given.nth, records.key, records.revision
        ), put AS (
            INSERT INTO entries (record, number, part, space, body)
            SELECT changed.id, its.number, its.part::"char", a_space, its.body
              FROM unnest(nths, string_to_array(parts, NULL), numbers, bodies) AS its (nth, part, number, body)
              JOIN changed ON changed.nth = its.nth
            ON CONFLICT ON CONSTRAINT entries_pkey DO UPDATE SET body = excluded.body
        )
        SELECT array_agg(nth), string_agg(key || int8send(revision), '') INTO some_done, some_news FROM changed;
        done := done || some_done;
        news := news || coalesce(some_news, '');
    END LOOP;
    PERFORM announce(news);
    IF cardinality(done) < cardinality(keys) THEN
        RETURN QUERY SELECT * FROM load_records(keys, tails, known_messages, known_pages, done);
    ELSIF NOT keeps_turn THEN
        -- Until the end of this transaction, so that the next one sees what it did.
        PERFORM pg_try_advisory_xact_lock(turn_lock(keys[1]));
        PERFORM pg_advisory_unlock(turn_lock(keys[1]));
    END IF;
END
$$;

-- All other commits. Changes of one `batch` are made together or not at all.

CREATE TYPE entry_drop AS (part text, first bigint, last bigint, spared bigint[]);

CREATE TYPE record_change AS (
    batch int, key bytea, expected bigint, revision bigint, action text, head bytea, profile bytea, deadline bigint,
    index record_index, sessions bigint, messages bigint, tokens bigint, cost_nanos bigint, attachments bigint,
    attachment_bytes bigint, replaces boolean, drops entry_drop[], source bytea, source_revision bigint,
    source_first bigint, source_through bigint, source_attachments bigint[],
    parts text[], numbers bigint[], bodies bytea[], words_added bytea[], words_removed bytea[], words_forgotten boolean,
    strict boolean, tail bigint, known_message bigint, known_page bigint
);

-- Makes one change: its revision was compared, and its row is locked. A record that was made of its key meanwhile violates
-- the unique index.
CREATE FUNCTION make_change(change record_change, a_space bytea) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    place record_index := change.index;
    row_id bigint := (SELECT id FROM records WHERE key = change.key);
    source_id bigint;
    its entry_drop;
BEGIN
    IF change.action = 'set aside' THEN
        UPDATE records SET key = NULL, aside = key, deadline = NULL, due = NULL WHERE id = row_id;
        DELETE FROM words WHERE words.record = row_id;
        RETURN;
    ELSIF change.action = 'remove' OR change.replaces THEN
        DELETE FROM entries WHERE entries.record = row_id;
    END IF;
    IF change.action = 'remove' OR change.replaces OR change.words_forgotten THEN
        DELETE FROM words WHERE words.record = row_id;
    END IF;
    IF change.action = 'remove' THEN
        DELETE FROM records WHERE id = row_id;
        RETURN;
    ELSIF row_id IS NULL THEN
        INSERT INTO records (
            revision, deadline, due, sessions, messages, tokens, cost_nanos, attachments, attachment_bytes, head, key, profile,
            space, owner, kind, scope, listed_at, status, title, drawer, namespace, name
        ) SELECT
            change.revision, nullif(change.deadline, -1), nullif(change.deadline, -1), change.sessions, change.messages,
            change.tokens, change.cost_nanos, nullif(change.attachments, 0), nullif(change.attachment_bytes, 0),
            change.head, change.key, coalesce(change.profile, ''), place.*
          RETURNING id INTO row_id;
    ELSE
        UPDATE records SET
            revision = change.revision, head = change.head, sessions = change.sessions, messages = change.messages,
            tokens = change.tokens, cost_nanos = change.cost_nanos,
            attachments = nullif(change.attachments, 0), attachment_bytes = nullif(change.attachment_bytes, 0),
            profile = coalesce(change.profile, profile),
            deadline = CASE WHEN change.deadline = -1 THEN deadline ELSE change.deadline END,
            due = CASE WHEN change.deadline = -1 THEN due ELSE lag_behind(due, change.deadline) END,
            owner = coalesce(place.owner, owner), listed_at = coalesce(place.listed_at, listed_at),
            status = coalesce(place.status, status), title = coalesce(place.title, title),
            drawer = coalesce(place.drawer, drawer), namespace = coalesce(place.namespace, namespace),
            name = coalesce(place.name, name), scope = CASE WHEN place.owner IS NULL THEN scope ELSE place.scope END
         WHERE id = row_id;
    END IF;
    FOREACH its IN ARRAY change.drops LOOP
        DELETE FROM entries
         WHERE entries.record = row_id AND part = its.part::"char" AND number BETWEEN its.first AND its.last
           AND number <> ALL (its.spared);
    END LOOP;
    IF change.source IS NOT NULL THEN
        source_id := (SELECT id FROM records WHERE key = change.source);
        INSERT INTO entries (record, number, part, space, body)
        SELECT row_id, number, part, a_space, body FROM entries
         WHERE entries.record = source_id AND part = 'm'
           AND number BETWEEN change.source_first AND change.source_through
        UNION ALL
        SELECT row_id, number, part, a_space, body FROM entries
         WHERE entries.record = source_id AND part = 'b' AND number = ANY (change.source_attachments);
    END IF;
    INSERT INTO entries (record, number, part, space, body)
    SELECT row_id, put.number, put.part::"char", a_space, put.body
      FROM unnest(change.parts, change.numbers, change.bodies) AS put (part, number, body)
    ON CONFLICT ON CONSTRAINT entries_pkey DO UPDATE SET body = excluded.body;
    IF cardinality(change.words_removed) > 0 THEN
        DELETE FROM words WHERE words.record = row_id AND word = ANY (change.words_removed);
    END IF;
    IF cardinality(change.words_added) > 0 THEN
        INSERT INTO words (record, word, owner, space)
        SELECT row_id, given.word, substr(records.owner, 1, 4), a_space FROM records, unnest(change.words_added) AS given (word)
         WHERE records.id = row_id
        ON CONFLICT DO NOTHING;
    END IF;
END
$$;

-- Changes of a batch stand one after the other.
CREATE FUNCTION commit_changes(changes record_change[]) RETURNS SETOF standing LANGUAGE plpgsql AS $$
DECLARE
    entered text;
    keys bytea[];
    spaces bytea[];
    tails bigint[];
    known_messages bigint[];
    known_pages bigint[];
    a_space bytea;
    some_keys bytea[];
    low int;
    high int;
    fits boolean;
    moved boolean;
    hides boolean;
    change record_change;
    is_strict boolean := false;
    strict_number int;
    told standing;
    news bytea := '';
    done bigint[] := '{}';
BEGIN
    SELECT array_agg(key), array_agg((index).space), array_agg(tail), array_agg(known_message), array_agg(known_page)
      INTO keys, spaces, tails, known_messages, known_pages
      FROM (SELECT * FROM unnest(changes) WITH ORDINALITY ORDER BY ordinality) its;
    spaces := ARRAY(
        SELECT coalesce(its.known, its.given)
          FROM unnest(spaces_of(keys), spaces) WITH ORDINALITY AS its (known, given, nth) ORDER BY its.nth
    );
    -- A new record has no row to lock. Two batches that make the same ones in other orders would wait for each other.
    PERFORM pg_advisory_xact_lock(hashtext('tenuto new records ' || current_schema()), sorted.number)
       FROM (
           SELECT DISTINCT hashtext(its.key::text) & 1023 AS number
             FROM unnest(changes) AS its WHERE its.expected = 0 ORDER BY 1
       ) sorted;
    FOR a_space, some_keys IN
        SELECT spaces[its.ordinality], array_agg(wanted.key)
          FROM unnest(changes) WITH ORDINALITY AS its
         CROSS JOIN unnest(ARRAY[CASE WHEN its.expected > 0 THEN its.key END, its.source]) AS wanted (key)
         WHERE wanted.key IS NOT NULL AND spaces[its.ordinality] IS NOT NULL
         GROUP BY 1 ORDER BY 1
    LOOP
        entered := enter(a_space);
        PERFORM FROM records WHERE key = ANY (some_keys) ORDER BY key FOR UPDATE;
    END LOOP;
    FOR low, high IN
        SELECT min(its.ordinality), max(its.ordinality)
          FROM unnest(changes) WITH ORDINALITY AS its GROUP BY its.batch ORDER BY 1
    LOOP
        entered := enter(spaces[low]);
        SELECT bool_and(coalesce(old.revision, 0) = its.expected),
               bool_or(its.source IS NOT NULL AND source.revision IS DISTINCT FROM its.source_revision),
               bool_or(its.strict AND old.kind = 'session')
          INTO fits, moved, hides
          FROM unnest(changes[low:high]) AS its
          LEFT JOIN LATERAL (SELECT revision, kind FROM records WHERE key = its.key LIMIT 1) old ON true
          LEFT JOIN LATERAL (SELECT revision FROM records WHERE key = its.source LIMIT 1) source ON true;
        IF moved THEN
            told.nth := -low;
            RETURN NEXT told;
            CONTINUE;
        ELSIF fits THEN
            BEGIN
                FOREACH change IN ARRAY changes[low:high] LOOP
                    PERFORM make_change(change, spaces[low]);
                END LOOP;
            EXCEPTION WHEN unique_violation THEN
                fits := false;  -- Another batch has made a record of a key that was free.
            END;
        END IF;
        CONTINUE WHEN NOT fits;
        done := done || ARRAY(SELECT generate_series(low, high)::bigint);
        is_strict := is_strict OR coalesce(hides, false);
        FOREACH change IN ARRAY changes[low:high] LOOP
            news := news || CASE WHEN change.replaces THEN change.key || int8send(0) ELSE '' END || change.key
                || int8send(CASE WHEN change.action = 'write' THEN change.revision ELSE 0 END);
        END LOOP;
    END LOOP;
    IF is_strict THEN
        strict_number := next_strict();
        told.nth := 0;
        told.revision := strict_number;
        RETURN NEXT told;
    END IF;
    PERFORM announce(news, strict_number);
    IF cardinality(done) < cardinality(keys) THEN
        RETURN QUERY SELECT * FROM load_records(keys, tails, known_messages, known_pages, done);
    END IF;
END
$$;

-- Moves deadlines forwards; what has none keeps none.
CREATE FUNCTION touch_records(keys bytea[], deadlines bigint[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    entered text;
    spaces bytea[] := spaces_of(keys);
    a_space bytea;
BEGIN
    FOR a_space IN SELECT DISTINCT space FROM unnest(spaces) AS known (space) WHERE space IS NOT NULL ORDER BY 1 LOOP
        entered := enter(a_space);
        UPDATE records SET deadline = given.deadline FROM unnest(keys, spaces, deadlines) AS given (key, space, deadline)
         WHERE given.space = a_space AND records.key = given.key AND records.deadline < given.deadline;
    END LOOP;
END
$$;

-- Many records.

CREATE TYPE record_query AS (
    space bytea, owner bytea, drawer bytea, status text, title text, due bigint,
    behind bigint, behind_key bytea, behind_owner bytea, behind_drawer bytea, behind_name text, words bytea[], size bigint
);

-- Records by conditions on the fields of `$1`, in an order: of a space, of the space of an owner, or of all. Planned for
-- each call, with the values it is called with: which index serves depends on them.
CREATE FUNCTION find_records(query record_query, conditions text, sorting text) RETURNS SETOF records
LANGUAGE plpgsql STABLE AS $$
DECLARE
    entered text;
BEGIN
    query.space := coalesce(query.space, space_of_owner(query.owner));
    entered := CASE WHEN query.space IS NULL AND query.owner IS NULL
                    THEN set_config('tenuto.space', 'upkeep', true) ELSE enter(query.space) END;
    RETURN QUERY EXECUTE
        format('SELECT * FROM records WHERE %s ORDER BY %s LIMIT ($1).size', conditions, sorting) USING query;
    entered := enter(NULL);
END
$$;

CREATE FUNCTION sum_records(a_space bytea, an_owner bytea, now bigint)
RETURNS TABLE (
    sessions bigint, messages bigint, tokens bigint, cost_nanos bigint, attachments bigint, attachment_bytes bigint
) LANGUAGE plpgsql STABLE AS $$
DECLARE
    entered text := enter(a_space);
BEGIN
    RETURN QUERY EXECUTE
        'SELECT coalesce(sum(sessions), 0)::bigint, coalesce(sum(messages), 0)::bigint, coalesce(sum(tokens), 0)::bigint, '
        'coalesce(sum(cost_nanos), 0)::bigint, coalesce(sum(attachments), 0)::bigint, '
        'coalesce(sum(attachment_bytes), 0)::bigint FROM records WHERE kind = ''session'' AND key IS NOT NULL '
        'AND (deadline IS NULL OR deadline > $3) AND space = $1'
        || CASE WHEN an_owner IS NULL THEN '' ELSE ' AND owner = $2' END
        USING a_space, an_owner, now;
END
$$;

-- The scope of one record of each space behind one, in order of their keys: each is one step in an index.
CREATE FUNCTION list_scopes(behind bytea, size bigint) RETURNS TABLE (space bytea, scope bytea)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    entered text := set_config('tenuto.space', 'upkeep', true);
BEGIN
    FOR nth IN 1..size LOOP
        SELECT its.space, its.scope INTO behind, scope FROM records AS its
         WHERE its.space > behind AND its.scope IS NOT NULL AND its.key IS NOT NULL ORDER BY its.space LIMIT 1;
        EXIT WHEN NOT FOUND;
        space := behind;
        RETURN NEXT;
    END LOOP;
    entered := enter(NULL);
END
$$;

-- Removes the records of an owner that were set aside, and counts them.
CREATE FUNCTION forget_aside(an_owner bytea)
RETURNS TABLE (records bigint, messages bigint, traces bigint, attachments bigint) LANGUAGE plpgsql AS $$
DECLARE
    entered text := enter(space_of_owner(an_owner));
BEGIN
    RETURN QUERY
    WITH gone AS (
        DELETE FROM records WHERE owner = an_owner AND aside IS NOT NULL
        RETURNING id, records.messages, records.attachments
    ), lost AS (
        DELETE FROM entries USING gone WHERE entries.record = gone.id RETURNING part
    )
    SELECT (SELECT count(*) FROM gone), (SELECT coalesce(sum(gone.messages), 0)::bigint FROM gone),
           (SELECT count(*) FROM lost WHERE part = 't'), (SELECT coalesce(sum(gone.attachments), 0)::bigint FROM gone);
END
$$;
