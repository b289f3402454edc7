//! Certificates for one test.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// An authority and the files of what it signed.
#[derive(Debug)]
pub(crate) struct Authority {
    files: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// Where a certificate and its key are.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // With the same name as what it signs, that would look signed by itself.
        params.distinguished_name.push(DnType::CommonName, "authority of the tests");
        let key = KeyPair::generate().unwrap();
        fs::write(files.path().join("roots.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Authority { files, issuer: Issuer::new(params, key) }
    }

    /// The authority's own certificate.
    pub(crate) fn roots(&self) -> PathBuf {
        self.files.path().join("roots.pem")
    }

    /// A certificate for this name or address.
    pub(crate) fn signs(&self, name: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        let write = |kind: &str, text: &str| -> PathBuf {
            let path = self.files.path().join(format!("{name}.{kind}.pem"));
            fs::write(&path, text).unwrap();
            path
        };
        Pair {
            certificate: write("certificate", &certificate),
            key: write("key", &key.serialize_pem()),
        }
    }
}

/// A path as servers and addresses want it.
pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}
