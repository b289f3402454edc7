//! The ways from Envoy to Tidegate other than plain TCP.

use std::fs;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::answers::TWO_EACH;
use crate::bootstrap::Tls;
use crate::proxy::Proxy;
use crate::tidegate::{Launch, Place};

/// An authority that is made for one test.
struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
type Pair = (String, String);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the same name as what it signs, that would look signed by itself.
        params.distinguished_name.push(DnType::CommonName, "authority of the tests");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    fn signs(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// What Envoy needs to believe whom this authority signed.
    fn tls(&self, identity: Option<Pair>) -> Option<Tls> {
        Some(Tls { authority: self.certificate.clone(), identity })
    }
}

/// Puts text into a file that lasts as long as the launch; its path.
fn file(launch: &Launch, name: &str, text: &str) -> String {
    let path = launch.directory().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// With TLS and a certificate for `localhost`.
fn encrypted(authority: &Authority) -> Launch {
    let launch = Launch::with(TWO_EACH);
    let (certificate, key) = authority.signs("localhost");
    let certificate = file(&launch, "certificate.pem", &certificate);
    let key = file(&launch, "key.pem", &key);
    launch.set("grpc.tls.cert", &certificate).set("grpc.tls.key", &key)
}

#[test]
fn envoy_asks_over_a_unix_socket() {
    let tidegate = Launch::with(TWO_EACH).listening_on_socket().start();
    assert!(matches!(tidegate.place(), Place::Unix(_)));
    let envoy = Proxy::asking(&tidegate);
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 200, 429]);
}

#[test]
fn envoy_asks_over_tls() {
    let authority = Authority::new();
    let tidegate = encrypted(&authority).start();
    let envoy = Proxy::asking_with(&tidegate, |setup| setup.tls = authority.tls(None));
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 200, 429]);
    assert!(envoy.count_of("cluster.tidegate.ssl.handshake") > 0);
    // Who does not speak TLS is not answered, and Envoy lets requests pass then.
    let plain = Proxy::asking(&tidegate);
    assert_eq!(plain.get_as("ada").status(), 200);
    assert_eq!(plain.asked("error"), 1);
}

#[test]
fn envoy_shows_a_certificate_where_tidegate_asks_for_one() {
    let authority = Authority::new();
    let launch = encrypted(&authority);
    let believed = file(&launch, "clients.pem", &authority.certificate);
    let tidegate = launch.set("grpc.tls.client_ca", &believed).start();
    let identity = authority.signs("envoy");
    let envoy = Proxy::asking_with(&tidegate, |setup| setup.tls = authority.tls(Some(identity)));
    assert_eq!(envoy.get_as("ada").statuses(3), [200, 200, 429]);
    let nameless = Proxy::asking_with(&tidegate, |setup| setup.tls = authority.tls(None));
    assert_eq!(nameless.get_as("ada").status(), 200);
    assert_eq!(nameless.asked("error"), 1);
}
