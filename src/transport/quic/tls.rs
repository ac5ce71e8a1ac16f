//! TLS 1.3 with raw public keys on both sides and nothing else: no certificates, no resumption,
//! no early data, one signature scheme.
//!
//! A dialler accepts exactly one key. The server side of the process accepts a key that some
//! service of the process expects. Leaves to `endpoint` the check, after the handshake, that it is
//! the service which the dialler named. Invariant: strangers fail inside TLS.

use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, PeerIncompatible, SignatureScheme,
};

use crate::transport::key::{Identity, PublicKey};

/// Spoken by every nexar endpoint. Not a version: two builds must connect to learn that they
/// differ.
const ALPN: &[u8] = b"nexar/1";

/// What the server side needs to know of the services of the process.
pub(super) trait Services: Send + Sync + std::fmt::Debug {
    /// The identity of the service that a dialler names.
    fn identity(&self, name: &str) -> Option<Arc<CertifiedKey>>;
    /// Whether some service expects this key.
    fn expects(&self, key: &PublicKey) -> bool;
}

pub(super) fn server(services: Arc<dyn Services>) -> Result<QuicServerConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(ExpectedKeys(Arc::clone(&services))))
        .with_cert_resolver(Arc::new(ByName(services)));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    QuicServerConfig::try_from(config).map_err(|error| rustls::Error::General(error.to_string()))
}

pub(super) fn client(me: &Identity, pinned: PublicKey) -> Result<QuicClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PinnedKey(pinned)))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(Arc::clone(
            &me.certified,
        ))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    QuicClientConfig::try_from(config).map_err(|error| rustls::Error::General(error.to_string()))
}

/// The key that a connection's peer has proved to own.
pub(super) fn peer_key(connection: &quinn::Connection) -> Option<PublicKey> {
    let chain = connection.peer_identity()?.downcast::<Vec<CertificateDer<'static>>>().ok()?;
    match &chain[..] {
        [one] => PublicKey::from_spki(one),
        _ => None,
    }
}

/// The name of the service that a dialler asked for.
pub(super) fn service_name(connection: &quinn::Connection) -> Option<String> {
    let data = connection.handshake_data()?;
    data.downcast::<quinn::crypto::rustls::HandshakeData>().ok()?.server_name
}

#[derive(Debug)]
struct ByName(Arc<dyn Services>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.identity(hello.server_name()?)
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// The checks of signatures that both verifiers share: TLS 1.3, one scheme, raw keys, and a proof
/// of possession.
macro_rules! only_raw_ed25519_keys_of_tls13 {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(PeerIncompatible::Tls12NotOffered.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            proves_possession(message, key, signature)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

#[derive(Debug)]
struct ExpectedKeys(Arc<dyn Services>);

impl ClientCertVerifier for ExpectedKeys {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match only_key(key, more)? {
            key if self.0.expects(&key) => Ok(ClientCertVerified::assertion()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    only_raw_ed25519_keys_of_tls13!();
}

#[derive(Debug)]
struct PinnedKey(PublicKey);

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match only_key(key, more)? {
            key if key == self.0 => Ok(ServerCertVerified::assertion()),
            _ => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    only_raw_ed25519_keys_of_tls13!();
}

fn only_key(
    key: &CertificateDer<'_>,
    more: &[CertificateDer<'_>],
) -> Result<PublicKey, rustls::Error> {
    let key = PublicKey::from_spki(key).filter(|_| more.is_empty());
    key.ok_or_else(|| CertificateError::BadEncoding.into())
}

/// Checks that the peer has signed with the key that it presents. rustls leaves this to the
/// verifier.
fn proves_possession(
    message: &[u8],
    key: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, rustls::Error> {
    rustls::crypto::verify_tls13_signature_with_raw_key(
        message,
        &SubjectPublicKeyInfoDer::from(key.as_ref()),
        signature,
        &rustls::crypto::ring::default_provider().signature_verification_algorithms,
    )
}
