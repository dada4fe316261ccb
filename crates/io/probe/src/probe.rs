use std::sync::Arc;
use std::time::Duration;

use memchr::memmem::Finder;
use plimsoll_config::Address;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use crate::spec::{Connection, ProbeSpec, Scheme, SpecError};
use crate::{request, tls};

/// A checked [`ProbeSpec`]: what is asked, which answer is a success, and the TLS authorities, read
/// from their file once. Shared by all backends of a service.
#[derive(Debug)]
pub struct Probe {
    spec: ProbeSpec,
    expect_body: Option<Finder<'static>>,
    tls: Option<Arc<ClientConfig>>,
}

impl Probe {
    /// Checks the spec and reads the file of authorities, if it names one (blocking).
    ///
    /// # Errors
    /// The first thing that is wrong with the spec.
    pub fn new(spec: ProbeSpec) -> Result<Self, SpecError> {
        Probe::check(&spec)?;
        let tls = match spec.scheme {
            Scheme::Http => None,
            Scheme::Https => Some(tls::client_config(&spec.tls.clone().unwrap_or_default())?),
        };
        let expect_body = spec.expect_body.as_ref().map(|text| Finder::new(text).into_owned());
        Ok(Probe { spec, expect_body, tls })
    }

    /// Checks the spec, and reads no file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(spec: &ProbeSpec) -> Result<(), SpecError> {
        request::validate(spec)?;
        if spec.scheme == Scheme::Https {
            let given = spec.tls.as_ref().and_then(|tls| tls.server_name.clone());
            if let Some(name) = given.or_else(|| spec.host.as_deref().map(host_of)) {
                tls::server_name(&name)?;
            }
        }
        Ok(())
    }

    /// What was checked.
    pub fn spec(&self) -> &ProbeSpec {
        &self.spec
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.spec.timeout
    }

    pub(crate) fn keeps(&self) -> bool {
        self.spec.connection == Connection::Keep
    }

    pub(crate) fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.tls.as_ref()
    }

    /// Whether the body is looked at, and must be kept while it comes.
    pub(crate) fn looks_at_body(&self) -> bool {
        self.expect_body.is_some()
    }

    pub(crate) fn body_is_expected(&self, body: &[u8]) -> bool {
        self.expect_body.as_ref().is_none_or(|finder| finder.find(body).is_some())
    }

    /// The request for one backend, head and body in one piece.
    pub(crate) fn request(&self, address: &Address) -> Vec<u8> {
        match &self.spec.host {
            Some(host) => request::serialize(&self.spec, host),
            None => request::serialize(&self.spec, &self.authority(address)),
        }
    }

    /// The address as a `Host` field: a port that the scheme implies is left out (RFC 9110 §4.2.3).
    fn authority(&self, address: &Address) -> String {
        let text = address.to_string();
        let implied = if self.spec.scheme == Scheme::Http { ":80" } else { ":443" };
        text.strip_suffix(implied).map(str::to_owned).unwrap_or(text)
    }

    /// The name that a backend's certificate must carry.
    pub(crate) fn server_name(
        &self,
        address: &Address,
    ) -> Result<Option<ServerName<'static>>, SpecError> {
        if self.tls.is_none() {
            return Ok(None);
        }
        let given = self.spec.tls.as_ref().and_then(|tls| tls.server_name.clone());
        let name = given
            .or_else(|| self.spec.host.as_deref().map(host_of))
            .unwrap_or_else(|| address.host.bare());
        tls::server_name(&name).map(Some)
    }
}

/// The host of `host:port`, `[v6]:port` or `host`.
fn host_of(authority: &str) -> String {
    if let Some(v6) = authority.strip_prefix('[') {
        return v6.split(']').next().unwrap_or_default().to_owned();
    }
    authority.split(':').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsSpec;

    fn host_line(spec: ProbeSpec, address: &str) -> String {
        let request = Probe::new(spec).unwrap().request(&address.parse().unwrap());
        let text = String::from_utf8(request).unwrap();
        text.lines().nth(1).unwrap().to_owned()
    }

    #[test]
    fn the_host_is_the_address_unless_given() {
        let plain = ProbeSpec::default;
        assert_eq!(host_line(plain(), "10.0.0.1:8080"), "Host: 10.0.0.1:8080");
        assert_eq!(host_line(plain(), "[::1]:80"), "Host: [::1]");
        let named = ProbeSpec { host: Some("shop.example".into()), ..plain() };
        assert_eq!(host_line(named, "10.0.0.1:8080"), "Host: shop.example");
    }

    #[test]
    fn the_name_to_check_is_the_nearest_one_given() {
        let name = |spec: ProbeSpec| {
            let probe = Probe::new(ProbeSpec { scheme: Scheme::Https, ..spec }).unwrap();
            let name = probe.server_name(&"10.0.0.1:443".parse().unwrap()).unwrap().unwrap();
            name.to_str().into_owned()
        };
        let insecure = || TlsSpec { insecure: true, ..TlsSpec::default() };
        let base = || ProbeSpec { tls: Some(insecure()), ..ProbeSpec::default() };
        assert_eq!(name(base()), "10.0.0.1");
        let host = || Some("shop.example:8443".to_owned());
        assert_eq!(name(ProbeSpec { host: host(), ..base() }), "shop.example");
        let tls = TlsSpec { server_name: Some("inner.example".into()), ..insecure() };
        assert_eq!(name(ProbeSpec { host: host(), tls: Some(tls), ..base() }), "inner.example");
        assert_eq!(host_of("[::1]:443"), "::1");
    }

    #[test]
    fn tls_settings_are_checked_at_once() {
        let https = |tls: TlsSpec| {
            Probe::new(ProbeSpec { scheme: Scheme::Https, tls: Some(tls), ..ProbeSpec::default() })
                .expect_err("the settings are wrong")
        };
        let name = TlsSpec { server_name: Some("no name".into()), ..TlsSpec::default() };
        assert!(matches!(https(name), SpecError::ServerName(_)));
        let odd = ProbeSpec {
            scheme: Scheme::Https,
            host: Some("~".into()),
            tls: Some(TlsSpec { insecure: true, ..TlsSpec::default() }),
            ..ProbeSpec::default()
        };
        assert!(matches!(Probe::new(odd), Err(SpecError::ServerName(_))));
        let ca = TlsSpec { ca_file: Some("/nonexistent/ca.pem".into()), ..TlsSpec::default() };
        assert!(matches!(https(ca), SpecError::CaFile { .. }));
    }
}
