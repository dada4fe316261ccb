//! The balancers that can be steered: one line each at the end of this file.

use plimsoll_config::Cursor;
use plimsoll_model::SinkLimits;

use crate::haproxy::HaproxyConfig;
use crate::nginx::{NginxConfig, NginxReloadConfig};
use crate::own::{L4SinkConfig, ProxySinkConfig};
use crate::{FoundPool, Servers, SinkConfig, SinkError, SinkHandle, Steered, Steering};

/// Makes [`Sink`], which is any of them, and the text that lists their forms.
macro_rules! registry {
    ($($(#[$doc:meta])* $kind:ident($config:ty)),+ $(,)?) => {
        /// The balancer of a service: its `sink` in the configuration.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Sink {
            $($(#[$doc])* $kind($config)),+
        }

        const KEYS: &[&str] = &[$(<$config>::KEY),+];
        const FORMS: &[&str] = &[$(<$config>::FORM),+];

        impl Sink {
            /// Every balancer's key in the configuration.
            pub const KINDS: &[&str] = KEYS;

            /// Reads one balancer.
            pub(crate) fn read(cursor: &Cursor<'_>) -> Option<Self> {
                let fields = cursor.fields(KEYS)?;
                let mut given = Vec::new();
                $(
                    if let Some(cursor) = fields.get(<$config>::KEY) {
                        given.push(<$config>::read(cursor).map(Sink::$kind));
                    }
                )+
                match given.len() {
                    0 => cursor.expected(one_sink()),
                    1 => given.swap_remove(0),
                    _ => cursor.expected(format!("{}, not several", one_sink())),
                }
            }

            /// What the balancer can take.
            pub fn limits(&self) -> SinkLimits {
                match self {
                    $(Sink::$kind(config) => config.limits()),+
                }
            }

            /// Whether its reports count requests that were lost: where they do not, checks alone show that a
            /// server died.
            pub fn reports_losses(&self) -> bool {
                match self {
                    $(Sink::$kind(_) => <$config>::REPORTS_LOSSES),+
                }
            }

            /// Whether it reports requests at all: where it does not, a [`Source`](crate::Source) must.
            pub fn reports_requests(&self) -> bool {
                match self {
                    $(Sink::$kind(_) => <$config>::REPORTS_REQUESTS),+
                }
            }

            /// Checks the names of servers, without a look at the balancer.
            ///
            /// # Errors
            /// [`SinkError::InvalidName`] for names that the balancer could not have, or that come twice.
            pub fn check(&self, servers: &Servers) -> Result<(), SinkError> {
                match self {
                    $(Sink::$kind(config) => config.check(servers)),+
                }
            }

            /// What one of its pools is, and the keys that lead to its name.
            pub(crate) fn names_pool(&self) -> (&'static str, [&'static str; 2]) {
                match self {
                    $(Sink::$kind(_) => (<$config>::POOL.0, [<$config>::KEY, <$config>::POOL.1])),+
                }
            }

            /// The same with its paths as the file system has them.
            pub(crate) fn spelled_out(&self) -> Self {
                match self {
                    $(Sink::$kind(config) => Sink::$kind(config.spelled_out())),+
                }
            }

            /// The balancer, for messages.
            pub fn place(&self) -> String {
                match self {
                    $(Sink::$kind(config) => config.place()),+
                }
            }

            /// The pool's name in the balancer.
            pub fn pool(&self) -> &str {
                match self {
                    $(Sink::$kind(config) => config.pool()),+
                }
            }

            /// The same for another pool of this balancer.
            #[must_use]
            pub fn with_pool(&self, name: &str) -> Self {
                match self {
                    $(Sink::$kind(config) => Sink::$kind(config.with_pool(name))),+
                }
            }

            /// Its key in `sink`, and its required keys with their values, as a configuration would have them.
            pub fn written(&self) -> (&'static str, Vec<(&'static str, String)>) {
                match self {
                    $(Sink::$kind(config) => (<$config>::KEY, config.written())),+
                }
            }

            /// Asks the balancer which pools and servers it has.
            ///
            /// # Errors
            /// When it cannot be reached or understood.
            pub async fn look(&self) -> Result<Vec<FoundPool>, SinkError> {
                let pools = match self {
                    $(Sink::$kind(config) => config.look().await),+
                }?;
                Ok(pools.into_iter().map(FoundPool::without_repeats).collect())
            }

            /// Begins to read the balancer, and to carry out plans, on the runtime of the caller; ends when the
            /// handle is dropped.
            ///
            /// # Errors
            /// As [`Sink::check`].
            pub fn start(&self, steering: &Steering, steered: Steered) -> Result<SinkHandle, SinkError> {
                match self {
                    $(Sink::$kind(config) => config.start(steering, steered)),+
                }
            }
        }
    };
}

/// What is expected as `sink`, for messages.
pub fn one_sink() -> String {
    let forms: Vec<String> =
        KEYS.iter().zip(FORMS).map(|(key, form)| format!("{{ {key}: {form} }}")).collect();
    format!("one balancer: {}", forms.join(" or "))
}

registry! {
    /// HAProxy, over its runtime API.
    Haproxy(HaproxyConfig),
    /// Plimsoll's own layer-4 balancer, over its daemon's socket.
    L4(L4SinkConfig),
    /// Plimsoll's own layer-7 proxy, over its socket.
    Proxy(ProxySinkConfig),
    /// NGINX, by way of a Lua balancer.
    Nginx(NginxConfig),
    /// NGINX by reloads.
    NginxReload(NginxReloadConfig),
}
