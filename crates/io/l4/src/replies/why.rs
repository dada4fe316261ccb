//! Why the kernel's routes are asked for each packet.

use serde::Serialize;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// No daemon has looked yet.
    NotLooked,
    /// `uplink: ask`.
    Configured,
    /// The operator's next hop has no MAC address yet, or its interface is not there.
    UplinkNotFound,
    /// The kernel did not tell its routes.
    NotTold,
    /// There are rules beside the kernel's own.
    Rules,
    /// There are more routes than are followed.
    ManyRoutes,
    /// There is no default route.
    NoDefault,
    /// There are several of the same metric, or it has several next hops.
    Several,
    /// It is for some sources or classes only, encapsulates, uses a next-hop object, or is down.
    Special,
    /// It leads to no router.
    NoGateway,
    /// It leaves by an interface that is not configured.
    OtherInterface,
    /// The router's MAC address is not known.
    NoNeighbour,
    /// An interface of the balancer does not forward, so that the kernel's routes hold for nothing there.
    NotForwarding,
    /// The daemon has not renewed what it said: it is gone, or too busy.
    Expired,
}

impl Why {
    /// Each of them, by its code.
    pub(crate) const ALL: [Why; 14] = [
        Why::NotLooked,
        Why::Configured,
        Why::UplinkNotFound,
        Why::NotTold,
        Why::Rules,
        Why::ManyRoutes,
        Why::NoDefault,
        Why::Several,
        Why::Special,
        Why::NoGateway,
        Why::OtherInterface,
        Why::NoNeighbour,
        Why::NotForwarding,
        Why::Expired,
    ];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Why {
        Why::ALL.get(usize::from(code)).copied().unwrap_or(Why::NotLooked)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Why::NotLooked => "no daemon has looked yet",
            Why::Configured => "as configured",
            Why::UplinkNotFound => "the configured uplink has no MAC address yet",
            Why::NotTold => "the kernel did not tell its routes",
            Why::Rules => "there are policy rules",
            Why::ManyRoutes => "there are too many routes",
            Why::NoDefault => "there is no default route",
            Why::Several => "there are several default routes or next hops",
            Why::Special => "the default route is a special one",
            Why::NoGateway => "the default route has no gateway",
            Why::OtherInterface => "the default route leaves by an interface not in l4.interfaces",
            Why::NoNeighbour => "the gateway's MAC address is not known",
            Why::NotForwarding => "forwarding is off on an interface of l4.interfaces",
            Why::Expired => "no daemon follows the routes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_code_of_its_own() {
        for why in Why::ALL {
            assert_eq!(Why::from_code(why.code()), why);
        }
        assert_eq!(Why::from_code(200), Why::NotLooked);
    }
}
