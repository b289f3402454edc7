use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use http::Request;

use super::*;
use crate::describe::base64::encoded;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn message(header: &str, claims: &str) -> String {
    format!("{}.{}", encoded(header.as_bytes()), encoded(claims.as_bytes()))
}

fn tokens(keys: &str) -> Tokens {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.json");
    std::fs::write(&path, format!("{{\"keys\":[{keys}]}}")).unwrap();
    Tokens::load(&JwtSettings::new(JwtKey::KeySet(path))).unwrap()
}

fn subject(tokens: &Tokens, token: &str) -> Option<String> {
    let request = Request::get("/").header("authorization", format!("Bearer {token}"));
    let (head, ()) = request.body(()).unwrap().into_parts();
    let claims = tokens.claims(&head, NOW)?;
    claims.get("sub")?.as_str().map(ToOwned::to_owned)
}

#[test]
fn signatures_of_curves_are_verified() {
    let random = SystemRandom::new();
    for (name, curve, half, kind) in [
        ("ES256", "P-256", 32, &ECDSA_P256_SHA256_FIXED_SIGNING),
        ("ES384", "P-384", 48, &ECDSA_P384_SHA384_FIXED_SIGNING),
    ] {
        let pair = EcdsaKeyPair::generate(kind).unwrap();
        let point = pair.public_key().as_ref();
        let (x, y) = (encoded(&point[1..=half]), encoded(&point[1 + half..]));
        let keys = format!(r#"{{"kty":"EC","crv":"{curve}","x":"{x}","y":"{y}"}}"#);
        let tokens = tokens(&keys);
        let message = message(&format!(r#"{{"alg":"{name}"}}"#), r#"{"sub":"7"}"#);
        let signature = pair.sign(&random, message.as_bytes()).unwrap();
        let token = format!("{message}.{}", encoded(signature.as_ref()));
        assert_eq!(subject(&tokens, &token).as_deref(), Some("7"), "{name}");
        assert_eq!(subject(&tokens, &token).as_deref(), Some("7"), "{name}, remembered");
        let forged = token.replacen(&encoded(br#"{"sub":"7"}"#), &encoded(br#"{"sub":"8"}"#), 1);
        assert_ne!(forged, token);
        assert_eq!(subject(&tokens, &forged), None, "{name}");
    }
}

#[test]
fn a_secret_in_a_file_verifies_and_is_read_again_when_it_changes() {
    use aws_lc_rs::hmac;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    let load = || Tokens::load(&JwtSettings::new(JwtKey::SecretFile(path.clone())));
    std::fs::write(&path, " \n").unwrap();
    assert!(load().unwrap_err().contains("the secret is empty"));
    std::fs::write(&path, "first secret\n").unwrap();
    let tokens = load().unwrap();
    let signed = |secret: &str| {
        let message = message(r#"{"alg":"HS256"}"#, r#"{"sub":"7"}"#);
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        format!("{message}.{}", encoded(hmac::sign(&key, message.as_bytes()).as_ref()))
    };
    assert_eq!(subject(&tokens, &signed("first secret")).as_deref(), Some("7"));
    assert_eq!(subject(&tokens, &signed("another one")), None);
    std::fs::write(&path, "another one, longer").unwrap();
    assert_eq!(tokens.refresh(), Ok(true));
    assert_eq!(subject(&tokens, &signed("another one, longer")).as_deref(), Some("7"));
    assert_eq!(subject(&tokens, &signed("first secret")), None);
}

#[test]
fn signatures_of_rsa_are_verified() {
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
    // A sequence of two integers: 256 bytes behind a zero, then three.
    let parts = pair.public_key().as_ref();
    let (n, e) = (encoded(&parts[9..265]), encoded(&parts[267..]));
    let tokens = tokens(&format!(r#"{{"kty":"RSA","alg":"RS256","n":"{n}","e":"{e}"}}"#));
    let signed = |name: &str, padding: &'static dyn RsaEncoding| {
        let message = message(&format!(r#"{{"alg":"{name}"}}"#), r#"{"sub":"7"}"#);
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(padding, &SystemRandom::new(), message.as_bytes(), &mut signature).unwrap();
        format!("{message}.{}", encoded(&signature))
    };
    assert_eq!(subject(&tokens, &signed("RS256", &RSA_PKCS1_SHA256)).as_deref(), Some("7"));
    // The key says that it is for another algorithm.
    assert_eq!(subject(&tokens, &signed("PS256", &RSA_PSS_SHA256)), None);
}

#[test]
fn signatures_of_ed25519_are_verified_by_the_key_that_is_named() {
    let (pair, other) = (Ed25519KeyPair::generate().unwrap(), Ed25519KeyPair::generate().unwrap());
    let key = |id: &str, pair: &Ed25519KeyPair| {
        let x = encoded(pair.public_key().as_ref());
        format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"{id}","x":"{x}"}}"#)
    };
    let tokens = tokens(&format!("{},{}", key("a", &pair), key("b", &other)));
    let signed = |header: &str| {
        let message = message(header, r#"{"sub":"7"}"#);
        format!("{message}.{}", encoded(pair.sign(message.as_bytes()).as_ref()))
    };
    let by = |id: &str| signed(&format!(r#"{{"alg":"EdDSA","kid":"{id}"}}"#));
    assert_eq!(subject(&tokens, &by("a")).as_deref(), Some("7"));
    assert_eq!(subject(&tokens, &by("b")), None);
    assert_eq!(subject(&tokens, &by("c")), None);
    assert_eq!(subject(&tokens, &signed(r#"{"alg":"EdDSA"}"#)).as_deref(), Some("7"));
}

#[test]
fn a_public_key_is_never_taken_for_a_secret() {
    let pair = Ed25519KeyPair::generate().unwrap();
    let public = pair.public_key().as_ref();
    let tokens = tokens(&format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{}"}}"#, encoded(public)));
    let message = message(r#"{"alg":"HS256"}"#, r#"{"sub":"7"}"#);
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, public);
    let signature = aws_lc_rs::hmac::sign(&key, message.as_bytes());
    assert_eq!(subject(&tokens, &format!("{message}.{}", encoded(signature.as_ref()))), None);
}

#[test]
fn a_set_without_a_usable_key_is_told() {
    for (keys, problem) in [
        (r#"{"keys":[]}"#, "no key that verifies"),
        (r#"{"keys":[{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#, "no key that verifies"),
        (r#"{"keys":[{"kty":"oct","k":"AAAA","use":"enc"}]}"#, "no key that verifies"),
        ("[]", "no set of keys"),
    ] {
        assert!(KeySet::parse(keys).unwrap_err().contains(problem), "{keys}");
    }
}

#[test]
fn a_token_counts_between_its_times() {
    let tokens = Tokens::load(&JwtSettings::new(JwtKey::Secret(b"x".to_vec()))).unwrap();
    let current = |claims: &str| {
        let claims: Claims = serde_json::from_str(claims).unwrap();
        tokens.is_current(&claims, NOW)
    };
    assert!(current("{}"));
    assert!(current(r#"{"exp":999940,"nbf":1000060}"#), "clocks may differ by a minute");
    assert!(current(r#"{"exp":1000000.75}"#));
    for claims in [r#"{"exp":999939}"#, r#"{"nbf":1000061}"#, r#"{"exp":"soon"}"#, r#"{"exp":-1}"#]
    {
        assert!(!current(claims), "{claims}");
    }
}
