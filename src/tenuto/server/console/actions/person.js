/** Which users are the person here: show a code, use one, part a user from the others. */

import { json } from "../api.js";
import { guardedRequests } from "./guarded.js";

const PERSON = "v1/person";
const LOOKING = 3000;

/** `linked` is called when another door has used the code that is shown. */
export function personActions(store, { get, patch }, linked) {
  const { guarded, leave } = guardedRequests(store, ({ problem }) => patch({ unlinkable: problem }));
  let looking = null;

  const bring = () => guarded(() => json("GET", PERSON), (person) => patch({ person }));

  /** While a code is shown, see whether it was used. */
  function look(told) {
    looking = setTimeout(async () => {
      const before = get().person.identities.length;
      await bring();
      if (get().code === null) return;
      if (get().person.identities.length !== before) {
        hide();
        store.change({ told });
        linked();
      } else if (Date.parse(get().code.expires_at) > Date.now()) look(told);
      else hide();
    }, LOOKING);
  }

  function hide() {
    clearTimeout(looking);
    patch({ code: null });
  }

  async function change(act, told) {
    patch({ unlinkable: null });
    const done = await guarded(act, (person) => {
      patch({ person });
      store.change({ told });
    });
    if (done) await linked();
    return done;
  }

  return {
    bring,
    hide,
    async show(told) {
      hide();
      patch({ unlinkable: null });
      const shown = await guarded(
        () => json("POST", `${PERSON}/code`),
        (code) => patch({ code }),
      );
      if (shown) look(told);
    },
    use: (code, told) => change(() => json("POST", `${PERSON}/link`, { code }), told),
    part: (user, told) => change(() => json("DELETE", `${PERSON}/identities/${encodeURIComponent(user)}`), told),
    leave() {
      hide();
      leave();
    },
  };
}
