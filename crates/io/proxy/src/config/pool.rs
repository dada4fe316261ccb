//! Pools: backends, and the policy that picks among them.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_admission::{
    FailureRetries, LedgerOptions, RefusalBudget, RefusalRetries, RetryOptions, WaitOptions,
    WhenNone,
};
use plimsoll_config::{Cursor, Fields};
use plimsoll_policy::{
    Draw, EjectionSettings, ExpectedDelaySettings, HashKey, KeySource, PolicyKind, PrequalSettings,
    Probing, Settings, Sight, SlowStartSettings, UriPart,
};

use super::named::Named;
use super::notes::ProxyProtocol;
use super::source::{self, Health, Source};
use super::sticky::Cookie;

/// Tries after refusals where backends draw the line at their cores: two to four refusals are usual then.
const REFUSALS_BY_SIGHT: u32 = 8;
/// No request is tried more often than a policy can avoid backends.
const MOST_TRIES: u64 = plimsoll_policy::MAX_AVOID as u64 - 1;

/// Backends, and how one is picked.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name: routes, status and metrics go by it.
    pub name: String,
    /// Which policy.
    pub policy: PolicyKind,
    /// Its settings.
    pub settings: Settings,
    /// What of a request is hashed, for policies that go by a key.
    pub key: Option<HashKey>,
    /// How often requests are tried elsewhere.
    pub retries: RetryOptions,
    /// How requests that were refused wait for room; none: they do not.
    pub queue: Option<WaitOptions>,
    /// Where backends come from.
    pub source: Source,
    /// How backends are checked; none: not at all.
    pub health: Option<Health>,
    /// How backends get clients' addresses; none: not at all.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// By which cookie clients stay with their backends; none: by none.
    pub cookie: Option<Cookie>,
    /// The backends that it begins with.
    pub backends: Vec<Backend>,
}

/// One that does the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Its name: status and metrics go by it.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its weight, 0…65,535; 0 takes it out.
    pub weight: u32,
}

impl Pool {
    /// The weights, by index.
    pub fn weights(&self) -> Vec<u32> {
        self.backends.iter().map(|backend| backend.weight).collect()
    }

    pub(super) fn read(cursor: &Cursor<'_>, named: &mut Named) -> Option<Self> {
        named.pool();
        let fields = cursor.fields(&[
            "name",
            "policy",
            "key",
            "backends",
            "refusals",
            "failures",
            "choices",
            "draw",
            "decay",
            "hash_balance_factor",
            "max_in_flight",
            "load_age",
            "cpu_threshold_percent",
            "prequal",
            "bloc",
            "expected_delay",
            "ejection",
            "slow_start",
            "health",
            "proxy_protocol",
            "cookie",
        ])?;
        let name = fields.required("name", "the pool's name", |c| named.name(c));
        let policy = fields.or("policy", PolicyKind::ExpectedDelay, policy);
        let key = fields.optional("key", key);
        let backends = fields.required("backends", "a list of at least one backend", source::read);
        let health = fields.optional("health", source::health);
        let proxy_protocol = fields.optional("proxy_protocol", ProxyProtocol::read);
        let cookie = fields.optional("cookie", Cookie::read);
        let settings = settings(&fields);
        let most = match settings.map(|settings| settings.expected_delay.sight) {
            Some(Sight::Refusals) => REFUSALS_BY_SIGHT,
            _ => RefusalRetries::default().most,
        };
        let default = RefusalRetries { most, ..RefusalRetries::default() };
        let refusals = fields.or("refusals", (default, None), |c| refusals(c, default));
        let failures = fields.or("failures", FailureRetries::default(), failures);
        let known = backends.as_ref().map(|(source, _)| source);
        relations(cursor, &fields, (policy, settings), (cookie.as_ref(), known));
        let (source, backends) = backends?;
        let (refusals, queue) = refusals?;
        let retries = RetryOptions { refusals, failures: failures? };
        Some(Pool {
            name: name?,
            policy: policy?,
            settings: settings?,
            key: key?,
            retries,
            queue,
            source,
            health: health?,
            proxy_protocol: proxy_protocol?,
            cookie: cookie?,
            backends,
        })
    }
}

