//! Certificates that are made for a test.

use base64ct::{Base64, Encoding};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair,
};

/// A certificate and its key, as they are in files.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// An authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, as it is in a file.
    pub(crate) certificate: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = named(Some(name));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate: pem("CERTIFICATE", certificate.der()),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for these hosts, and for clients.
    pub(crate) fn certify(&self, common_name: Option<&str>, hosts: &[&str]) -> Identity {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.distinguished_name = named(common_name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            certificate: pem("CERTIFICATE", certificate.der()),
            key: pem("PRIVATE KEY", &key.serialize_der()),
        }
    }
}

fn named(common_name: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(common_name) = common_name {
        name.push(DnType::CommonName, common_name);
    }
    name
}

fn pem(what: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {what}-----\n");
    for line in Base64::encode_string(der).as_bytes().chunks(64) {
        text.push_str(std::str::from_utf8(line).unwrap());
        text.push('\n');
    }
    text + &format!("-----END {what}-----\n")
}
