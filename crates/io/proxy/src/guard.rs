//! What counts a request until its response has ended. Dropped without more, the client has given it up.

use plimsoll_admission::Ended;
use plimsoll_policy::Ending;

use crate::balance::{Flight, Live};
use crate::ingress::Admitted;

/// An egress entry's, or an ingress entry's.
pub(crate) enum Guard {
    /// A request on a backend of a pool; how it ends when its response does.
    Flight(Flight, Ending, Live),
    /// A request on an application; how it ends when its response does.
    Admitted(Admitted, Ended),
    /// A captured request on its way to where it was going: it is not balanced.
    Captured,
}

impl Guard {
    /// It has been answered, and goes on with another protocol.
    pub(crate) fn answered(&mut self) {
        match self {
            Guard::Flight(flight, ..) => flight.answered(),
            // How long it goes on says nothing of the application's speed.
            Guard::Admitted(_, ended) => *ended = Ended::Abandoned,
            Guard::Captured => {}
        }
    }

    /// All of the response has been passed on.
    pub(crate) fn complete(self) {
        match self {
            Guard::Flight(flight, ending, _live) => flight.end(ending),
            Guard::Admitted(admitted, ended) => admitted.end(ended),
            Guard::Captured => {}
        }
    }

    /// The backend broke off.
    pub(crate) fn broken(self) {
        match self {
            Guard::Flight(flight, _, _live) => flight.end(Ending::Failure),
            Guard::Admitted(admitted, _) => admitted.end(Ended::Failed),
            Guard::Captured => {}
        }
    }
}
