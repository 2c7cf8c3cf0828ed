-- The same, on one version of the session if it is given. The function without it stays: processes that began before call
-- it until they end.
CREATE FUNCTION rewrite_session(
    writer text, a_key bytea, a_space bytea, an_owner bytea, whole boolean, now bigint,
    words rewording[], told rewording[], if_version bigint
) RETURNS told LANGUAGE plpgsql AS $$
DECLARE
    answer told;
    head sessions;
BEGIN
    head := reach(a_key, a_space, an_owner, whole, now);
    IF if_version <> head.version THEN
        answer.code := 'version';
        answer.detail := head.version;
        RETURN answer;
    END IF;
    RETURN rewrite_session(writer, a_key, a_space, an_owner, whole, now, words, told);
END
$$;
