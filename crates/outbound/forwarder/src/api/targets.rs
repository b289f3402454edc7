//! The targets: their limits, their state, their members, a change of limits.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use tidegate_capacity::{ChangeLimitsError, TargetLimit, TargetLimits};

use super::ForwardApi;
use super::answer::{Answer, Problem, json};
use crate::forwarder::TargetStatus;

/// A change of limits.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitsChange {
    limits: Vec<TargetLimit>,
}

/// The targets of this process.
#[derive(Debug, Serialize)]
struct TargetList {
    targets: Vec<TargetStatus>,
}

/// A member of a target, as the API shows it.
#[derive(Debug, Serialize)]
struct LeaseView {
    target: String,
    member: String,
    pool: String,
    wants: u16,
    slots: usize,
    of: u16,
}

pub(super) fn list(api: &ForwardApi) -> Answer {
    json(StatusCode::OK, &TargetList { targets: api.forwarder.target_status() })
}

pub(super) async fn leases(api: &ForwardApi) -> Result<Answer, Problem> {
    let mut leases = Vec::new();
    for target in api.forwarder.targets() {
        let document =
            api.forwarder.leases().document(&target).await.map_err(|error| {
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
            })?;
        let Some(document) = document else { continue };
        leases.extend(document.holders().map(|holder| LeaseView {
            target: target.clone(),
            member: holder.member.to_owned(),
            pool: holder.pool.to_owned(),
            wants: holder.wants,
            slots: holder.slots,
            of: document.limits().slots(),
        }));
    }
    Ok(json(StatusCode::OK, &serde_json::json!({ "leases": leases })))
}

pub(super) async fn set_limits(
    api: &ForwardApi,
    target: &str,
    body: &[u8],
) -> Result<Answer, Problem> {
    let change: LimitsChange = serde_json::from_slice(body).map_err(|error| {
        let detail = format!(
            "the body must be `{{\"limits\": [{{\"dimension\": \"units\", \"amount\": 1, \"window_ms\": 1000}}]}}`: {error}"
        );
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })?;
    let leases = api.forwarder.leases();
    let document = leases.document(target).await;
    let slots = document
        .ok()
        .flatten()
        .map_or(TargetLimits::SLOTS_DEFAULT, |document| document.limits().slots());
    let limits = TargetLimits::with_slots(change.limits, slots)
        .map_err(|error| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()))?;
    leases.change_limits(target, &limits).await.map_err(|error| {
        let status = match error {
            ChangeLimitsError::Limits(_) => StatusCode::UNPROCESSABLE_ENTITY,
            ChangeLimitsError::UnknownTarget(_) => StatusCode::NOT_FOUND,
            ChangeLimitsError::Heartbeat(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, error.to_string())
    })?;
    let view = serde_json::json!({ "target": target, "limits": limits.limits() });
    Ok(json(StatusCode::OK, &view))
}