/// Reports every key that does not go with another, as far as both could be read.
fn relations(
    cursor: &Cursor<'_>,
    fields: &Fields<'_>,
    (policy, settings): (Option<PolicyKind>, Option<Settings>),
    (cookie, source): (Option<&Option<Cookie>>, Option<&Source>),
) {
    let problem = |at: &Cursor<'_>, what: String| at.problem::<()>(what);
    if let (Some(at), Some(Some(Cookie { key: None, .. })), Some(Source::Dns { .. })) =
        (fields.get("cookie"), cookie, source)
    {
        problem(
            at,
            "missing key; expected a secret, for backends that DNS lists are called like their addresses, which could \
             be guessed from cookies"
                .to_owned(),
        );
    }
    let Some(policy) = policy else { return };
    let hashes =
        matches!(policy, PolicyKind::HashMap | PolicyKind::HashRing | PolicyKind::HashMaglev);
    match fields.get("key") {
        None if hashes => {
            problem(cursor, format!("missing key; expected what {policy} is to hash"));
        }
        Some(key) if !hashes => {
            problem(key, format!("expected no key: {policy} goes by none"));
        }
        _ => {}
    }
    if let (Some(at), true) = (fields.get("cookie"), hashes) {
        problem(at, format!("expected no cookie: {policy} sends each key to its own backend"));
    }
    let Some(settings) = settings else { return };
    match (policy.build(&[], &settings), fields.get("proxy_protocol")) {
        (Err(error), _) => {
            problem(cursor, error.to_string());
        }
        (Ok(built), Some(at)) if built.probing() != Probing::Never => {
            let why = "asks backends on connections that have no client";
            problem(at, format!("expected none: {policy} {why}"));
        }
        _ => {}
    }
}

fn policy(cursor: &Cursor<'_>) -> Option<PolicyKind> {
    let text = cursor.text("a policy's name")?;
    match text.parse() {
        Ok(kind) => Some(kind),
        Err(error) => cursor.problem(error),
    }
}

/// `source`, `uri`, or a mapping with one of `header`, `cookie`, `query_param` and its name.
fn key(cursor: &Cursor<'_>) -> Option<HashKey> {
    if cursor.is_scalar() {
        let by_uri = cursor.one_of(&[("source", false), ("uri", true)])?;
        let uri = KeySource::Uri(UriPart::default());
        return Some(HashKey::new(if by_uri { uri } else { KeySource::Source }));
    }
    let fields = cursor.fields(&["header", "cookie", "query_param"])?;
    let token = |c: &Cursor<'_>| {
        let valid = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        c.text_if("a name", |text| !text.is_empty() && text.bytes().all(valid)).map(str::to_owned)
    };
    let of = match (fields.get("header"), fields.get("cookie"), fields.get("query_param")) {
        (Some(name), None, None) => KeySource::Header(token(name)?),
        (None, Some(name), None) => KeySource::Cookie(token(name)?),
        (None, None, Some(name)) => KeySource::QueryParam(token(name)?),
        _ => return cursor.expected("one of header, cookie and query_param"),
    };
    Some(HashKey::new(of))
}

