use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
};
use http::Request;

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

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
    let Credential::Valid(claims) = tokens.claims(&head, NOW) else { return None };
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
fn a_set_without_a_usable_key_is_rejected() {
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

/// The message with its signature by the secret `x`.
fn signed(message: &str) -> String {
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, b"x");
    format!("{message}.{}", encoded(aws_lc_rs::hmac::sign(&key, message.as_bytes()).as_ref()))
}

fn by_secret() -> Tokens {
    Tokens::load(&JwtSettings::new(JwtKey::Secret(b"x".to_vec()))).unwrap()
}

#[test]
fn only_one_spelling_of_base64_is_accepted() {
    let (tokens, header) = (by_secret(), encoded(br#"{"alg":"HS256"}"#));
    let payload = encoded(br#"{"sub":"7"} "#);
    let good = signed(&format!("{header}.{payload}"));
    assert_eq!(subject(&tokens, &good).as_deref(), Some("7"));
    // Padding, bits after the last byte, the alphabet that is not for URLs, white space.
    let short = encoded(br#"{"sub":"7"}"#);
    assert!(short.ends_with("n0"), "two spare bits: {short}");
    for payload in [format!("{short}="), short.replace("n0", "n1"), format!("{payload}+/8")] {
        assert_eq!(subject(&tokens, &signed(&format!("{header}.{payload}"))), None, "{payload}");
    }
    assert_eq!(subject(&tokens, &signed(&format!("{header}. {payload}"))), None);
    // A signature has 32 bytes in 43 characters, of which the last one carries two spare bits.
    let (rest, last) = good.split_at(good.len() - 1);
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let spare = alphabet.chars().nth(alphabet.find(last).unwrap() + 1).unwrap();
    assert_eq!(subject(&tokens, &format!("{rest}{spare}")), None);
    assert_eq!(subject(&tokens, &format!("{good}=")), None);
}

#[test]
fn headers_that_weaken_verification_are_rejected() {
    let tokens = by_secret();
    let with = |header: &str| subject(&tokens, &signed(&message(header, r#"{"sub":"7"}"#)));
    assert_eq!(with(r#"{"alg":"HS256","typ":"JWT","x":[1]}"#).as_deref(), Some("7"));
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"hs256"}"#,
        r#"{"alg":"HS512"}"#,
        r#"{"alg":"HS256","crit":["exp"]}"#,
        r#"{"alg":"HS256","crit":"exp"}"#,
        r#"{"alg":"none","alg":"HS256"}"#,
        r#"{}"#,
    ] {
        assert_eq!(with(header), None, "{header}");
    }
    let unsigned = format!("{}.", message(r#"{"alg":"none"}"#, r#"{"sub":"7"}"#));
    assert_eq!(subject(&tokens, &unsigned), None);
}

#[test]
fn a_token_with_a_list_of_issuers_is_rejected() {
    let issued_by = |issuer: &str| {
        signed(&message(r#"{"alg":"HS256"}"#, &format!(r#"{{"sub":"7","iss":{issuer}}}"#)))
    };
    let settings = JwtSettings::new(JwtKey::Secret(b"x".to_vec()));
    for issuer in [None, Some("us".to_owned())] {
        let tokens = Tokens::load(&JwtSettings { issuer, ..settings.clone() }).unwrap();
        assert_eq!(subject(&tokens, &issued_by(r#""us""#)).as_deref(), Some("7"));
        for malformed in [r#"["us"]"#, r#"["us","them"]"#, "[]", r#"{"us":1}"#, "7", "null"] {
            assert_eq!(subject(&tokens, &issued_by(malformed)), None, "{malformed}");
        }
    }
}

#[test]
fn claims_of_any_type_are_read() {
    let tokens = by_secret();
    for sub in ["7", "null", "[7]", r#"{"id":7}"#] {
        let token = signed(&message(r#"{"alg":"HS256"}"#, &format!(r#"{{"sub":{sub}}}"#)));
        let request = Request::get("/").header("authorization", format!("Bearer {token}"));
        let (head, ()) = request.body(()).unwrap().into_parts();
        let Credential::Valid(claims) = tokens.claims(&head, NOW) else { panic!("it is valid") };
        assert_eq!(claims.get("sub").unwrap().to_string(), sub);
    }
}

#[test]
fn keys_of_unknown_types_are_skipped() {
    let secret = r#"{"kty":"oct","k":"eA"}"#;
    for other in [
        r#"{"kty":"ML-DSA","x":"AA"}"#,
        r#"{"kty":"EC","crv":"secp256k1","x":"AA","y":"AA"}"#,
        r#"{"kty":"OKP","crv":"X25519","x":"AA"}"#,
        r#"{"kty":"oct","alg":"A128KW","k":"eA"}"#,
        r#"{"kty":"oct","k":""}"#,
        r#"{"kty":"RSA","n":"not base64!","e":"AQAB"}"#,
    ] {
        let text = format!(r#"{{"keys":[{other}]}}"#);
        assert!(KeySet::parse(&text).unwrap_err().contains("no key that verifies"), "{other}");
        let tokens = tokens(&format!("{other},{secret}"));
        let token = signed(&message(r#"{"alg":"HS256"}"#, r#"{"sub":"7"}"#));
        assert_eq!(subject(&tokens, &token).as_deref(), Some("7"), "{other}");
    }
}
