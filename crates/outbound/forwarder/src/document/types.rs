//! From the document to record types and their processors.

use http::header::HeaderName;
use tidegate_delivery::{
    BulkSettings, ClientTls, CommandSettings, CostSource, HttpSettings, HttpTimeouts,
};
use tidegate_document::{Fault, OrOff, Problems};
use tidegate_queue::schedule::ClassPolicy;
use tidegate_queue::{Capability, QueueSettings};

use super::kinds::{AllowedHost, PriorityRule, StatusCodeNumber};
use super::table::{
    BulkKeys, CommandKeys, FieldKeys, HttpKeys, QueueKeys, RealCostKeys, RetryKeys, TimeoutsKeys,
    TlsKeys, TypeKeys,
};
use super::{count, put, size, small};
use crate::processor_plan::{FieldFile, HttpPlan, ProcessorPlan};
use crate::retry::RetryPolicy;
use crate::settings::TypeSettings;

/// The settings and the processor of a type; `None` if a problem was reported.
pub(super) fn record_type(
    mut keys: TypeKeys,
    problems: &mut Problems<'_>,
) -> Option<(TypeSettings, ProcessorPlan)> {
    let (http, command) = (keys.http.take(), keys.command.take());
    keys.keys.exclude_each_other(&["http", "command"], problems);
    if http.is_none() && command.is_none() && !keys.keys.has("http") && !keys.keys.has("command") {
        let fault = Fault::new("missing_key", "the type has no processor")
            .hint("give it `http` with a `url`, or a `command` with a `program`");
        problems.error(keys.keys.location, fault);
    }
    let settings = settings(&keys, problems);
    let processor = match (http, command) {
        (Some(keys), _) => ProcessorPlan::Http(Box::new(http_plan(keys, problems)?)),
        (None, command) => ProcessorPlan::Command(command_settings(command?)),
    };
    if processor.time_max() > settings.attempt_timeout {
        let message = "an attempt would be cut off before the timeout of its processor";
        let fault = Fault::new("exclusive", message)
            .hint("make `attempt_timeout` at least as long as the total time of the processor");
        problems.error(keys.keys.value_location("attempt_timeout"), fault);
    }
    Some((settings, processor))
}

fn settings(keys: &TypeKeys, problems: &mut Problems<'_>) -> TypeSettings {
    let name = keys.name.as_ref().map(|name| name.value.0.clone()).unwrap_or_default();
    let mut settings = TypeSettings::new(name);
    put(&mut settings.pool, keys.pool.as_ref().map(|pool| pool.value.0.clone()));
    put(&mut settings.weight, keys.weight.map(count));
    put(&mut settings.reserve, keys.reserve.map(small));
    put(&mut settings.slot_lease, keys.slot_lease);
    put(&mut settings.queue, keys.queue.as_ref().map(|queue| queue_settings(queue, problems)));
    put(&mut settings.retry, keys.retry.as_ref().map(retry_policy));
    put(&mut settings.on_ambiguous, keys.on_ambiguous.map(|word| word.0));
    put(&mut settings.ambiguous_wait, keys.ambiguous_wait);
    put(&mut settings.in_flight_max, keys.in_flight_max.map(count));
    put(&mut settings.attempt_timeout, keys.attempt_timeout);
    let spans =
        [("slot_lease", settings.slot_lease), ("attempt_timeout", settings.attempt_timeout)];
    for (name, span) in spans {
        if span.as_secs() == 0 {
            let fault = Fault::new("out_of_range", format!("`{name}` is at least one second"));
            problems.error(keys.keys.value_location(name), fault);
        }
    }
    if keys.name.is_some()
        && let Err(error) = settings.queue.validate(&settings.record_type, &Capability::ALL)
    {
        let location = keys.queue.as_ref().map(|queue| queue.keys.location);
        let location = location.unwrap_or_else(|| keys.keys.value_location("name"));
        problems.error(location, Fault::new("invalid_type", error.to_string()));
    }
    settings
}

