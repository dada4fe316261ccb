//! Which forwarder a node follows: the last one that proved to be there.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use super::Ask;

/// What a node believes of forwarders since it started.
#[derive(Debug, Default)]
pub(crate) struct Followed {
    /// The forwarder, and its last question that was believed.
    last: Option<(u64, u64)>,
    /// Forwarders that another one has followed: 8 bytes for each start of a forwarder.
    superseded: BTreeSet<u64>,
    address: Option<Ipv4Addr>,
}

impl Followed {
    /// Takes a question, where it is for this start (`boot`) of a node that agrees with it, and nothing that was
    /// believed is newer. Whether the forwarder's address is another one now.
    pub(crate) fn take(&mut self, ask: &Ask, boot: u64, agreement: &str) -> bool {
        if ask.node != Some(boot)
            || ask.agreement != agreement
            || self.superseded.contains(&ask.forwarder)
        {
            return false;
        }
        if let Some((forwarder, sequence)) = self.last {
            if forwarder != ask.forwarder {
                self.superseded.insert(forwarder);
            } else if ask.sequence <= sequence {
                return false;
            }
        }
        self.last = Some((ask.forwarder, ask.sequence));
        self.address.replace(ask.address) != Some(ask.address)
    }

    /// Where the forwarder is.
    pub(crate) fn address(&self) -> Option<Ipv4Addr> {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(forwarder: u64, sequence: u64, last: u8) -> Ask {
        let address = Ipv4Addr::new(10, 3, 0, last);
        Ask { forwarder, address, sequence, node: Some(7), agreement: "x".to_owned() }
    }

    #[test]
    fn what_was_recorded_of_an_earlier_forwarder_moves_nothing() {
        let mut followed = Followed::default();
        assert!(followed.take(&ask(1, 5, 1), 7, "x"));
        assert!(!followed.take(&ask(1, 6, 1), 7, "x"), "where it was");
        assert!(followed.take(&ask(2, 1, 2), 7, "x"), "it moved to another machine");
        for (what, recorded) in [
            ("newer than was heard of it", ask(1, 9, 1)),
            ("older", ask(1, 4, 1)),
            ("the same again", ask(2, 1, 2)),
            ("of an earlier start of the node", Ask { node: Some(6), ..ask(3, 1, 3) }),
            ("to a node that is not known yet", Ask { node: None, ..ask(3, 1, 3) }),
            ("that does not agree", Ask { agreement: "y".to_owned(), ..ask(3, 1, 3) }),
        ] {
            assert!(!followed.take(&recorded, 7, "x"), "{what}");
            assert_eq!(followed.address(), Some(Ipv4Addr::new(10, 3, 0, 2)), "{what}");
        }
        assert!(followed.take(&ask(2, 2, 4), 7, "x"), "its address changed");
        assert!(followed.take(&ask(3, 1, 3), 7, "x"), "what did not count left no trace");
    }
}
