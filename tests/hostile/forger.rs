//! A client that presents one public key and signs with another.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use nexar::transport::key::PublicKey;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, SignatureScheme};

/// The DER prefix of an Ed25519 seed in PKCS#8, and of a public key in SubjectPublicKeyInfo.
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// Whether a service accepts a connection that presents `shown` and signs with the key of `seed`.
/// The first stream that an accepting rank opens carries its Welcome.
pub async fn is_accepted(
    address: SocketAddr,
    service: &str,
    seed: [u8; 32],
    shown: PublicKey,
) -> bool {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let pkcs8 = [&PKCS8[..], &seed].concat();
    let private = rustls::crypto::ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..]));
    let public = CertificateDer::from([&SPKI[..], shown.bytes()].concat());
    let certified = Arc::new(CertifiedKey::new(vec![public], private.unwrap()));
    let mut crypto = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyServer))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified)));
    crypto.alpn_protocols = vec![b"nexar/1".to_vec()];
    let crypto = QuicClientConfig::try_from(crypto).unwrap();
    let endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let welcomed = async {
        let connection = endpoint.connect_with(config, address, service).ok()?.await.ok()?;
        connection.accept_uni().await.ok()
    };
    let welcomed = tokio::time::timeout(Duration::from_secs(30), welcomed).await;
    welcomed.expect("the service accepts or refuses in time").is_some()
}

/// Accepts every server.
#[derive(Debug)]
struct AcceptAnyServer;

impl ServerCertVerifier for AcceptAnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