fn queue_settings(keys: &QueueKeys, problems: &mut Problems<'_>) -> QueueSettings {
    let mut settings = QueueSettings::default();
    put(&mut settings.order, keys.order.map(super::kinds::OrderWord::mode));
    settings.classes = classes(keys, problems);
    put(&mut settings.records_max, keys.records_max);
    put(&mut settings.bytes_max, keys.bytes_max.map(tidegate_document::Size::bytes));
    put(&mut settings.age_max, keys.age_max.clone().map(OrOff::into_option));
    put(&mut settings.dedup_window, keys.dedup_window);
    put(&mut settings.lapses_max, keys.lapses_max.map(count));
    settings
}

fn classes(keys: &QueueKeys, problems: &mut Problems<'_>) -> ClassPolicy {
    let (mut weights, mut ageing) = match ClassPolicy::default() {
        ClassPolicy::Weighted { weights, ageing } => (weights, ageing),
        ClassPolicy::Strict { ageing } => ([1; 4], ageing),
    };
    put(&mut ageing, keys.ageing.clone().map(OrOff::into_option));
    let is_strict = keys.priority == Some(PriorityRule::Strict);
    if let Some(given) = &keys.weights {
        let location = keys.keys.value_location("weights");
        if is_strict {
            let fault = Fault::new("no_effect", "weights have no effect with `priority: strict`");
            problems.warn(location, fault.hint("remove them"));
        }
        match <[u64; 4]>::try_from(given.as_slice()) {
            Ok(four) => weights = four.map(count),
            Err(_) => {
                let message = format!("{} weights; there are four classes", given.len());
                let fault = Fault::new("wrong_number", message);
                problems.error(location, fault.hint("such as `[8, 4, 2, 1]`"));
            }
        }
    }
    if is_strict {
        ClassPolicy::Strict { ageing }
    } else {
        ClassPolicy::Weighted { weights, ageing }
    }
}

fn retry_policy(keys: &RetryKeys) -> RetryPolicy {
    let mut policy = RetryPolicy::default();
    put(&mut policy.base, keys.base);
    put(&mut policy.cap, keys.cap);
    put(&mut policy.attempts_max, keys.attempts_max.map(count));
    policy
}

fn http_plan(keys: HttpKeys, problems: &mut Problems<'_>) -> Option<HttpPlan> {
    let url = keys.url?;
    let location = url.location;
    let mut settings = HttpSettings::post(url.value.0);
    put(&mut settings.method, keys.method.map(|method| method.0));
    settings.destinations.hosts.extend(keys.hosts.into_iter().map(|AllowedHost(host)| host));
    settings.destinations.networks =
        keys.networks.into_iter().map(tidegate_document::Network::get).collect();
    put(&mut settings.timeouts, keys.timeouts.as_ref().map(timeouts));
    put(&mut settings.protocol, keys.protocol.map(super::kinds::ProtocolWord::protocol));
    put(&mut settings.tls, keys.tls.map(|tls| client_tls(tls, problems)));
    put(&mut settings.redirects_max, keys.redirects_max.map(|most| most.to_le_bytes()[0]));
    put(&mut settings.send_slot, keys.send_slot);
    let statuses = |list: Vec<StatusCodeNumber>| list.into_iter().map(|status| status.0).collect();
    settings.statuses.throttled = statuses(keys.throttled);
    settings.statuses.delivered = statuses(keys.delivered);
    put(&mut settings.real_cost, keys.real_cost.and_then(|cost| real_cost(cost, problems)));
    settings.bulk = keys.bulk.as_ref().and_then(bulk);
    let mut field_files = Vec::new();
    for field in keys.headers {
        header(field, &mut settings, &mut field_files, problems);
    }
    if let Err(error) = settings.destinations.check_url(&settings.url) {
        let fault = Fault::new("forbidden_destination", error.to_string())
            .hint("name the network in `networks`, such as `127.0.0.1`");
        problems.error(location, fault);
    }
    Some(HttpPlan { settings, field_files, signing_secrets: keys.signing_secrets })
}