fn settings(fields: &Fields<'_>) -> Option<Settings> {
    let default = Settings::default();
    let choices = fields.or("choices", default.choices, |c| number(c, 1, 16));
    let draw = fields.or("draw", default.draw, |c| {
        c.one_of(&[("by_weight", Draw::ByWeight), ("uniform", Draw::Uniform)])
    });
    let decay_ms = fields.or("decay", default.decay_ms, ms);
    let hash_balance_factor = fields.optional("hash_balance_factor", |c| number(c, 101, 100_000));
    let max_in_flight = fields.optional("max_in_flight", |c| number(c, 1, u32::MAX));
    let load_age_ms = fields.or("load_age", default.load_age_ms, ms);
    let cpu_threshold_percent =
        fields.or("cpu_threshold_percent", default.cpu_threshold_percent, |c| number(c, 1, 100));
    let prequal = fields.or("prequal", default.prequal, prequal);
    let bloc = fields.or("bloc", default.bloc, bloc);
    // Where every connection is some client's, there is none to ask on.
    let sight = fields.get("proxy_protocol").map_or_else(Sight::default, |_| Sight::Own);
    let seen = ExpectedDelaySettings { sight, ..default.expected_delay };
    let expected_delay = fields.or("expected_delay", seen, |c| expected_delay(c, seen));
    let ejection = fields.optional("ejection", ejection);
    let slow_start = fields.optional("slow_start", slow_start);
    Some(Settings {
        choices: choices?,
        draw: draw?,
        decay_ms: decay_ms?,
        hash_balance_factor: hash_balance_factor?,
        max_in_flight: max_in_flight?,
        load_age_ms: load_age_ms?,
        cpu_threshold_percent: cpu_threshold_percent?,
        prequal: prequal?,
        bloc: bloc?,
        expected_delay: expected_delay?,
        ejection: ejection?,
        slow_start: slow_start?,
    })
}

fn number(cursor: &Cursor<'_>, least: u32, most: u32) -> Option<u32> {
    cursor.integer(u64::from(least)..=u64::from(most)).map(|n| n as u32)
}

/// A time of at least a millisecond, in milliseconds.
fn ms(cursor: &Cursor<'_>) -> Option<u64> {
    let bounds = Duration::from_millis(1)..=Duration::from_secs(24 * 3_600);
    cursor.duration(bounds).map(|span| span.as_millis() as u64)
}

fn prequal(cursor: &Cursor<'_>) -> Option<PrequalSettings> {
    let default = PrequalSettings::default();
    let fields =
        cursor.fields(&["probes_per_100", "removals_per_100", "pool", "hot_percentile"])?;
    let bounded =
        |key: &str, default, least, most| fields.or(key, default, |c| number(c, least, most));
    let probes_per_100 = bounded("probes_per_100", default.probes_per_100, 1, 1_600);
    let removals_per_100 = bounded("removals_per_100", default.removals_per_100, 0, 1_600);
    let pool = bounded("pool", default.pool, 2, 64);
    let hot_percentile = bounded("hot_percentile", default.hot_percentile, 0, 100);
    Some(PrequalSettings {
        probes_per_100: probes_per_100?,
        removals_per_100: removals_per_100?,
        pool: pool?,
        hot_percentile: hot_percentile?,
    })
}

fn bloc(cursor: &Cursor<'_>) -> Option<LedgerOptions> {
    let default = LedgerOptions::default();
    let fields = cursor.fields(&["reset_interval", "most_chips", "when_none"])?;
    let reset_interval_ms = fields.or("reset_interval", default.reset_interval_ms, ms);
    let most_chips = fields.or("most_chips", default.most_chips, |c| number(c, 1, 1 << 20));
    let when_none = fields.or("when_none", default.when_none, |c| {
        c.one_of(&[("probe_oldest", WhenNone::ProbeOldest), ("fail_fast", WhenNone::FailFast)])
    });
    Some(LedgerOptions {
        reset_interval_ms: reset_interval_ms?,
        most_chips: most_chips?,
        when_none: when_none?,
    })
}

fn expected_delay(
    cursor: &Cursor<'_>,
    default: ExpectedDelaySettings,
) -> Option<ExpectedDelaySettings> {
    let fields = cursor.fields(&["sight", "probes"])?;
    let sight = fields.or("sight", default.sight, |c| {
        c.one_of(&[
            ("auto", Sight::Auto),
            ("own", Sight::Own),
            ("refusals", Sight::Refusals),
            ("probes", Sight::Probes),
        ])
    });
    let probes = fields.or("probes", default.probes, |c| number(c, 1, 16));
    Some(ExpectedDelaySettings { sight: sight?, probes: probes? })
}

