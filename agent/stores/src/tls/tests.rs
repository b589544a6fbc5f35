//! TLS with a server that is rustls', too.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::{Channel, Tls};
use crate::certificates::{Authority, Identity};

/// A server with that certificate, which wants one of that authority.
fn server(identity: &Identity, clients: Option<&Authority>) -> ServerConnection {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let pem = authority.certificate.as_bytes();
            roots
                .add(CertificateDer::from_pem_slice(pem).unwrap())
                .unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            builder.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let config = builder.with_single_cert(vec![certificate], key).unwrap();
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    server.set_buffer_limit(None);
    server
}

/// Has the two speak, so many bytes at a time, until neither has anything to say; what the client then has
/// heard.
fn speak(
    channel: &mut Channel,
    server: &mut ServerConnection,
    said: &[u8],
    step: usize,
) -> Result<Vec<u8>, String> {
    let (mut to_server, mut heard) = (vec![], vec![]);
    channel.send(&[], &mut to_server)?;
    channel.send(said, &mut to_server)?;
    let mut echoed = 0;
    loop {
        let mut rest = &to_server[..];
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
            if let Err(error) = server.process_new_packets() {
                // The client is told.
                let mut alert = vec![];
                server.write_tls(&mut alert).unwrap();
                let told = channel.receive(&alert, &mut heard, &mut vec![]);
                return Err(told.expect_err(&error.to_string()));
            }
            let mut plain = vec![];
            match server.reader().read_to_end(&mut plain) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            echoed += plain.len();
            server.writer().write_all(&plain).unwrap();
            if echoed == said.len() && !plain.is_empty() {
                server.send_close_notify();
            }
        }
        to_server.clear();
        let mut to_client = vec![];
        while server.wants_write() {
            server.write_tls(&mut to_client).unwrap();
        }
        if to_client.is_empty() {
            return Ok(heard);
        }
        for part in to_client.chunks(step) {
            channel.receive(part, &mut heard, &mut to_server)?;
        }
    }
}

fn trusting(authority: &Authority) -> Tls {
    Tls::new(Some(authority.certificate.as_bytes()), None).unwrap()
}

#[test]
fn what_is_sealed_arrives_however_it_is_split() {
    let authority = Authority::new("authority");
    let identity = authority.certify(None, &["db.example", "127.0.0.1", "::1"]);
    // Longer than what rustls keeps by default while it shakes hands.
    let long = vec![b'x'; 300_000];
    for (step, said) in [
        (1, &b"hello"[..]),
        (7, b"hello"),
        (1000, b""),
        (usize::MAX, &long),
    ] {
        for name in ["db.example", "127.0.0.1", "::1"] {
            let mut channel = Channel::sealed(&trusting(&authority), name).unwrap();
            let mut server = server(&identity, None);
            let heard = speak(&mut channel, &mut server, said, step);
            assert_eq!(heard.unwrap(), said, "{name} {step}");
            // The last word was said: what follows is not read, and not waited for.
            if !said.is_empty() {
                let mut heard = vec![];
                channel.receive(b"more", &mut heard, &mut vec![]).unwrap();
                assert_eq!(heard, b"");
            }
        }
    }
}

#[test]
fn who_is_not_believed_is_told_apart() {
    let authority = Authority::new("authority");
    let other = Authority::new("another");
    let identity = authority.certify(None, &["db.example"]);
    for (trusted, name, words) in [
        (&other, "db.example", "no authority that is trusted"),
        (
            &authority,
            "db2.example",
            "for another host than db2.example",
        ),
        (&authority, "10.0.0.1", "for another host than 10.0.0.1"),
    ] {
        let mut channel = Channel::sealed(&trusting(trusted), name).unwrap();
        let error = speak(&mut channel, &mut server(&identity, None), b"x", 100).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let mut channel = Channel::sealed(&trusting(&authority), "db.example").unwrap();
    let mut wire = vec![];
    let plain = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    let error = channel.receive(plain, &mut vec![], &mut wire).unwrap_err();
    assert!(error.contains("does not speak TLS"), "{error}");
    assert!(Channel::sealed(&trusting(&authority), "a b").is_err());
}

#[test]
fn clients_show_a_certificate_where_it_is_wanted() {
    let authority = Authority::new("authority");
    let clients = Authority::new("clients");
    let identity = authority.certify(None, &["db.example"]);
    let client = clients.certify(Some("app"), &[]);
    let ca = Some(authority.certificate.as_bytes());
    let (certificate, key) = (client.certificate.as_bytes(), client.key.as_bytes());
    let tls = Tls::new(ca, Some((certificate, key))).unwrap();
    let mut channel = Channel::sealed(&tls, "db.example").unwrap();
    let mut believing = server(&identity, Some(&clients));
    assert_eq!(
        speak(&mut channel, &mut believing, b"x", 100).unwrap(),
        b"x"
    );

    let mut channel = Channel::sealed(&trusting(&authority), "db.example").unwrap();
    let mut believing = server(&identity, Some(&clients));
    let error = speak(&mut channel, &mut believing, b"x", 100).unwrap_err();
    assert!(error.contains("wants a certificate"), "{error}");
}

#[test]
fn files_that_are_no_certificates_are_told_apart() {
    let authority = Authority::new("authority");
    let (one, two) = (
        authority.certify(None, &["a"]),
        authority.certify(None, &["b"]),
    );
    let error = |ca: &str, identity: Option<(&str, &str)>| {
        let identity = identity.map(|(one, two)| (one.as_bytes(), two.as_bytes()));
        Tls::new(Some(ca.as_bytes()), identity)
            .unwrap_err()
            .to_string()
    };
    let ca = &authority.certificate;
    for (said, words) in [
        (error("", None), "there is none"),
        (error(&one.key, None), "there is none"),
        (
            error("-----BEGIN CERTIFICATE-----\n!\n", None),
            "cannot be read",
        ),
        (
            error(
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                None,
            ),
            "cannot be used",
        ),
        (
            error(ca, Some(("", &one.key))),
            "the client's certificate: there is none",
        ),
        (
            error(ca, Some((&one.certificate, ""))),
            "the client's key cannot be read",
        ),
        (
            error(ca, Some((&one.certificate, &two.key))),
            "cannot be used",
        ),
    ] {
        assert!(said.contains(words), "{said}");
    }
}