fn header(
    keys: FieldKeys,
    settings: &mut HttpSettings,
    files: &mut Vec<FieldFile>,
    problems: &mut Problems<'_>,
) {
    keys.keys.exclude_each_other(&["value", "value_file"], problems);
    let name = keys.name.as_ref().and_then(|name| name.as_str().parse::<HeaderName>().ok());
    match (name, keys.value, keys.value_file) {
        (Some(name), Some(value), _) => settings.headers.push((name, value.0)),
        (Some(name), None, Some(path)) => files.push(FieldFile { name, path }),
        (Some(_), None, None) if !keys.keys.has("value") && !keys.keys.has("value_file") => {
            let fault = Fault::new("missing_key", "the header field has no value")
                .hint("give `value`, or `value_file` for a secret");
            problems.error(keys.keys.location, fault);
        }
        // Reported by the reader.
        _ => {}
    }
}

fn timeouts(keys: &TimeoutsKeys) -> HttpTimeouts {
    let mut timeouts = HttpTimeouts::default();
    put(&mut timeouts.connect, keys.connect);
    put(&mut timeouts.head, keys.head);
    put(&mut timeouts.body, keys.body);
    put(&mut timeouts.total, keys.total);
    timeouts
}

fn client_tls(keys: TlsKeys, problems: &mut Problems<'_>) -> ClientTls {
    for (name, other) in [("cert", "key"), ("key", "cert")] {
        if keys.keys.has(name) && !keys.keys.has(other) {
            let fault = Fault::new("incomplete_tls", format!("`{name}` needs `{other}`"))
                .hint("give `cert` and `key`");
            problems.error(keys.keys.value_location(name), fault);
        }
    }
    ClientTls {
        authority: keys.authority,
        identity: keys.cert.zip(keys.key),
        ..ClientTls::default()
    }
}

fn real_cost(keys: RealCostKeys, problems: &mut Problems<'_>) -> Option<CostSource> {
    keys.keys.exclude_each_other(&["header", "pointer"], problems);
    match (keys.header, keys.pointer) {
        (Some(name), _) => name.as_str().parse().ok().map(CostSource::Header),
        (None, Some(pointer)) if pointer.0.starts_with('/') => {
            Some(CostSource::JsonPointer(pointer.0))
        }
        (None, Some(pointer)) => {
            let message = format!("`{}` is no JSON pointer", pointer.0);
            let fault = Fault::new("invalid_pointer", message).hint("such as `/usage/units`");
            problems.error(keys.keys.value_location("pointer"), fault);
            None
        }
        (None, None) => {
            let fault = Fault::new("missing_key", "it says not where the cost is")
                .hint("give `header` or `pointer`");
            problems.error(keys.keys.location, fault);
            None
        }
    }
}

fn bulk(keys: &BulkKeys) -> Option<BulkSettings> {
    Some(BulkSettings {
        records_max: size(keys.records_max?),
        format: keys.format.map(super::kinds::BulkFormatWord::format).unwrap_or_default(),
        envelope: keys.envelope.map(super::kinds::BulkEnvelopeWord::envelope).unwrap_or_default(),
        results: keys.results.map(super::kinds::BulkResultsWord::results).unwrap_or_default(),
    })
}

fn command_settings(keys: CommandKeys) -> CommandSettings {
    let mut settings = CommandSettings::new(keys.program.unwrap_or_default());
    settings.arguments = keys.arguments.into_iter().map(|argument| argument.0.into()).collect();
    let variables = keys.environment.into_iter();
    settings.environment = variables
        .filter_map(|variable| Some((variable.name?.0.into(), variable.value?.0.into())))
        .collect();
    settings.directory = keys.directory;
    put(&mut settings.timeout, keys.timeout);
    put(&mut settings.real_cost, keys.real_cost.map(|text| CostSource::JsonPointer(text.0)));
    settings
}