fn ejection(cursor: &Cursor<'_>) -> Option<EjectionSettings> {
    let default = EjectionSettings::default();
    let fields = cursor.fields(&[
        "consecutive_failures",
        "interval",
        "base",
        "max",
        "max_percent",
        "success_rate_hosts",
        "success_rate_requests",
        "success_rate_stdev_factor",
    ])?;
    let count =
        |key: &str, default: u32, most: u32| fields.or(key, default, |c| number(c, 0, most));
    let consecutive_failures =
        count("consecutive_failures", default.consecutive_failures, u32::MAX);
    let interval_ms = fields.or("interval", default.interval_ms, ms);
    let base_ms = fields.or("base", default.base_ms, ms);
    let max_ms = fields.or("max", default.max_ms, ms);
    let max_percent = count("max_percent", default.max_percent, 100);
    let hosts = count("success_rate_hosts", default.success_rate_hosts, u32::MAX);
    let requests = count("success_rate_requests", default.success_rate_requests, u32::MAX);
    let factor = count("success_rate_stdev_factor", default.success_rate_stdev_factor, u32::MAX);
    Some(EjectionSettings {
        consecutive_failures: consecutive_failures?,
        interval_ms: interval_ms?,
        base_ms: base_ms?,
        max_ms: max_ms?,
        max_percent: max_percent?,
        success_rate_hosts: hosts?,
        success_rate_requests: requests?,
        success_rate_stdev_factor: factor?,
    })
}

fn slow_start(cursor: &Cursor<'_>) -> Option<SlowStartSettings> {
    let default = SlowStartSettings::default();
    let fields = cursor.fields(&["window", "least_percent"])?;
    let window_ms = fields.or("window", default.window_ms, ms);
    let least_percent = fields.or("least_percent", default.least_percent, |c| number(c, 1, 100));
    Some(SlowStartSettings { window_ms: window_ms?, least_percent: least_percent? })
}

fn refusals(
    cursor: &Cursor<'_>,
    default: RefusalRetries,
) -> Option<(RefusalRetries, Option<WaitOptions>)> {
    let fields = cursor.fields(&["most", "budget", "queue"])?;
    let most = fields.or("most", default.most, |c| c.integer(0..=MOST_TRIES).map(|n| n as u32));
    let budget = fields.or("budget", RefusalBudget::default(), |c| {
        let (fields, default) = (c.fields(&["per_admitted", "burst"])?, RefusalBudget::default());
        let per_admitted =
            fields.or("per_admitted", default.per_admitted, |c| c.number(0.0..=1_000.0));
        let burst = fields.or("burst", default.burst, |c| number(c, 1, 1 << 20));
        Some(RefusalBudget { per_admitted: per_admitted?, burst: burst? })
    });
    let queue = fields.optional("queue", queue);
    Some((RefusalRetries { most: most?, budget: Some(budget?) }, queue?))
}

fn queue(cursor: &Cursor<'_>) -> Option<WaitOptions> {
    let (fields, default) = (cursor.fields(&["timeout", "max_requests"])?, WaitOptions::default());
    let timeout_ms = fields.or("timeout", default.timeout_ms, ms);
    let max_requests = fields.or("max_requests", default.max_requests, |c| number(c, 1, 1 << 20));
    Some(WaitOptions { timeout_ms: timeout_ms?, max_requests: max_requests? })
}

fn failures(cursor: &Cursor<'_>) -> Option<FailureRetries> {
    let default = FailureRetries::default();
    let fields = cursor.fields(&["most", "share", "least"])?;
    let most = fields.or("most", default.most, |c| c.integer(0..=MOST_TRIES).map(|n| n as u32));
    let share = fields.or("share", default.share, |c| c.number(0.0..=1.0));
    let least = fields.or("least", default.least, |c| number(c, 0, u32::MAX));
    Some(FailureRetries { most: most?, share: share?, least: least? })
}
