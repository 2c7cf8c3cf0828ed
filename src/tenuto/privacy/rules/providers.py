"""What providers' keys begin with, and what follows: one line a provider or a family of them.

The table is looked up by a key's first two characters, so it may grow without making anything slower.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from tenuto.privacy.rules.labels import words

_BODY: Final = "[A-Za-z0-9_-]"
_UUID: Final = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

# A line is one or more prefixes, and the pattern of what follows each of them.
_BEGINNINGS: Final[tuple[tuple[str, str], ...]] = (
    # language models and what is built around them
    ("sk-", rf"{_BODY}{{16,}}"),
    ("pk-lf- xai- pplx- tvly- nvapi- csk- dsk- ark- vk1- llx- key_live- key_test-", rf"{_BODY}{{24,}}"),
    ("ak- as- pa- fc-", "[A-Za-z0-9]{22,}"),
    ("gsk_ r8_ jina_ fw_ rpa_ csk_ e2b_ api_org_ hf_ cpk_", "[A-Za-z0-9]{20,}"),
    ("lsv2_pt_ lsv2_sk_ pcsk_ apify_api_ tgp_v1_ wandb_v1_", rf"{_BODY}{{20,}}"),
    ("bce-v3/ALTAK-", "[A-Za-z0-9]+/[a-f0-9]{32,}"),
    ("ABSK", "[A-Za-z0-9+/=]{40,}"),
    ("BSA", rf"{_BODY}{{24,}}"),
    # clouds
    ("AKIA ASIA AROA AIDA ABIA ACCA ANPA ANVA APKA", "[A-Z0-9]{12,24}(?![A-Za-z0-9])"),
    ("AIza", rf"{_BODY}{{30,}}"),
    ("ya29.", rf"{_BODY}{{20,}}"),
    ("1//0", rf"{_BODY}{{24,}}"),
    ("GOCSPX-", rf"{_BODY}{{20,}}"),
    ("AQ.Ab", rf"{_BODY}{{30,}}"),
    ("dop_v1_ doo_v1_ dor_v1_", "[a-f0-9]{32,}"),
    ("LTAI AKID AKLT ALTAK- ALTAK", "[A-Za-z0-9]{12,44}"),
    ("SCW", "[A-Z0-9]{15,20}(?![A-Za-z0-9])"),
    ("tskey-", rf"{_BODY}{{16,}}"),
    ("v1.0-", "[a-f0-9]{16,}-[a-f0-9]{32,}"),
    ("dapi", "[a-f0-9]{30,}(?:-[0-9])?"),
    ("fo1_ fm1r_ fm2_", "[A-Za-z0-9_+/=-]{20,}"),
    ("vercel_blob_rw_", rf"{_BODY}{{20,}}"),
    ("vcp_ vci_ vca_ vcr_ vck_ nfp_ nfc_ nfo_ nfu_ nfb_ rnd_ napi_ nps_", "[A-Za-z0-9]{20,}"),
    ("sbp_ sb_secret_ sb_publishable_ pscale_tkn_ pscale_pw_ pscale_oauth_ mdb_sa_sk_", r"[A-Za-z0-9_.-]{20,}"),
    # payments
    ("sk_live_ sk_test_ sk_prod_ rk_live_ rk_test_ rk_prod_ pk_live_ pk_test_ pk_prod_", "[A-Za-z0-9]{10,}"),
    ("sk_", "(?:[a-f0-9]{40,}|[a-z0-9]{26,})"),
    ("whsec_", "[A-Za-z0-9+/=]{16,}"),
    ("sq0atp- sq0csp- sq0idp-", rf"{_BODY}{{20,}}"),
    ("EAA", "[A-Za-z0-9_-]{40,}"),
    ("access_token$production$ access_token$sandbox$", r"[a-z0-9]{16}\$[a-f0-9]{32}"),
    ("access-production- access-sandbox- access-development-", _UUID),
    ("rzp_live_ rzp_test_", "[A-Za-z0-9]{12,}"),
    ("live_ test_", "[A-Za-z0-9]{30,}"),
    ("AQE", "[A-Za-z0-9+/=-]{50,}"),
    ("pdl_live_apikey_ pdl_sdbx_apikey_ polar_oat_ polar_pat_ xnd_production_ xnd_development_", rf"{_BODY}{{20,}}"),
    ("FLWSECK- FLWSECK_TEST- FLWPUBK- FLWPUBK_TEST-", rf"{_BODY}{{20,}}"),
    ("APP_USR- TEST-", "[0-9]{10,}-[0-9]{6}-[a-f0-9]{32}(?:-[0-9]+)?"),
    ("Mid-server- SB-Mid-server- skey_test_ skey_ cfsk_ma_prod_ cfsk_ma_test_", rf"{_BODY}{{16,}}"),
    ("EZAK EZTK", "[A-Za-z0-9]{40,}"),
    ("shpat_ shpss_ shpca_ shppa_ shpit_", "[A-Fa-f0-9]{24,}"),
    # code, packages, builds
    ("ghp_ gho_ ghu_ ghs_ ghr_", "[A-Za-z0-9]{20,}"),
    ("github_pat_", "[A-Za-z0-9_]{20,}"),
    (
        "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- glimt- gloas- glffct- glwt-",
        r"[A-Za-z0-9_.-]{16,}",
    ),
    ("GR1348941", rf"{_BODY}{{16,}}"),
    ("ATATT3 ATCTT3 ATSTT3 ATBB ATTA", "[A-Za-z0-9_=-]{20,}"),
    ("npm_", "[A-Za-z0-9]{30,}"),
    ("pypi-", rf"{_BODY}{{30,}}"),
    ("rubygems_", "[a-f0-9]{32,}"),
    ("cio", "[A-Za-z0-9]{30,}"),
    ("oy2", "[a-z0-9]{40,}"),
    ("AKCp", "[A-Za-z0-9]{60,}"),
    ("dckr_pat_ dckr_oat_", rf"{_BODY}{{20,}}"),
    ("CCIPAT_ CCIPRJ_ bkua_ bkct_ snyk_uat. sqp_ squ_ sqa_ sgp_ pul- PMAK-", r"[A-Za-z0-9_.-]{20,}"),
    ("hvs. hvb. hvr. dp.pt. dp.st. dp.ct. dp.sa.", r"[A-Za-z0-9_.-]{20,}"),
    ("ops_eyJ", "[A-Za-z0-9_=-]{40,}"),
    ("AGE-SECRET-KEY-1", "[A-Z0-9]{40,}"),
    ("HRKU-", rf"{_BODY}{{20,}}"),
    ("sl.", rf"(?:u\.)?{_BODY}{{40,}}"),
    # chat, mail, work
    ("xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xoxc- xoxd- xoxe.xoxb- xoxe.xoxp-", "[A-Za-z0-9-]{10,}"),
    ("xapp-", "[0-9]-[A-Za-z0-9-]{10,}"),
    ("SG.", rf"{_BODY}{{16,}}\.{_BODY}{{16,}}"),
    ("SK AC", "[0-9a-f]{30,34}(?![A-Za-z0-9])"),
    ("key-", "[0-9a-f]{30,}"),
    ("xkeysib- xsmtpsib-", "[a-f0-9]{32,}(?:-[A-Za-z0-9]+)?"),
    ("re_", r"[A-Za-z0-9]{8}_[A-Za-z0-9]{20,}"),
    ("mlsn.", "[a-f0-9]{40,}"),
    ("pat-na1- pat-eu1- pat-na2- pat-ap1-", _UUID),
    ("lin_api_ lin_oauth_ lin_wh_", "[A-Za-z0-9]{20,}"),
    ("secret_ ntn_", "[A-Za-z0-9]{36,}"),
    ("figd_ figu_ figo_", rf"{_BODY}{{20,}}"),
    ("pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{40,}"),
    ("pk_ sk_", "(?:[0-9]{6,10}_[A-Z0-9]{32}|[a-f0-9]{34})"),
    ("tfp_", r"[A-Za-z0-9_.-]{20,}"),
    ("CFPAT- NRAK- NRJS- NRIQ- NRRA-", rf"{_BODY}{{18,}}"),
    # watching, maps, sign-in
    ("glsa_ glc_ sntrys_ sntryu_ phc_ phx_ phs_ hcaik_ hcxik_ hcbik_ aio_", "[A-Za-z0-9_.=+/-]{20,}"),
    ("dt0c01. dt0s01. dt0s16.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{32,}"),
    ("sdk- mob- api-", _UUID),
    ("pdus+", "[A-Za-z0-9_+-]{16,}"),
    ("sk.eyJ pk.eyJ tk.eyJ", rf"{_BODY}{{20,}}\.{_BODY}{{16,}}"),
    ("secret-live- secret-test-", "[A-Za-z0-9_=-]{20,}"),
    ("IGQ", rf"{_BODY}{{60,}}"),
    ("AAAAAAAAAA", "[A-Za-z0-9%]{40,}"),
    ("oauth:", "[a-z0-9]{30}"),
)
# Without a beginning of their own, they are known by what stands inside.
SHAPES: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (sign, re.compile(rf"(?<![A-Za-z0-9]){pattern}"))
    for sign, pattern in (
        ("-us", "[0-9a-f]{32}-us[0-9]{1,2}(?![A-Za-z0-9])"),
        (".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}"),
        ("NRAL", "[a-z0-9]{2,6}[a-f0-9]{30,36}NRAL(?![A-Za-z0-9])"),
        ("Q~", r"[A-Za-z0-9_.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{30,36}"),
        (":APA91b", rf"{_BODY}{{8,24}}:APA91b{_BODY}{{40,}}"),
        ("msh", "[a-f0-9]{10}msh[a-f0-9]{15,}p1[a-f0-9]{5}jsn[a-f0-9]{10,}"),
        (":", f"{_UUID}:[0-9a-f]{{32}}"),
        (":", "[0-9]{8,10}:[A-Za-z0-9_-]{33,37}(?![A-Za-z0-9_-])"),  # Telegram bots
        (":", r"[12]/[0-9]{10,}(?:/[0-9]{10,})?:[0-9a-f]{32}"),  # Asana
        (".", r"[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}"),  # Discord bots
        (".", r"[0-9a-f]{32}\.(?=[a-z0-9]*[A-Z])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16}(?![A-Za-z0-9])"),  # Zhipu
    )
)

# A word of one of these before a long word without sense: the sentence says what it is.
KEY_WORDS: Final = tuple(
    words(
        """api app auth access server license licence service secret private personal ak sk pat sas sig bearer token key
    credential oauth jwt webhook"""
    )
)
NAMES: Final = tuple(
    words(
        """stripe twilio sendgrid mailgun mailchimp postmark resend braintree adyen plaid paypal square razorpay shopify
    slack discord telegram intercom zendesk hubspot airtable asana notion linear github gitlab bitbucket npm pypi nuget
    heroku vercel netlify cloudflare digitalocean aws azure gcp firebase supabase datadog sentry grafana pagerduty
    newrelic openai anthropic gemini cohere mistral groq replicate huggingface pinecone algolia mapbox qiniu aliyun
    dropbox okta auth0 snyk confluent databricks snowflake elastic segment mixpanel amplitude"""
    )
)


def _by_head() -> dict[str, re.Pattern[str]]:
    lines: defaultdict[str, list[str]] = defaultdict(list)
    for prefixes, rest in _BEGINNINGS:
        for prefix in prefixes.split():
            lines[prefix[:2]].append(re.escape(prefix) + rest)
    return {head: re.compile("|".join(patterns)) for head, patterns in lines.items()}


BY_HEAD: Final = _by_head()
"""The first two characters of a key, and every pattern that begins with them."""
