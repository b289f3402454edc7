//! Statistics as other parts of the program take them: the sender's settings, and the mapping file.

use tidegate_statsd::{LineFormat, NameMapping, StatsdSettings, UpstreamMetrics};

use super::fields::{Debug, Statsd};
use super::kinds::{StatsTag, StatsdFormat};
use crate::exit::Failure;
use crate::input::read_file;

/// The largest mapping file.
const MAPPING_BYTES_MAX: usize = 1 << 20;

/// The settings of the sender, if statistics are sent.
pub(crate) fn sender_settings(statsd: &Statsd) -> Option<StatsdSettings> {
    Some(StatsdSettings {
        address: statsd.address.as_ref()?.get().clone(),
        format: match statsd.format {
            StatsdFormat::Statsd => LineFormat::Statsd,
            StatsdFormat::DogStatsd => LineFormat::DogStatsd,
        },
        tags: statsd.tags.iter().map(StatsTag::pair).collect(),
        mogrifiers: statsd.mogrifiers.iter().map(|rewrite| rewrite.get().clone()).collect(),
        flush_interval: statsd.flush_interval,
    })
}

/// The page of upstream's metrics, if it is enabled. Reads the mapping file.
///
/// # Errors
/// When the file cannot be read, or has problems.
pub(crate) fn upstream_metrics(
    debug: &Debug,
    tags: &[StatsTag],
) -> Result<Option<UpstreamMetrics>, Failure> {
    let fields = &debug.upstream_metrics;
    if !fields.enabled {
        return Ok(None);
    }
    let mapping = match &fields.mapping {
        Some(path) => {
            let source = read_file(path, MAPPING_BYTES_MAX)?;
            NameMapping::parse(&source).map_err(Failure::Config)?
        }
        None => NameMapping::default(),
    };
    let tags: Vec<_> = tags.iter().map(StatsTag::pair).collect();
    Ok(Some(UpstreamMetrics::new(mapping, &tags, fields.milliseconds)))
}
