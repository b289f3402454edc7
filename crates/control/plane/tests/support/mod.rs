//! A database, a service and a publisher for tests.

#![allow(dead_code, reason = "not every test uses everything")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::service::Service;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_algorithms::{ManualClock, Timestamp};
use tidegate_plane::{
    ApplyOutcome, AuditEvent, Author, Broadcast, CellSettings, Change, ChangeSet, DirectoryTarget,
    EntryKey, EntryKind, PlaneError, Publisher, PublisherSettings, RulesDatabase, RulesService,
    SigningKey, TargetStore, new_token,
};

/// When tests begin: 2027-01-15.
pub(crate) const START: u64 = 1_800_000_000;

pub(crate) fn row(name: &str, terms: &str) -> Change {
    Change::set(
        EntryKey::new(EntryKind::Row, name).within("api/clients"),
        json!({ "terms": terms }),
    )
}

pub(crate) fn document(name: &str, text: &str) -> Change {
    Change::set(EntryKey::new(EntryKind::Document, name), json!({ "text": text }))
}

pub(crate) const RULES: &str = "domain: api\ndescriptors:\n- key: client\n  rate_limit: {unit: second, requests_per_unit: 100}\n";

pub(crate) async fn apply(
    database: &RulesDatabase,
    changes: Vec<Change>,
) -> Result<ApplyOutcome, PlaneError> {
    let set = ChangeSet::new(Author::named("ada"), "a test", changes);
    database.apply(set, 10_000, START * 1_000).await
}

pub(crate) struct Plane {
    pub(crate) database: Arc<RulesDatabase>,
    pub(crate) service: RulesService,
    pub(crate) broadcast: Arc<Broadcast>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) cell: CellSettings,
    pub(crate) admin: String,
    pub(crate) key: SigningKey,
    pub(crate) files: TempDir,
}

impl Plane {
    pub(crate) async fn start(cell: CellSettings) -> Self {
        let files = tempfile::tempdir().unwrap();
        let database = RulesDatabase::open(&files.path().join("data")).await.unwrap();
        Plane::on(Arc::new(database), cell, files).await
    }

    pub(crate) async fn on(
        database: Arc<RulesDatabase>,
        cell: CellSettings,
        files: TempDir,
    ) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(START)));
        cell.store(&database).await.unwrap();
        let admin =
            add_token(&database, "root", "read+change+approve+operate+admin+node", "").await;
        let broadcast = Arc::new(Broadcast::default());
        let service = RulesService::start(
            Arc::clone(&database),
            cell.clone(),
            clock.clone(),
            Arc::clone(&broadcast),
        );
        let service = service.await.unwrap();
        let key = SigningKey::generate().unwrap();
        Plane { database, service, broadcast, clock, cell, admin, key, files }
    }

    /// A publisher with a directory in the files of the test.
    pub(crate) fn publisher(&self, owner: &str) -> Publisher {
        let target = DirectoryTarget::open(&self.files.path().join("snapshots")).unwrap();
        self.publisher_to(owner, vec![Box::new(target)])
    }

    pub(crate) fn publisher_to(
        &self,
        owner: &str,
        targets: Vec<Box<dyn TargetStore>>,
    ) -> Publisher {
        let settings = PublisherSettings {
            owner: owner.to_owned(),
            ring: "all".to_owned(),
            key: self.key.to_secret_text().parse().unwrap(),
            certificate: None,
            targets,
        };
        let (database, broadcast) = (Arc::clone(&self.database), Arc::clone(&self.broadcast));
        Publisher::new(database, self.cell.clone(), self.clock.clone(), settings, broadcast)
    }

    pub(crate) async fn token(&self, name: &str, roles: &str, owner: &str) -> String {
        let text = add_token(&self.database, name, roles, owner).await;
        self.service.tick().await.unwrap();
        text
    }

    pub(crate) async fn call(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        self.call_with(token, method, path, body, &[]).await
    }

    pub(crate) async fn call_with(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &Value,
        fields: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {token}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.service.call(request.body(Full::from(body)).unwrap()).await.unwrap();
        let etag = answer.headers().get("etag").map(|tag| tag.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        let json = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Answer { status, json, etag, bytes: bytes.to_vec() }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) json: Value,
    pub(crate) etag: Option<String>,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) async fn add_token(
    database: &RulesDatabase,
    name: &str,
    roles: &str,
    owner: &str,
) -> String {
    let (text, token) = new_token(name, roles, owner, "", "test", START * 1_000).unwrap();
    let event = AuditEvent {
        actor: "test".to_owned(),
        action: "add token",
        object: name.to_owned(),
        outcome: "applied".to_owned(),
        why: String::new(),
    };
    database.add_token(token, event).await.unwrap();
    text
}
