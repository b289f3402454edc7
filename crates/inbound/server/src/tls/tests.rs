use std::os::unix::fs::symlink;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use tempfile::TempDir;

use super::*;

/// A certificate and its key, as text.
fn pair() -> (String, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    (cert.pem(), signing_key.serialize_pem())
}

fn write_pair(directory: &Path, (certificate, key): &(String, String)) {
    fs::write(directory.join("tls.crt"), certificate).unwrap();
    fs::write(directory.join("tls.key"), key).unwrap();
}

fn files_in(directory: &Path) -> TlsFiles {
    TlsFiles::new(directory.join("tls.crt"), directory.join("tls.key"))
}

fn message(files: TlsFiles) -> String {
    let error = Tls::load(files).unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string);
    format!("{error}: {}", cause.unwrap_or_default())
}

#[test]
fn a_missing_file_is_named() {
    let directory = TempDir::new().unwrap();
    let message = message(files_in(directory.path()));
    assert!(message.contains("cannot read") && message.contains("tls.crt"), "{message}");
    assert!(message.contains("No such file"), "{message}");
}

#[test]
fn a_file_without_a_certificate_is_named() {
    let directory = TempDir::new().unwrap();
    let (_, key) = pair();
    write_pair(directory.path(), &(key.clone(), key));
    let message = message(files_in(directory.path()));
    assert!(message.contains("no certificate in") && message.contains("tls.crt"), "{message}");
}

#[test]
fn a_file_without_a_key_is_named() {
    let directory = TempDir::new().unwrap();
    let (certificate, _) = pair();
    write_pair(directory.path(), &(certificate.clone(), certificate));
    let message = message(files_in(directory.path()));
    assert!(message.contains("no private key in") && message.contains("tls.key"), "{message}");
}

#[test]
fn a_key_of_another_certificate_is_rejected() {
    let directory = TempDir::new().unwrap();
    let other = KeyPair::generate().unwrap().serialize_pem();
    write_pair(directory.path(), &(pair().0, other));
    let message = message(files_in(directory.path()));
    assert!(message.contains("does not fit the certificate"), "{message}");
}

#[test]
fn a_broken_certificate_is_named() {
    let directory = TempDir::new().unwrap();
    let (_, key) = pair();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned();
    write_pair(directory.path(), &(broken, key));
    let message = message(files_in(directory.path()));
    assert!(message.contains("cannot be used") && message.contains("tls.crt"), "{message}");
}

#[test]
fn a_client_name_must_be_a_dns_name_and_needs_an_authority() {
    let directory = TempDir::new().unwrap();
    write_pair(directory.path(), &pair());
    let mut files = files_in(directory.path());
    files.client_name = Some("not a name".to_owned());
    assert!(message(files.clone()).contains("needs a client authority"));
    files.client_authority = Some(files.certificate.clone());
    assert!(message(files.clone()).contains("is not a DNS name"));
    files.client_name = Some("127.0.0.1".to_owned());
    assert!(message(files).contains("is not a DNS name"));
}

#[test]
fn unchanged_files_are_not_loaded_again() {
    let directory = TempDir::new().unwrap();
    write_pair(directory.path(), &pair());
    let tls = Tls::load(files_in(directory.path())).unwrap();
    let before = tls.config(Protocol::Http2);
    assert!(!tls.refresh().unwrap());
    assert!(Arc::ptr_eq(&before, &tls.config(Protocol::Http2)));
}

#[test]
fn files_rewritten_with_the_same_text_change_nothing() {
    let directory = TempDir::new().unwrap();
    let pair = pair();
    write_pair(directory.path(), &pair);
    let tls = Tls::load(files_in(directory.path())).unwrap();
    let replacement = directory.path().join("new.crt");
    fs::write(&replacement, &pair.0).unwrap();
    fs::rename(&replacement, directory.path().join("tls.crt")).unwrap();
    assert!(!tls.refresh().unwrap());
}

#[test]
fn switching_a_directory_link_loads_the_new_pair() {
    // As Kubernetes mounts a secret: the files are links into ..data, itself a link, which is switched atomically.
    let root = TempDir::new().unwrap();
    for version in ["..1", "..2"] {
        fs::create_dir(root.path().join(version)).unwrap();
        write_pair(&root.path().join(version), &pair());
    }
    symlink("..1", root.path().join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        symlink(Path::new("..data").join(name), root.path().join(name)).unwrap();
    }
    let tls = Tls::load(files_in(root.path())).unwrap();
    let before = tls.config(Protocol::Auto);

    symlink("..2", root.path().join("..data_tmp")).unwrap();
    fs::rename(root.path().join("..data_tmp"), root.path().join("..data")).unwrap();
    assert!(tls.refresh().unwrap());
    assert!(!Arc::ptr_eq(&before, &tls.config(Protocol::Auto)));
    assert!(!tls.refresh().unwrap());
}

#[test]
fn an_unusable_new_pair_leaves_the_old_one_in_use_and_is_reported_once() {
    let directory = TempDir::new().unwrap();
    write_pair(directory.path(), &pair());
    let tls = Tls::load(files_in(directory.path())).unwrap();
    let before = tls.config(Protocol::Auto);

    let new = pair();
    let replace = |name: &str, text: &str| {
        let temporary = directory.path().join("temporary");
        fs::write(&temporary, text).unwrap();
        fs::rename(&temporary, directory.path().join(name)).unwrap();
    };
    replace("tls.crt", &new.0);
    let error = tls.refresh().unwrap_err();
    assert!(matches!(error, TlsError::KeyDoesNotFit { .. }), "{error}");
    assert!(Arc::ptr_eq(&before, &tls.config(Protocol::Auto)));
    assert!(!tls.refresh().unwrap(), "the same files are not reported again");

    replace("tls.key", &new.1);
    assert!(tls.refresh().unwrap());
    assert!(!Arc::ptr_eq(&before, &tls.config(Protocol::Auto)));
}
