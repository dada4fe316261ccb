use super::AccessLevel;

/// Which process answers on a connection, and what this connection may ask of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    /// The name of its machine.
    pub node: String,
    /// Its number there.
    pub pid: u32,
    /// When it started, seconds since 1970.
    pub started_at: u64,
    /// The level of the socket: two sockets of one process may allow different things.
    pub level: Option<AccessLevel>,
}

/// What a process says of itself at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Which process it says it is.
    pub identity: ProcessIdentity,
    /// Bytes it has sent to anybody so far.
    pub sent: u64,
    /// Bytes it sent to us since, which it counts afterwards.
    pub answered: u64,
}

impl Witness {
    /// Whether three answers, asked for one after the other on one connection, another one, and the first
    /// again, come from one process. Number and start alone do not prove it (containers have few numbers,
    /// and start together): but only one process counts what both connections were sent.
    pub fn is_one_process(first: &Witness, other: &Witness, last: &Witness) -> bool {
        first.identity == other.identity
            && first.identity == last.identity
            && first.sent > 0
            && other.sent >= first.sent + first.answered
            && last.sent >= other.sent + other.answered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(pid: u32, sent: u64) -> Witness {
        let identity = ProcessIdentity {
            node: "n".into(),
            pid,
            started_at: 9,
            level: Some(AccessLevel::Admin),
        };
        Witness { identity, sent, answered: 1_000 }
    }

    #[test]
    fn twin_processes_with_the_same_number_and_start_are_not_taken_for_one() {
        let one = |first, other, last| {
            Witness::is_one_process(&witness(8, first), &witness(8, other), &witness(8, last))
        };
        assert!(one(5_000, 6_000, 7_000), "each counts what the other connection was sent");
        assert!(one(5_000, 96_000, 99_000), "and what clients were");
        // Idle twins: each counts its own connection only.
        assert!(!one(5_000, 5_000, 6_000));
        assert!(!one(5_000, 6_000, 6_000));
        assert!(!one(5_000, 900_000, 6_000), "the other has sent much more");
        assert!(!one(0, 1_000, 2_000), "this HAProxy does not count");
        let (other, third) = (witness(9, 6_000), witness(8, 7_000));
        assert!(!Witness::is_one_process(&witness(8, 5_000), &other, &third));
    }
}
