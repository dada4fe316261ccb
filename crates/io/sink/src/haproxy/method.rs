use plimsoll_model::{Method, MethodKind};

use crate::error::hash_method;

/// What a method's name alone tells.
pub(super) enum Known {
    /// All there is to know.
    Method(Method),
    /// It hashes: only HAProxy knows whether consistently or by a map.
    Hash(String),
}

/// Reads the `algo` column of a BACKEND row.
///
/// HAProxy 2.6 has no name for `random` and writes `unknown`: the only method it does so for. A name
/// not known here is reported as it is, and not steered: what its weights mean is not known either.
pub(super) fn from_algo(algo: &str) -> Known {
    let method = |name: &str, kind| Known::Method(Method { name: name.to_owned(), kind });
    match algo {
        "roundrobin" => method(algo, MethodKind::Split),
        "random" | "unknown" => method("random", MethodKind::Split),
        "leastconn" => method(algo, MethodKind::InFlight),
        hash if hash_method(hash) => Known::Hash(hash.to_owned()),
        // static-rr, first, none, and what other versions may add
        other => method(other, MethodKind::NoLiveWeights),
    }
}

/// The command that asks whether a hash takes live weights, and changes nothing.
///
/// HAProxy first checks that the method is dynamic, then misses the address: whichever it complains of
/// is the answer. (Setting a server's weight to its present value does not tell: 0 and the configured
/// weight are always accepted.)
pub(super) fn question(backend: &str, existing_server: &str) -> String {
    format!("add server {backend}/{existing_server}\n")
}

/// Reads the answer to [`question`]. Where it is not allowed or not known (below `level admin`, before
/// 2.6), the hash is taken to be consistent until a weight is refused.
pub(super) fn from_answer(name: String, answer: &[u8]) -> Method {
    let text = String::from_utf8_lossy(answer);
    let kind = if text.contains("dynamic load balancing") {
        MethodKind::NoLiveWeights
    } else {
        MethodKind::Split
    };
    Method { name, kind }
}

/// Whether the answer to [`question`] leaves it open: the socket's level does not allow it.
pub(super) fn is_unanswered(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains("Permission denied")
}

/// Whether a refused weight says that the method takes none.
pub(super) fn is_static(answer: &str) -> bool {
    answer.contains("static LB algorithm")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_all_but_the_hashes() {
        for (algo, name, kind) in [
            ("roundrobin", "roundrobin", MethodKind::Split),
            ("unknown", "random", MethodKind::Split),
            ("leastconn", "leastconn", MethodKind::InFlight),
            ("static-rr", "static-rr", MethodKind::NoLiveWeights),
            ("first", "first", MethodKind::NoLiveWeights),
            ("log-hash", "log-hash", MethodKind::NoLiveWeights),
        ] {
            let Known::Method(method) = from_algo(algo) else { panic!("{algo}") };
            assert_eq!((method.name.as_str(), method.kind), (name, kind));
        }
        for algo in ["source", "uri", "url_param", "hdr", "rdp-cookie", "hash"] {
            assert!(matches!(from_algo(algo), Known::Hash(name) if name == algo));
        }
    }
}
