-- What is kept. Times are microseconds since 1970; keys are digests, so ids of any length fit an index.

-- `ref` names a record, `key` a session: one that was set aside as unreadable keeps its ref and its messages and
-- loses its key, so that a fresh session of the same key starts beside it.
--
-- `last_active` is when the session last changed before its newest turn. `first_seq` is where the log begins. While
-- `lease` names a turn, `lease_key` is the key it came with.
--
-- A head changes with every turn, and Postgres spares the indexes only when no indexed column changes. So the
-- indexes hold coarse times: `shelf` is updated_at in steps of 67 seconds, `due` is expires_at in steps of 4.5
-- minutes, and queries sort or filter by the exact value within a step.
--
-- Those that a query by key could fulfil the condition of are not partial: of a table without statistics the planner
-- thinks that walking through all of such an index costs no more than looking up a key in another one.
CREATE TABLE sessions (
    ref           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version       bigint NOT NULL,
    updated_at    bigint NOT NULL,
    expires_at    bigint,
    shelf         bigint NOT NULL,
    due           bigint,
    turns         bigint NOT NULL DEFAULT 0,
    messages      bigint NOT NULL DEFAULT 0,
    first_seq     bigint NOT NULL DEFAULT 1,
    last_seq      bigint NOT NULL DEFAULT 0,
    window_start  bigint NOT NULL DEFAULT 1,
    tokens        bigint NOT NULL DEFAULT 0,
    cost_nanos    bigint NOT NULL DEFAULT 0,
    keyed         bigint NOT NULL DEFAULT 0,
    last_active   bigint,
    lease_until   bigint,
    lease         text,
    lease_key     bytea,
    closed        text,
    created_at    bigint NOT NULL,
    idle          bigint,
    max_messages  bigint,
    max_turns     bigint,
    forked_seq    bigint,
    set_aside_at  bigint,
    touch         text NOT NULL,
    status        text NOT NULL DEFAULT 'active',
    key           bytea,
    space         bytea NOT NULL,
    owner         bytea NOT NULL,
    incarnation   text NOT NULL,
    id            text NOT NULL,
    title         text NOT NULL DEFAULT '',
    folded        text NOT NULL DEFAULT '',
    -- json, not jsonb: it keeps the text as it came, so 1.0 stays 1.0.
    scope         json NOT NULL,
    context       json NOT NULL DEFAULT '{}',
    attributes    json NOT NULL DEFAULT '{}',
    metadata      json NOT NULL DEFAULT '{}',
    forked_from   text,
    set_aside_why text
) WITH (fillfactor = 60);

CREATE UNIQUE INDEX sessions_key ON sessions (key);
CREATE INDEX sessions_of_space ON sessions (space, shelf);
CREATE INDEX sessions_of_owner ON sessions (owner, shelf);
CREATE INDEX sessions_due ON sessions (due) WHERE set_aside_at IS NULL AND due IS NOT NULL;

-- The log. A body is a whole message as JSON, seq and turn included, so that a page is bodies joined by commas.
CREATE TABLE messages (
    ref   bigint NOT NULL,
    seq   bigint NOT NULL,
    turn  bigint NOT NULL,
    space bytea NOT NULL,
    body  bytea NOT NULL,
    PRIMARY KEY (ref, seq)
);

-- Writes that came with an idempotency key; `nth` counts them within their session.
CREATE TABLE keyed (
    ref         bigint NOT NULL,
    nth         bigint NOT NULL,
    words_first bigint NOT NULL,
    words_last  bigint NOT NULL,
    reply_first bigint NOT NULL DEFAULT 0,
    reply_last  bigint NOT NULL DEFAULT -1,
    number      bigint NOT NULL,
    finished    boolean NOT NULL,
    space       bytea NOT NULL,
    key         bytea NOT NULL,
    fingerprint bytea NOT NULL,
    turn        text NOT NULL,
    PRIMARY KEY (ref, key)
);

CREATE UNIQUE INDEX keyed_in_order ON keyed (ref, nth);

-- The last number of each producer.
CREATE TABLE marks (
    ref      bigint NOT NULL,
    seq      bigint NOT NULL,
    space    bytea NOT NULL,
    producer bytea NOT NULL,
    PRIMARY KEY (ref, producer)
);

-- Small values by scope and namespace (`drawer`). Names may be longer than an index entry: `name` is their digest,
-- and the order comes from their beginnings.
CREATE TABLE state (
    drawer  bytea NOT NULL,
    name    bytea NOT NULL,
    space   bytea NOT NULL,
    owner   bytea NOT NULL,
    version bigint NOT NULL,
    key     text COLLATE "C" NOT NULL,
    value   bytea NOT NULL,
    PRIMARY KEY (drawer, name)
);

CREATE INDEX state_in_order ON state (drawer, left(key, 200));
CREATE INDEX state_of_owner ON state (owner);

-- ANALYZE keeps samples of every column in the catalogue, where they outlive their rows and stand behind no wall. Of
-- what people said and are called no samples are taken; no plan here depends on them.
ALTER TABLE sessions ALTER incarnation SET STATISTICS 0, ALTER id SET STATISTICS 0, ALTER title SET STATISTICS 0,
    ALTER folded SET STATISTICS 0, ALTER scope SET STATISTICS 0, ALTER context SET STATISTICS 0,
    ALTER attributes SET STATISTICS 0, ALTER metadata SET STATISTICS 0, ALTER forked_from SET STATISTICS 0;
ALTER TABLE messages ALTER body SET STATISTICS 0;
ALTER TABLE state ALTER key SET STATISTICS 0, ALTER value SET STATISTICS 0;
ALTER INDEX state_in_order ALTER COLUMN 2 SET STATISTICS 0;
