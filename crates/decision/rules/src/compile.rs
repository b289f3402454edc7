//! From rule files to a snapshot.
//!
//! Reads all files first, then merges the files of each domain and builds its tree. Collects problems to the end, so that
//! one run shows them all; an error anywhere means no snapshot.

mod domain;
mod limits;

use std::sync::Arc;

use foldhash::fast::FixedState;
use indexmap::IndexMap;

use crate::document::{self, RuleFile};
use crate::identity::version_of;
use crate::options::Options;
use crate::rule::Rule;
use crate::snapshot::{Domain, Snapshot};
use domain::DomainBuild;
use limits::LimitsBuild;
use tidegate_document::{Fault, Problems, Report, Source};

/// Compiles all rule files into one snapshot.
///
/// # Errors
/// With all problems of all files, when any file has an error.
pub fn compile(sources: &[Source], options: &Options) -> Result<Snapshot, Report> {
    let mut problems = Problems::new(sources);
    let domains = read_all(sources, options, &mut problems);
    let mut limits = LimitsBuild::new(*options, problems);
    let mut builds = Vec::new();
    for (name, files) in domains {
        let mut build = DomainBuild::new(&name, builds.len());
        build.settings(&files, &mut limits.problems);
        for file in &files {
            build.descriptors(&file.descriptors, &mut limits);
        }
        builds.push(build);
    }
    limits.warn_unknown_replaced();
    if limits.problems.has_errors() {
        return Err(limits.problems.into_report());
    }
    let rules: Arc<[Rule]> = limits.rules.into();
    let domains = builds.into_iter().map(|build| {
        let domain: Domain = build.finish(&rules, *options);
        (Arc::clone(&domain.name), domain)
    });
    Ok(Snapshot {
        shows_values: rules.iter().any(Rule::shows_values),
        version: version_of(sources.iter().map(|source| source.text.as_str())),
        domains: domains.collect(),
        rules,
        limits: limits.limits,
        names: limits.names.into_iter().collect(),
        warnings: limits.problems.into_report().into_problems(),
    })
}

/// The files by domain, in the order given.
fn read_all(
    sources: &[Source],
    options: &Options,
    problems: &mut Problems<'_>,
) -> IndexMap<String, Vec<RuleFile>, FixedState> {
    let mut domains: IndexMap<String, Vec<RuleFile>, FixedState> = IndexMap::default();
    for (source, file) in sources.iter().zip(0..) {
        let Some(read) = document::read(file, source, problems) else {
            continue;
        };
        let files = domains.entry(read.domain.value.clone()).or_default();
        if let Some(first) = files.first()
            && !options.merge_domains
        {
            let name = &read.domain.value;
            let fault = Fault::new("duplicate_domain", format!("domain `{name}` has another file"))
                .related(first.domain.location, "the other is here")
                .hint("keep a domain in one file, or allow files to be merged")
                .compat(format!("duplicate domain '{name}' in config file"));
            problems.error(read.domain.location, fault);
            continue;
        }
        files.push(read);
    }
    domains
}
