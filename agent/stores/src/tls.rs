//! TLS, by rustls, without a socket: bytes of the wire on one side, bytes of the store's language on the
//! other.

use std::fmt;
use std::io::{Read, Write};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, ClientConnection, Error, InvalidMessage,
    RootCertStore,
};

/// Whom to believe, and how to sign in.
#[derive(Clone)]
pub struct Tls(Arc<ClientConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl Tls {
    /// Servers must show a certificate of an authority in `ca` (PEM), or if it is `None` of one that this
    /// host trusts. With `identity`, a certificate with what stands between and its key (both PEM), the
    /// client shows its own.
    ///
    /// # Errors
    /// If there is no certificate, or no key, in what was given, or the two do not go together.
    pub fn new(ca: Option<&[u8]>, identity: Option<(&[u8], &[u8])>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        match ca {
            Some(pem) => {
                for certificate in certificates(pem, "the authority's certificate")? {
                    roots.add(certificate).map_err(|error| {
                        TlsError(format!(
                            "the authority's certificate cannot be used: {error}"
                        ))
                    })?;
                }
            }
            None => {
                let found = rustls_native_certs::load_native_certs();
                roots.add_parsable_certificates(found.certs);
                if roots.is_empty() {
                    return Err(TlsError(
                        "this host trusts no authority: install the package ca-certificates, or \
                         name the store's with ca_file"
                            .to_owned(),
                    ));
                }
            }
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError(error.to_string()))?
            .with_root_certificates(roots);
        let config = match identity {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let chain = certificates(certificate, "the client's certificate")?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| {
                    TlsError(format!("the client's key cannot be read: {error}"))
                })?;
                config.with_client_auth_cert(chain, key).map_err(|error| {
                    TlsError(format!(
                        "the client's certificate and its key cannot be used: {error}"
                    ))
                })?
            }
        };
        Ok(Self(Arc::new(config)))
    }
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(TlsError(format!("{what}: there is none in the file"))),
        Err(error) => Err(TlsError(format!("{what} cannot be read: {error}"))),
    }
}

/// What is wrong, in words for who can change it.
fn words(error: &Error) -> String {
    let what = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "the server's certificate is of no authority that is trusted (ca_file)"
        }
        Error::InvalidCertificate(CertificateError::NotValidForNameContext {
            expected, ..
        }) => {
            return format!(
                "the server's certificate is for another host than {}",
                expected.to_str()
            );
        }
        Error::InvalidCertificate(CertificateError::NotValidForName) => {
            "the server's certificate is for another host"
        }
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => "the server's certificate is no longer valid",
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => "the server's certificate is not yet valid",
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "what answers there does not speak TLS"
        }
        Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "the server wants a certificate of the client (cert_file, key_file)"
        }
        Error::AlertReceived(AlertDescription::BadCertificate) => {
            "the server does not accept the client's certificate, or wants one (cert_file, key_file)"
        }
        error => return format!("TLS: {error}"),
    };
    what.to_owned()
}

/// One connection's way between a store's language and the wire.
#[derive(Debug)]
pub(crate) enum Channel {
    /// As it is.
    Plain,
    /// Sealed.
    Tls(Box<ClientConnection>),
}

impl Channel {
    /// Sealed, with a server that must be called `name`.
    ///
    /// # Errors
    /// If `name` is no name that a certificate can have.
    pub(crate) fn sealed(tls: &Tls, name: &str) -> Result<Self, String> {
        let called = ServerName::try_from(name.to_owned())
            .map_err(|error| format!("no certificate can be for {name:?}: {error}"))?;
        let connection = ClientConnection::new(Arc::clone(&tls.0), called);
        let mut connection = connection.map_err(|error| error.to_string())?;
        // A request that is longer than the default of 64 KiB waits here for the handshake. Clients bound
        // what they send.
        connection.set_buffer_limit(None);
        Ok(Self::Tls(Box::new(connection)))
    }

    /// Adds to `wire` what is to be sent for `bytes`, and what else TLS has to say: to be called with
    /// nothing when a connection begins.
    ///
    /// # Errors
    /// If the connection is over.
    pub(crate) fn send(&mut self, bytes: &[u8], wire: &mut Vec<u8>) -> Result<(), String> {
        match self {
            Self::Plain => wire.extend_from_slice(bytes),
            Self::Tls(connection) => {
                let written = connection.writer().write_all(bytes);
                written.map_err(|error| error.to_string())?;
                while connection.wants_write() {
                    connection
                        .write_tls(wire)
                        .map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(())
    }

    /// Whether the connection is yet to be sealed.
    #[cfg(feature = "etcd")]
    pub(crate) fn is_shaking_hands(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Tls(connection) => connection.is_handshaking(),
        }
    }

    /// Adds to `plain` what the bytes that arrived say, and to `wire` what TLS answers.
    ///
    /// # Errors
    /// If the server is not believed, or says what is no TLS, or the connection is over.
    pub(crate) fn receive(
        &mut self,
        mut arrived: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), String> {
        let connection = match self {
            Self::Plain => {
                plain.extend_from_slice(arrived);
                return Ok(());
            }
            Self::Tls(connection) => connection,
        };
        while !arrived.is_empty() {
            let read = connection.read_tls(&mut arrived);
            if read.map_err(|error| error.to_string())? == 0 {
                // The server has said its last word. What follows that is nobody's.
                return Ok(());
            }
            let outcome = connection.process_new_packets();
            // An alert says why to the server, too.
            while connection.wants_write() {
                connection
                    .write_tls(wire)
                    .map_err(|error| error.to_string())?;
            }
            let state = outcome.map_err(|error| words(&error))?;
            let begin = plain.len();
            plain.resize(begin + state.plaintext_bytes_to_read(), 0);
            let read = connection.reader().read_exact(&mut plain[begin..]);
            read.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
