//! Every table of metrics of the program.

use tidegate_metrics::Metric;

/// Every table of `tidegate serve`. A table that is missing here shows up as a metric that docs/metrics.md lists and no table has.
pub(crate) const TABLES: &[&[&Metric]] = &[
    tidegate_metrics::METER_METRICS,
    tidegate_admin::OBSERVATION_METRICS,
    tidegate_engine::ENGINE_METRICS,
    tidegate_stores::MEMORY_METRICS,
    tidegate_stores::SHARED_METRICS,
    tidegate_stores::REDIS_METRICS,
    tidegate_gateway::GATEWAY_METRICS,
    tidegate_server::GUARD_METRICS,
    tidegate_admin::DELIVERY_METRICS,
    tidegate_admin::SWITCHBOARD_METRICS,
    tidegate_overload::OVERLOAD_METRICS,
    tidegate_admin::ADMIN_METRICS,
    tidegate_statsd::STATSD_METRICS,
    tidegate_app::DECISION_METRICS,
    tidegate_app::FLOOD_METRICS,
    tidegate_retriever::RETRIEVER_METRICS,
];
