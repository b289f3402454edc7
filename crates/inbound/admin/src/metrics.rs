//! The page of metrics: all collectors of the program, read now.
//!
//! The table holds the metrics of the admin port and of the process. All others are declared where they are counted.

use std::sync::atomic::Ordering;

use tidegate_engine::{Clock, CounterStore};
use tidegate_metrics::{Collector, Exposition, Format, collect_meters};

use super::delivery::{GATEWAY_DOCUMENT, RULES};
use super::process::ProcessReading;
use super::service::Inner;

tidegate_metrics::metrics! {
    /// The metrics of the admin port and of the process.
    pub ADMIN_METRICS:
    CHANGES = Counter "tidegate_debug_changes_total" ["change"]
        "Changes made at run time: through the debug door, by the switches file, and switches that ended by themselves.";
    DENIED = Counter "tidegate_debug_denied_total" []
        "Requests that the debug door rejected for a missing or wrong token.";
    BUILD_INFO = Info "tidegate_build_info" ["version"]
        "The version of the program.";
    PROCESS_CPU = Counter "process_cpu_seconds_total" []
        "Processor time used.";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" []
        "Resident memory.";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" []
        "Virtual memory.";
    PROCESS_FDS = Gauge "process_open_fds" []
        "Open file descriptors.";
    PROCESS_FDS_MAX = Gauge "process_max_fds" []
        "The most file descriptors that may be open.";
    PROCESS_START = Gauge "process_start_time_seconds" []
        "When the process started, in Unix time.";
}

pub(super) fn page<S: CounterStore, C: Clock>(door: &Inner<S, C>, format: Format) -> String {
    let mut page = Exposition::new(format);
    let out = &mut page;
    let parts = &door.parts;
    collect_meters(&parts.meters, out);
    parts.observations.collect(out);
    door.engine.collect(parts.settings.rules_max, out);
    for (read, metrics) in [(&parts.rules, RULES), (&parts.gateway_document, GATEWAY_DOCUMENT)] {
        read.iter().for_each(|read| read().collect(metrics, out));
    }
    door.board.collect(out);
    for collector in &parts.collectors {
        collector.collect(out);
    }
    out.by_label(CHANGES, door.changes.read());
    out.single(DENIED, door.denied.load(Ordering::Relaxed));
    out.by_label(BUILD_INFO, [(parts.version, 1)]);
    ProcessReading::now().collect(out);
    page.finish()
}

impl Collector for ProcessReading {
    fn collect(&self, out: &mut Exposition) {
        let seconds = [(PROCESS_CPU, self.cpu_seconds), (PROCESS_START, self.start_seconds)];
        for (metric, value) in seconds {
            value.inspect(|value| out.single(metric, value));
        }
        let counts = [
            (PROCESS_RESIDENT, self.resident_bytes),
            (PROCESS_VIRTUAL, self.virtual_bytes),
            (PROCESS_FDS, self.open_fds),
            (PROCESS_FDS_MAX, self.max_fds),
        ];
        for (metric, value) in counts {
            value.inspect(|value| out.single(metric, value));
        }
    }
}
